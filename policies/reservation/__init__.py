"""Deadlines that are met: what jobs reserve, which jobs are admitted, and where they run.

`elasticflow`, `vtrain-aware` and `priced-deadlines` use these parts; docs/policies/elasticflow.md has the
whole argument.

| module            | names                                   | what                                         |
|-------------------|-----------------------------------------|----------------------------------------------|
| `calendar`        | `NodeCalendar`, `Slot`, `WHOLE`,        | what reservations leave free, by address;    |
|                   | `Addresses`, `Placement`                | which node serves which address              |
| `demand`          | `Demand`, `Kind`, `Holding`, `Outlook`  | what a job needs of one GPU type             |
| `filling`         | `fill`, `search`, `shorten`, `yield_of` | how work is reserved before its deadline     |
| `gpu_types`       | `Room`, `Share`, `Values`, `rooms_of`,  | the nodes of each GPU type, and the worth of |
|                   | `held_on`                               | a GPU of it                                  |
| `refilling`       | `by_value`, `cheapest`, `refill`,       | on which type a job is filled                |
|                   | `Refilled`                              |                                              |
| `reservations`    | `Reservations`, `TakenOut`, `urgency`   | all reservations                             |
| `agenda`          | `Agenda`, `Timetable`                   | what is due and what begins soon, kept up to |
|                   |                                         | date between decisions                       |
| `admission`       | `Admission`                             | which further jobs may reserve               |
| `seating`         | `Seating`                               | where jobs with reserved GPUs run            |
| `spare_gpus`      | `SpareGpus`, `SpareRule`, `may_stay`    | GPUs that are not reserved, and which of     |
|                   |                                         | them a job may have                          |
| `marginal_return` | `by_marginal_return`                    | ElasticFlow's rule for them                  |
| `following`       | `follow`                                | the proposal of a policy with reservations   |

Why reservations have addresses
- Counting GPUs is not enough. With jobs of 1, 2 and 4 GPUs among whole-node jobs, a calendar that only counts
  promises what a fragmented cluster cannot give, and admitted jobs finish late.
- Reserving small jobs in blocks that divide a node mends the count. But such jobs would have to move whenever
  whole nodes are needed. The number of moves is unknown in advance, so no reservation could be charged for
  their restarts.
- Therefore a job smaller than a node reserves GPUs of a virtual node, and never moves for others. The node
  is virtual because real ones would tie whole-node jobs to node numbers months ahead. Whole nodes are only
  counted; a virtual node gets a real one when a job is due there.
- The price is fragmentation in time: an interval must lie on one node. Best fit and refilling keep the price
  small. The gain is larger: no restart is set aside for moves, and 3 + 5 GPUs share a node of 8.
- Which job goes on without a restart is recorded (`Demand.in_place`). If it were derived from where jobs
  happen to run, two jobs could claim one node for different virtual nodes.
"""

from __future__ import annotations

from .admission import Admission
from .agenda import Agenda, Timetable
from .calendar import WHOLE, Addresses, NodeCalendar, Placement, Slot
from .demand import Demand, Holding, Kind, Outlook
from .filling import fill, search, shorten, yield_of
from .following import follow
from .gpu_types import Room, Share, Values, held_on, rooms_of
from .marginal_return import by_marginal_return
from .refilling import Refilled, by_value, cheapest, refill
from .reservations import Reservations, TakenOut, urgency
from .seating import Seating
from .spare_gpus import SpareGpus, SpareRule, may_stay

__all__ = [
    "WHOLE",
    "Addresses",
    "Admission",
    "Agenda",
    "Demand",
    "Holding",
    "Kind",
    "NodeCalendar",
    "Outlook",
    "Placement",
    "Refilled",
    "Reservations",
    "Room",
    "Seating",
    "Share",
    "Slot",
    "SpareGpus",
    "SpareRule",
    "TakenOut",
    "Timetable",
    "Values",
    "by_marginal_return",
    "by_value",
    "cheapest",
    "fill",
    "follow",
    "held_on",
    "may_stay",
    "refill",
    "rooms_of",
    "search",
    "shorten",
    "urgency",
    "yield_of",
]
