"""The report page of a backtest.

| name | what |
|---|---|
| `Compared` | what the page is about: the summary and the jobs, as the files of a backtest state them |
| `render_backtest` | the page, as HTML |
"""

from .compared import Compared
from .html import render_backtest

__all__ = ["Compared", "render_backtest"]
