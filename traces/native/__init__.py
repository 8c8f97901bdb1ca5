"""The native trace: its columns, its rows as jobs, and jobs on disk in order of submission.

| name | what |
|---|---|
| `read_trace` | a trace as a list of jobs, in the order of its rows |
| `store_trace` | the same, with the jobs on disk |
| `StoredJobs` | jobs on disk, in order of submission |
| `PackedJobs` | jobs in memory by column, in any order |
| `is_data_frame`, `jobs_of_frame` | whether a value is a data frame; the jobs of one |
| `write_trace` | jobs as CSV, gzip-compressed CSV or Parquet |
| `COLUMNS` | column name -> parser of its cells |
| `TEXTS` | columns that hold text |
| `contradictions` | values of one job that contradict each other |
| `unreadable` | why a trace with a given job could not be read again |
| `number`, `whole` | parsers of a finite number, of a whole number |
| `MIN_SECONDS`, `MAX_SECONDS` | resolution of tables, and the largest time |
| `MIN_ITERATIONS`, `MAX_COUNT` | the fewest and the most iterations of a job |

Why
- A trace is checked as a whole before a run, and then needed job by job in order of submission. Reading the
  file twice would do for a plain file in order. What has to be sorted, unpacked or comes through a pipe needs
  a second place anyway.
- So there is one way for all: one reading, checked, into a temporary file by external merge sort. The sort
  takes a seventh of the time of parsing, and no change of the file during a run can reach the run.
- Ids are proved unique by 64-bit hashes, and by the ids themselves wherever two hashes are equal.
"""

from .data_frame import is_data_frame, jobs_of_frame
from .packed_jobs import PackedJobs
from .parsing import TEXTS
from .schema import (
    COLUMNS,
    MAX_COUNT,
    MAX_SECONDS,
    MIN_ITERATIONS,
    MIN_SECONDS,
    contradictions,
    number,
    unreadable,
    whole,
)
from .sorted_jobs import StoredJobs
from .trace_file import read_trace, store_trace, write_trace

__all__ = [
    "COLUMNS",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MIN_ITERATIONS",
    "MIN_SECONDS",
    "TEXTS",
    "PackedJobs",
    "StoredJobs",
    "contradictions",
    "is_data_frame",
    "jobs_of_frame",
    "number",
    "read_trace",
    "store_trace",
    "unreadable",
    "whole",
    "write_trace",
]
