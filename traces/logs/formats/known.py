"""The formats of job logs that are recognised, by name."""

from __future__ import annotations

from collections.abc import Mapping

from traces.logs.log_format import LogFormat

from .clusters import (
    ACME,
    DLRM,
    FLEETSIM,
    HELIOS,
    ITP,
    KALOS_CONVERTED,
    OPENB,
    PAI,
    PHILLY,
    PHILLY_TABLE,
)
from .elasticflow import ELASTICFLOW
from .papers import CHRONUS, GAIA, MURI
from .slurm import SLURM
from .swf import SWF

__all__ = ["FORMATS"]

FORMATS: Mapping[str, LogFormat] = {
    known.name: known
    for known in (
        ITP, ELASTICFLOW, PHILLY, PHILLY_TABLE, HELIOS, FLEETSIM,
        ACME, KALOS_CONVERTED, PAI, OPENB, DLRM,
        CHRONUS, MURI, GAIA, SLURM, SWF,
    )
}  # fmt: skip
"""Name -> format. A log of one of them is recognised as that one only."""
