"""What schedulers of Kubernetes say of their jobs, a module per kind of objects.

| name | what |
|---|---|
| `KUEUE` | Kueue's workloads |
| `PODS` | pods of Kubernetes |
| `VOLCANO` | Volcano's jobs and pod groups |

Live jobs have not ended: `LoggedJob.duration_s` is None, `state` and `reason` say how they stand.
"""

from .kueue import KUEUE
from .pods import PODS
from .volcano import VOLCANO

__all__ = ["KUEUE", "PODS", "VOLCANO"]
