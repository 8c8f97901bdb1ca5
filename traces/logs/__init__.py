"""Job logs of other systems as native traces, with every assumption reported.

| name | what |
|---|---|
| `import_log` | the jobs of a log in order of submission, and a report of assumptions and dropped rows |
| `Selection` | the part of a log that becomes jobs, and the scale of its clock |
| `read_throughputs` | speeds from ElasticFlow's folder of tables |
| `write_throughputs` | these speeds as a throughput table of `clustersim` |

Formats: Microsoft's ITP logs, ElasticFlow's traces, Slurm's `sacct`, and any table whose columns are named.
"""

from .elasticflow import read_throughputs, write_throughputs
from .importer import Selection, import_log

__all__ = ["Selection", "import_log", "read_throughputs", "write_throughputs"]
