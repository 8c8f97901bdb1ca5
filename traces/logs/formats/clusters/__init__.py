"""Logs of production clusters, as published or as excerpts of what was published.

| name | what |
|---|---|
| `ACME`, `KALOS_CONVERTED` | Acme's clusters Seren and Kalos |
| `DLRM`, `OPENB`, `PAI` | Alibaba's clusters of 2025, 2023 and 2020 |
| `HELIOS`, `FLEETSIM` | SenseTime's clusters (Helios), and FleetSim's canonical jobs |
| `ITP`, `PHILLY`, `PHILLY_TABLE` | Microsoft's clusters |
"""

from .acme import ACME, KALOS_CONVERTED
from .alibaba import DLRM, OPENB
from .helios import FLEETSIM, HELIOS
from .microsoft import ITP, PHILLY_TABLE
from .pai import PAI
from .philly import PHILLY

__all__ = [
    "ACME",
    "DLRM",
    "FLEETSIM",
    "HELIOS",
    "ITP",
    "KALOS_CONVERTED",
    "OPENB",
    "PAI",
    "PHILLY",
    "PHILLY_TABLE",
]
