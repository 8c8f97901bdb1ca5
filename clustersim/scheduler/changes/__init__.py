"""What has changed, and the running jobs as vectors: for policies that would otherwise ask every job.

| name | what |
|---|---|
| `JobChanges` | the jobs that changed since the last decision (`State.changed_jobs`) |
| `JobTable` | numbers of the running jobs as arrays (`State.table`) |

Neither exists until a policy asks for the first time; from then on a decision costs time for the jobs that
changed, and a column of the table a few operations of numpy.
"""

from .job_changes import JobChanges
from .job_table import JobTable

__all__ = ["JobChanges", "JobTable"]
