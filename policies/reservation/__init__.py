"""Deadlines that are met: what jobs reserve, which jobs are admitted, and where they run.

`elasticflow` and `vtrain-aware` are made of these parts; docs/policies/elasticflow.md has the whole argument.

| module       | names                                   | what                                             |
|--------------|-----------------------------------------|--------------------------------------------------|
| `calendar`   | `NodeCalendar`, `Slot`, `WHOLE`,        | what reservations leave free, by address;        |
|              | `Addresses`, `Placement`                | which node serves which address                  |
| `filling`    | `Demand`, `fill`, `shorten`, `yield_of` | how a job's work is reserved before its deadline |
| `admission`  | `Admission`, `Agenda`, `urgency`        | the reservations of all admitted jobs            |
| `seating`    | `Seating`                               | where jobs with reserved GPUs run                |
| `spare_gpus` | `share_out`, `may_stay`                 | GPUs that are not reserved, by marginal return   |
"""

from __future__ import annotations

from .admission import Admission, Agenda, urgency
from .calendar import WHOLE, Addresses, NodeCalendar, Placement, Slot
from .filling import Demand, fill, shorten, yield_of
from .seating import Seating
from .spare_gpus import may_stay, share_out

__all__ = [
    "WHOLE",
    "Addresses",
    "Admission",
    "Agenda",
    "Demand",
    "NodeCalendar",
    "Placement",
    "Seating",
    "Slot",
    "fill",
    "may_stay",
    "share_out",
    "shorten",
    "urgency",
    "yield_of",
]
