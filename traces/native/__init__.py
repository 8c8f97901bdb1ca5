"""The native trace: its columns, its rows as jobs, and jobs in order of submission on disk.

| name | what |
|---|---|
| `TEXTS` |  |
| `COLUMNS` | Column name -> parser of its non-empty cells, in the order in which columns are written |
| `MAX_SECONDS` |  |
| `MIN_SECONDS` |  |
| `contradictions` | Yield (column, value, "what is wrong |
| `number` | Parse a finite number |
| `whole` | Parse a whole number, which may be written as 8.0 |
| `StoredJobs` | Jobs in order of submission (see `submission_order`) |
| `read_trace` | Read a native trace, in the order of its rows |
| `store_trace` | Like `read_trace`, but the jobs are kept on disk |
| `write_trace` | Write jobs as CSV, gzip-compressed CSV or Parquet, by the ending of `path` |

Why
- Ids are proved unique by 64-bit hashes, with the ids themselves wherever two hashes are equal.
"""

from .parsing import TEXTS
from .schema import COLUMNS, MAX_SECONDS, MIN_SECONDS, contradictions, number, whole
from .sorted_jobs import StoredJobs
from .trace_file import read_trace, store_trace, write_trace

__all__ = [
    "COLUMNS",
    "MAX_SECONDS",
    "MIN_SECONDS",
    "TEXTS",
    "StoredJobs",
    "contradictions",
    "number",
    "read_trace",
    "store_trace",
    "whole",
    "write_trace",
]
