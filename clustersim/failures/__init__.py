"""When nodes are out of service, and how jobs fail on their own.

| name | what |
|---|---|
| `Failures` | the parameters: failure rates, repair times, spare nodes, retries, shares of jobs that fail |
| `Outages` | the changes of service of all nodes, in order of time: drawn failures and planned changes |
| `NodeChange` | one of these changes: a node goes out of service or comes back |
| `Closure` | nodes that are out of service as announced, and when |
| `Maintenance` | the planned changes: maintenance, nodes that are reclaimed, added or removed |
| `Notice` | it becomes known that a node is to be reclaimed |
| `Spot` | the parameters of spot nodes: how often they are reclaimed, for how long, with how much notice |
| `Reservation` | nodes that are for some jobs alone during some time |
| `reservations_of`, `read_reservations` | reservations from entries; the entries of a file |
| `read_calendar` | the entries of a calendar file, from which `Maintenance.of` is made |
| `failure_of_job` | how a job fails, as logged or as drawn; None if it will finish |
| `ended_badly` | whether a logged state is that of a job that failed or was cancelled |
| `JobFailure` | the reason, and the share of the job's work that is done before |

Why
- Outages are drawn from streams of the machines alone. All policies meet the same failures, so a difference
  between two policies is caused by the policies. The price: an idle node fails as often as a busy one.
"""

from .failures import Failures, JobFailure, ended_badly, failure_of_job
from .maintenance import Closure, Maintenance, read_calendar
from .outages import NodeChange, Notice, Outages
from .reservations import Reservation, read_reservations, reservations_of
from .spot import Spot

__all__ = [
    "Closure",
    "Failures",
    "JobFailure",
    "Maintenance",
    "NodeChange",
    "Notice",
    "Outages",
    "Reservation",
    "Spot",
    "ended_badly",
    "failure_of_job",
    "read_calendar",
    "read_reservations",
    "reservations_of",
]
