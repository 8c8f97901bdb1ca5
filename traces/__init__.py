"""Job traces: the jobs submitted to a cluster.

| name | what |
|---|---|
| `Job` | one submitted job, frozen |
| `submission_order` | the jobs in the order in which they count as submitted |
| `read_trace`, `write_trace` | the native trace, as CSV or Parquet |

| package | what |
|---|---|
| `traces.native` | the native trace: columns, checks, and jobs sorted on disk |
| `traces.logs` | traces from job logs of other systems |
| `traces.synthetic` | generated traces |
| `traces.workload` | models and work for jobs of which only GPUs and run time are known |
| `traces.estimates` | the work that users state, wrong as it may be, and predictors of run times |
| `traces.statistics` | distributions of a trace or a log, and the distance of two |
| `traces.fitting` | presets of synthetic traces, fitted to a log |

`traces.summary` counts the jobs of a trace and what they ask for, `traces.editing` takes parts of traces, and
`traces.sidecars` names the files beside a trace.
"""

from traces.job import Job as Job
from traces.job import submission_order as submission_order
from traces.native import read_trace as read_trace
from traces.native import write_trace as write_trace

__all__ = ["Job", "read_trace", "submission_order", "write_trace"]
