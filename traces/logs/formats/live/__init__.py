"""What schedulers and live clusters say of their jobs, a module per command that prints it.

| name | what |
|---|---|
| `SLURM` | Slurm's accounting, as `sacct` prints it |
| `SLURM_JSON`, `SQUEUE`, `SCONTROL` | Slurm's live jobs: `squeue --json`, `squeue`, `scontrol show job` |
| `KUEUE` | Kueue's workloads |
| `PODS` | pods of Kubernetes |
| `VOLCANO` | Volcano's jobs and pod groups |

Live jobs have not ended: `LoggedJob.duration_s` is None, `state` and `reason` say how they stand.
"""

from .kueue import KUEUE
from .pods import PODS
from .sacct import SLURM
from .scontrol import SCONTROL
from .slurm_json import SLURM_JSON
from .squeue import SQUEUE
from .volcano import VOLCANO

__all__ = ["KUEUE", "PODS", "SCONTROL", "SLURM", "SLURM_JSON", "SQUEUE", "VOLCANO"]
