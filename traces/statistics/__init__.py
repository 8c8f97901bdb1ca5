"""Traces and job logs in numbers, and how far two of them are apart.

| name | what |
|---|---|
| `JobColumns` | the jobs of a trace as columns of numbers |
| `read_columns` | those of a file: a native trace, or a log of any known format |
| `is_trace` | whether a file is a native trace |
| `describe` | sizes, run times, arrivals, owners, states, estimates and load of a trace |
| `distances`, `Distance` | how far two traces are apart, statistic by statistic |
"""

from .columns import JobColumns
from .comparison import Distance, distances
from .description import describe
from .reading import is_trace, read_columns

__all__ = ["Distance", "JobColumns", "describe", "distances", "is_trace", "read_columns"]
