"""The formats of job logs that are recognised, by name."""

from __future__ import annotations

from collections.abc import Mapping

from traces.logs.log_format import LogFormat

from .elasticflow import ELASTICFLOW
from .helios import FLEETSIM, HELIOS
from .microsoft import ITP, PHILLY_TABLE
from .papers import CHRONUS, GAIA, MURI
from .philly import PHILLY
from .slurm import SLURM
from .swf import SWF

__all__ = ["FORMATS"]

FORMATS: Mapping[str, LogFormat] = {
    known.name: known
    for known in (
        ITP, ELASTICFLOW, PHILLY, PHILLY_TABLE, HELIOS, FLEETSIM, CHRONUS, MURI, GAIA, SLURM, SWF
    )
}  # fmt: skip
"""Name -> format. A log of one of them is recognised as that one only."""
