"""A job inside the system: its progress, its GPUs and its costs.

| name | what |
|---|---|
| `ActiveJob` | a job and its work left, in iterations or in seconds of logged duration |
| `LEAST_LEFT` | the share of its stated work that a job states to be left until it is done |
| `CheckpointedJob` | a job that also saves checkpoints, loses unsaved work in failures, or fails on its own |
| `PhasedJob` | a job whose speed changes with its progress |

Why
- Progress is a straight line between two changes of speed. It is integrated when the line ends, or looked
  up without being stored: a policy that looks often does not change a digit.
- A job that fails, saves or shares the storage is another class (`CheckpointedJob`). A plain run does not
  have it and pays nothing for it. The same holds for jobs in phases (`PhasedJob`).
- A job in phases has the curve of its present phase. So policies, network and overheads need no notion of
  phases. The end of a phase is an event like the end of a job, since speeds change then.
"""

from .active import LEAST_LEFT, ActiveJob
from .checkpointed import CheckpointedJob
from .phased import PhasedJob

__all__ = ["LEAST_LEFT", "ActiveJob", "CheckpointedJob", "PhasedJob"]
