"""Jobs that a policy runs on the same GPUs.

| module          | names                                               | for                                |
|-----------------|-----------------------------------------------------|------------------------------------|
| `groups`        | `Group`, `Wanted`, `groups_of`, `start_group`,      | groups in a draft, and new ones    |
|                 | `run_groups`                                        |                                    |
| `migration`     | `with_room`                                         | groups that leave a node           |
| `trials`        | `Trials`                                            | pairs that are measured (Gandiva)  |
| `space_sharing` | `SpaceSharing`                                      | Gavel's policies with packing      |

Why
- A job that other jobs may join starts on part of its GPUs (`start_shared`), so the job pays nothing when
  another one joins. It is charged for that part alone.
- A group that goes on keeps its GPUs. If a group changes, one of its jobs stays and the others join, so as
  few jobs as possible restart.
"""

from .groups import Group, Wanted, groups_of, run_groups, start_group
from .migration import with_room
from .space_sharing import SpaceSharing
from .trials import Trials

__all__ = [
    "Group",
    "SpaceSharing",
    "Trials",
    "Wanted",
    "groups_of",
    "run_groups",
    "start_group",
    "with_room",
]
