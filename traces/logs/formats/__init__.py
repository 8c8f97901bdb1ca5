"""Readers of job logs, a module per origin; its docstring describes columns, units and quirks.

| name | what |
|---|---|
| `FORMATS` | name -> `LogFormat` of every format that is recognised |

A format that is a table names the column of each field (`traces.logs.tables`); others hand rows to `LogRows`.
"""

from .known import FORMATS

__all__ = ["FORMATS"]
