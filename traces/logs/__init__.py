"""Job logs of other systems as native traces, with every assumption reported.

| name | what |
|---|---|
| `import_log` | the jobs of a log in order of submission, and a report of assumptions and dropped rows |
| `ReadOptions` | what the user says about a log: format, columns, unit of times, tenants |
| `Selection` | the part of a log that becomes jobs, and the scale of its clock |
| `read_throughputs` | speeds from ElasticFlow's folder of tables |
| `read_speeds` | speeds from such a folder, or from a log whose jobs state them |
| `write_throughputs` | these speeds as a throughput table of `clustersim` |
| `open_log`, `read`, `convert` | the same in steps: the file, its rows as a `Log`, jobs with a report |
| `LoggedJob`, `OnNode` | a row of a log, with what the native trace does not hold; where it ran |
| `FORMATS` | name -> `LogFormat` of every format; other logs are read by the columns that the user names |

`traces.logs.formats` holds a module per format.

Why
- A reader says which column states which field; one loop (`tables`) reads the rows of all of them, and one
  class (`LogRows`) decides which row is a job. So all formats drop, count and report alike.
- The unit of times is part of reading (`units`): no format and no option reads a number without one.
"""

from .formats import FORMATS
from .importer import Selection, convert, import_log, read, read_speeds
from .log import Log, LoggedJob, OnNode, ReadOptions
from .source import open_log
from .throughputs import read_throughputs, write_throughputs

__all__ = [
    "FORMATS",
    "Log",
    "LoggedJob",
    "OnNode",
    "ReadOptions",
    "Selection",
    "convert",
    "import_log",
    "open_log",
    "read",
    "read_speeds",
    "read_throughputs",
    "write_throughputs",
]
