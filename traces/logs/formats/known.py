"""The formats of job logs that are recognised, by name."""

from __future__ import annotations

from collections.abc import Mapping

from traces.logs.log_format import LogFormat

from .helios import FLEETSIM, HELIOS
from .live import SLURM
from .microsoft import ITP, PHILLY_TABLE
from .papers import CHRONUS, ELASTICFLOW, GAIA, MORPHLING, MURI, MURI_RESULTS, TIRESIAS
from .philly import PHILLY
from .swf import SWF

__all__ = ["FORMATS"]

FORMATS: Mapping[str, LogFormat] = {
    known.name: known
    for known in (
        ITP, ELASTICFLOW, PHILLY, PHILLY_TABLE, HELIOS, FLEETSIM,
        CHRONUS, TIRESIAS, MURI, MURI_RESULTS, MORPHLING, GAIA,
        SLURM, SWF,
    )
}  # fmt: skip
"""Name -> format. A log of one of them is recognised as that one only."""
