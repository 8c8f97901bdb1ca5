"""A job inside the system, with its progress and its costs.

| name | what |
|---|---|
| `ActiveJob` | One submitted job and its progress, which is integrated only when its speed changes |
| `CheckpointedJob` | An active job that goes through the cycles of `cycle` while it runs |

Why
- Progress is a straight line between two changes of speed. It is integrated when the line ends, or looked
  up without being stored: a policy that looks often does not change a digit.
- A job that fails, saves or shares the storage is another class (`CheckpointedJob`). A plain run does not
  have it and pays nothing for it.
"""

from .active import ActiveJob
from .checkpointed import CheckpointedJob

__all__ = ["ActiveJob", "CheckpointedJob"]
