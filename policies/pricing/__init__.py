"""A price for GPU-seconds: how many GPUs each job holds, from what a GPU-second delays.

| module     | names                 | for                                                                  |
|------------|-----------------------|----------------------------------------------------------------------|
| `claims`   | `Claim`, `ClaimCurve` | a job as the rule sees it: work left, curves, what it holds          |
| `prices`   | `Prices`              | the price of a GPU-second for the i-th shortest of m jobs            |
| `market`   | `Market`,             | the best size of each job in order, with harm to others; then the    |
|            | `PricedShare`         | GPUs that are left                                                   |
| `line`     | `Line`                | the jobs of a simulation as claims, in order, with their prices      |
| `stated`   | `StatedWork`          | what is left of work that may be misstated                           |
| `promises` | `Promises`            | reservations, with what triage and the market ask of them            |
| `triage`   | `Triage`              | which jobs keep a promised deadline where not all can                |

`Market` works on plain data. A `Claim` can stand for anything that has a curve, and the number of GPUs of
each type is all that is known of a cluster.

Why
- For a price lam of a GPU-second, (1 + lam n) T(n) is what a job on n GPUs costs: its own T(n) seconds, and
  those of the jobs that could use its n T(n) GPU-seconds. The size of the least cost is best for the sum of
  completion times. For a speed of n^p it is where lam n = p / (1 - p).
- Prices need no search. The optimal dual prices of the problem of least mean completion time are, over all
  instants of generated streams, (jobs in the system) / GPUs within a tenth.
- Overheads are part of every T(n), and what other jobs lose is part of the price of taking their GPUs. A rule
  that is blind to both changes sizes all the time.
- Prices follow from ranks, so nothing is learned, forecast or kept between decisions, except the order.
"""

from .claims import Claim, ClaimCurve
from .line import Line
from .market import Market, PricedShare
from .prices import Prices
from .promises import Promises
from .stated import StatedWork
from .triage import Triage

__all__ = [
    "Claim",
    "ClaimCurve",
    "Line",
    "Market",
    "PricedShare",
    "Prices",
    "Promises",
    "StatedWork",
    "Triage",
]
