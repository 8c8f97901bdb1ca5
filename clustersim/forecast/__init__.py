"""Forecasts: when a waiting job starts, from a live state of the cluster.

| name | what |
|---|---|
| `read_state` | the jobs that run and wait, from what Slurm or Kubernetes print, or from a log at a moment |
| `LiveState` | these jobs |
| `moment_of` | a moment that an option states, on the clock of a log |
| `Request` | the job that is asked about: one that waits, or a new one |
| `Options`, `SitePolicy` | policy, pools, run times and draws |
| `predict_start` | the distribution of its start, as a `Forecast` |
| `Forecast` | the delays by draw, and the summary |
| `RunTimes` | run times drawn from a history |

Why
- Nothing is random but how long jobs run. So each draw is one simulation with known run times, and a changed
  request is compared with the job as it is in the same draws.
- A simulation begins before now: each running job starts when it did. So a policy sees the time that jobs
  have run and waited, and needs no rule for a state in the middle.
"""

from .forecast import Forecast, Options, predict_start
from .request import Request
from .run_times import RunTimes
from .scene import SitePolicy
from .state import LiveState, moment_of, read_state

__all__ = [
    "Forecast",
    "LiveState",
    "Options",
    "Request",
    "RunTimes",
    "SitePolicy",
    "moment_of",
    "predict_start",
    "read_state",
]
