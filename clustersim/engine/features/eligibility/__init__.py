"""When jobs may run, how often they began anew, and when they end early, as their trace says.

| name | what |
|---|---|
| `StatedRuns` | the feature: holds jobs until they are eligible, and ends and repeats their runs |

Why
- A job is held for all its reasons together, and checked again when one of them may have gone: at a time, at
  the start or the end of a job that it waits for, when a task of its array has ended. So a job costs nothing
  while it is held.
- What follows at the same instant is an event of its own, behind that which caused it. A chain of jobs that
  never become eligible is worked off in a loop.
"""

from .stated_runs import StatedRuns

__all__ = ["StatedRuns"]
