"""A price for GPU-seconds: how many GPUs each job holds, from what a GPU-second delays.

| module   | names                           | for                                                          |
|----------|---------------------------------|--------------------------------------------------------------|
| `claims` | `Claim`, `Curve` | a job as the rule sees it: work left, curves, what it holds      |
| `prices` | `Prices`                        | the price of a GPU-second for the i-th shortest of m jobs    |
| `market` | `Market`, `Share`               | the best size of each job in order, harm to others counted;  |
|          |                                 | then the GPUs that are left over                             |

All of it works on plain data: a `Claim` can stand for anything that has a curve, and a `Market` knows no
cluster beyond the number of GPUs of each type.

Why
- For a price lam of a GPU-second, (1 + lam n) T(n) is what a job on n GPUs costs: its own T(n) seconds, and
  those of the jobs that could use its n T(n) GPU-seconds. Its minimum is the best size exactly. For a speed
  of n^p the first-order condition is lam n = p / (1 - p).
- Prices need no search. The optimal dual prices of the problem of least mean completion time, over all
  instants of generated streams, are (jobs in the system) / GPUs within a tenth.
- Overheads are part of every T(n), and the restarts of jobs that lose GPUs are part of the price of taking
  them. A rule that is blind to them changes sizes all the time.
"""

from .claims import Claim, Curve
from .line import Line
from .market import Market, Share
from .prices import Prices

__all__ = ["Claim", "Curve", "Line", "Market", "Prices", "Share"]
