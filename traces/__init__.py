"""Job traces: the jobs submitted to a cluster, read from files, imported from logs, or generated.

| name | what |
|---|---|
| `Job` | one submitted job, frozen |
| `submission_order(jobs)` | the jobs in the order in which they count as submitted |
| `read_trace(path)`, `write_trace(jobs, path)` | the native CSV or Parquet trace |

The importers of logs, the rules that give jobs their models, the generator of synthetic traces and the
summary of a trace are in modules of their own.
"""

from traces.job import Job as Job
from traces.job import submission_order as submission_order
from traces.native import read_trace as read_trace
from traces.native import write_trace as write_trace

__all__ = ["Job", "read_trace", "submission_order", "write_trace"]
