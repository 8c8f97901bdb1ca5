"""What starts, restarts, resizes and checkpoints cost a job.

| name | what |
|---|---|
| `Overheads` | the constants, and the seconds of a start, a restart, a save and a load; `Overheads.none()` |
| `Cycle` | a job's checkpoint cycle: seconds of work between saves, and seconds of a save |
| `SharedStorage` | loads in progress that share the storage's bandwidth max-min fairly |

Why
- Every first start is charged a launch; every restart, resize and migration a save, a launch and a load.
  The save of a preempted job is charged at its next start, so a preempting policy does not wait for it. The
  GPU-seconds are the same.
- Checkpoints are arithmetic, not events: how much work is done and saved after so many seconds follows in
  closed form (`Cycle`). A month with a checkpoint every ten minutes costs the engine nothing.
- Daly's interval is the default. An arbitrary fixed interval would make every failure rate look better or
  worse than it is at a site that tunes its interval. Without failures the formula never saves, so plain runs
  do not change.
"""

from .checkpoints import Cycle
from .overheads import Overheads
from .shared_storage import SharedStorage

__all__ = ["Cycle", "Overheads", "SharedStorage"]
