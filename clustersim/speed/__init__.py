"""How fast a job runs: iterations per second for a number and type of GPUs, where it runs.

| name | what |
|---|---|
| `CannotRun` | No GPU count of this cluster can run the job |
| `Curve` | Speed of one kind of job by GPU count, on one GPU type |
| `Offer` | What one GPU type offers a job |
| `regular_counts` | 1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes |
| `Network` | The running jobs, the links that they use, and their speeds |
| `Speed` | The speeds of the jobs of one run, on one GPU type (`SpeedOnOneType`) or several (`SpeedByType`) |
| `SpeedOnOneType` | Speeds on equal nodes of one GPU type |
| `speed_for` | The speeds of a run |
| `read_throughput_table` | Read a table |

Why
- A placement is reduced to a layout (GPUs per node, nodes per leaf, senders, oversubscription) that
  `itertime` evaluates as a system of its own. So there is one network model, layouts repeat and are cached,
  and a packed job runs at the ideal speed to the last bit.
- Links are shared max-min fairly; packets and flows are not simulated. Shares change only when jobs come
  and go, so the engine stays at one event per change of state. The price: every job sends all the time.
- The network keeps levels of links instead of shares of jobs. A link's level is the share at which it is
  full, and depends only on lower levels. A change is followed upwards until levels stay equal. That is
  exact: tests compare with `==` after every change. Solving all connected links again was six times slower.
- A job runs on GPUs of one type. Mixed allocations train at the pace of the slowest GPU unless the plan is
  balanced for them, which no planner here does. The engine sees one curve per type (`Offer`).
"""

from .curve import CannotRun, Curve, Offer, regular_counts
from .network import Network
from .speed import Speed, SpeedOnOneType, speed_for
from .throughput_table import read_throughput_table

__all__ = [
    "CannotRun",
    "Curve",
    "Network",
    "Offer",
    "Speed",
    "SpeedOnOneType",
    "read_throughput_table",
    "regular_counts",
    "speed_for",
]
