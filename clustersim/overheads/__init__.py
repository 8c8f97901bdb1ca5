"""What starts, restarts, resizes and checkpoints cost a job.

| name | what |
|---|---|
| `Cycle` | Work for `interval_s`, then save for `save_s`, repeatedly |
| `Overheads` | Constants of the table above |
| `SharedStorage` | Loads in progress, by a key of the caller's choice |

Why
- Every first start is charged a launch; every restart, resize and migration a save, a launch and a load.
  The save of a preempted job is charged at its next start, so a preempting policy does not wait for it.
- Checkpoints are arithmetic, not events: how much work is done and saved after so many seconds follows in
  closed form (`Cycle`). A month with a checkpoint every ten minutes costs the engine nothing.
- Daly's interval is the default. An arbitrary fixed interval would misstate every failure rate. Without
  failures the formula never saves, so plain runs do not change.
"""

from .checkpoints import Cycle
from .overheads import Overheads
from .shared_storage import SharedStorage

__all__ = ["Cycle", "Overheads", "SharedStorage"]
