"""How good any schedule can be: bounds of a run's metrics that hold for every policy.

| name | what |
|---|---|
| `Instance` | GPUs by type, and the jobs with everything that a bound needs to know of them |
| `BoundJob`, `Option` | one of these jobs; what one GPU type offers it |
| `instance_of` | the instance of a trace's jobs on a cluster |
| `Bound` | bounds of the mean and p99 of JCT, of the makespan and of the deadlines met |
| `bound_of` | the bound of an instance, by a method of choice |
| `METHODS`, `method_of` | the names of the methods; what `auto` and `best` stand for |
| `is_settled` | whether a run is so near its bound that a better one would tell no more |
| `prices_of` | the `DualPrices` behind a bound: what a GPU-second is worth over time |

| module | what |
|---|---|
| `instance`, `columns` | an instance; the same as arrays |
| `methods` | the bound of an instance from the bounds of the other modules |
| `area` | least seconds and GPU-seconds of each job; mean JCT by SRPT on one machine |
| `makespan` | the makespan, by area and by the speed that jobs need |
| `mean`, `deadlines` | mean JCT; deadlines met and p99: by prices of GPU-seconds |
| `relaxation`, `plans` | what given prices prove; the cheapest plan of each job under them |
| `first_prices`, `ascent` | prices to begin with; better ones |

Why
- A bound drops what a scheduler has to respect (placement, fragmentation, ignorance of the future), and keeps
  what no scheduler can avoid: the work, the speeds, the overheads and the number of GPUs. So it holds for
  every policy, clairvoyant ones included, and also under failures and contention, which only slow jobs down.
- The statement and the proof of a bound stand in the docstring of the function that computes it.
- Any prices prove a bound, so the search for good ones needs no guarantee, and no compiler: a few dozen steps
  in numpy over all jobs at once come within 1 % of hundreds.
"""

from .instance import BoundJob, Instance, Option, instance_of
from .mean import DualPrices
from .methods import METHODS, Bound, bound_of, is_settled, method_of, prices_of

__all__ = [
    "METHODS",
    "Bound",
    "BoundJob",
    "DualPrices",
    "Instance",
    "Option",
    "bound_of",
    "instance_of",
    "is_settled",
    "method_of",
    "prices_of",
]
