"""What Slurm says of its jobs, a module per command that prints it.

| name | what |
|---|---|
| `SLURM`, `COMMAND` | the accounting, as `sacct` prints it; the command that prints all that is read |
| `SLURM_JSON` | jobs as JSON: of `squeue`, `scontrol` and `sacct` |
| `SQUEUE`, `SCONTROL` | the live jobs: `squeue`, `scontrol show job` |
| `JOBCOMP` | the completion log of jobcomp/filetxt |
| `Tres` | reads lists of trackable resources |

A row of an export is a run of a job, or its wait (`rows`); `traces.logs.formats.runs` makes jobs of them, so
that all exports of one time give the same jobs, whatever the order of their rows.
"""

from .job_json import SLURM_JSON
from .jobcomp import JOBCOMP
from .sacct import COMMAND, SLURM
from .scontrol import SCONTROL
from .squeue import SQUEUE
from .tres import Tres

__all__ = ["COMMAND", "JOBCOMP", "SCONTROL", "SLURM", "SLURM_JSON", "SQUEUE", "Tres"]
