"""Traces that papers on schedulers simulate or measure, a module per origin.

| name | what |
|---|---|
| `CHRONUS` | Chronus, after Philly |
| `ELASTICFLOW` | ElasticFlow, of its simulator and its testbed |
| `GAIA` | GAIA, from Alibaba PAI |
| `GAVEL`, `SHOCKWAVE` | Gavel, and Shockwave, which extends it |
| `MORPHLING` | Rubick's workloads, of Alibaba's Morphling |
| `MURI`, `MURI_RESULTS` | Muri's traces, and what its testbed measured |
| `POLLUX` | the workloads of Pollux and Sia |
| `TIRESIAS` | Tiresias' `60_job.csv` |
"""

from .chronus import CHRONUS
from .elasticflow import ELASTICFLOW
from .gaia import GAIA
from .gavel import GAVEL, SHOCKWAVE
from .morphling import MORPHLING
from .muri import MURI, MURI_RESULTS
from .pollux import POLLUX
from .tiresias import TIRESIAS

__all__ = [
    "CHRONUS",
    "ELASTICFLOW",
    "GAIA",
    "GAVEL",
    "MORPHLING",
    "MURI",
    "MURI_RESULTS",
    "POLLUX",
    "SHOCKWAVE",
    "TIRESIAS",
]
