"""What Slurm's controller does, over plain data: each rule is a module, which names its sources.

| module | names | what |
|---|---|---|
| `controller` | `Controller`, `Host`, `Phases`, `phases_of_start` | its jobs and nodes, its timers |
| `main_scheduler` | `queue_of` | the order of the queue; the main scheduler |
| `backfill` | `run_backfill` | a plan for every waiting job, made anew in each cycle |
| `outlook` | | when a job can start, by the limits of the running ones |
| `placement` | `FreeNodes`, `place` | where a job starts |
| `priority` | `resources_of` | priorities, and what a job asks for |
| `fair_share` | `ShareTree` | usage, Fair Tree and classic fair share |
| `limits` | `Limits` | limits of associations and QOS |
| `preemption` | `Preemption` | which jobs make room for another one |
| `reservations` | | nodes that are reserved for a time |
| `rules` | `Rules`, `DEFAULT_QOS` | a site, looked up once |
| `records` | `JobRecord`, `Shape`, `Placement`, `nodes_in`, `UNLIMITED_S` | a job |

Why
- No rule knows views or proposals of the simulator. So each can be held against the log of a real controller,
  one step at a time (`experiments/slurm`).
- Sets of nodes are integers with a bit a node: a cycle of backfill intersects thousands of them.
- The controller decides at ticks of its timers, since that is what decides in Slurm which scheduler comes
  first: the main scheduler stops at the first job without room, backfill does not.
"""

from .backfill import run_backfill
from .controller import Controller, Host, Phases, phases_of_start
from .fair_share import ShareTree
from .limits import Limits
from .main_scheduler import queue_of
from .placement import FreeNodes, place
from .preemption import Preemption
from .priority import resources_of
from .records import UNLIMITED_S, JobRecord, Placement, Shape, nodes_in
from .rules import DEFAULT_QOS, Rules

__all__ = [
    "DEFAULT_QOS",
    "UNLIMITED_S",
    "Controller",
    "FreeNodes",
    "Host",
    "JobRecord",
    "Limits",
    "Phases",
    "Placement",
    "Preemption",
    "Rules",
    "Shape",
    "ShareTree",
    "nodes_in",
    "phases_of_start",
    "place",
    "queue_of",
    "resources_of",
    "run_backfill",
]
