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
from .live import KUEUE, PODS, VOLCANO
from .papers import (
    CHRONUS,
    ELASTICFLOW,
    GAIA,
    GAVEL,
    MORPHLING,
    MURI,
    MURI_RESULTS,
    POLLUX,
    SHOCKWAVE,
    TIRESIAS,
)
from .pbs import PBS
from .slurm import JOBCOMP, SCONTROL, SLURM, SLURM_JSON, SQUEUE
from .swf import SWF

__all__ = ["FORMATS"]

FORMATS: Mapping[str, LogFormat] = {
    log_format.name: log_format
    for log_format in (
        ITP, ELASTICFLOW, PHILLY, PHILLY_TABLE, HELIOS, FLEETSIM,
        ACME, KALOS_CONVERTED, PAI, OPENB, DLRM,
        CHRONUS, TIRESIAS, MURI, MURI_RESULTS, MORPHLING, POLLUX, GAVEL, SHOCKWAVE, GAIA,
        SLURM, SLURM_JSON, JOBCOMP, SQUEUE, SCONTROL, KUEUE, PODS, VOLCANO, PBS, SWF,
    )
}  # fmt: skip
"""Name -> format. A log of one of them is recognised as that one only."""
