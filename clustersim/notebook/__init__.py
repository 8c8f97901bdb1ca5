"""The Python interface: simulate and compare, with results that a notebook can show.

| name | what |
|---|---|
| `run` | simulate a trace under one policy: a `ShownRun` |
| `compare` | several policies or settings on one trace: a `Comparison` |
| `ShownRun`, `Comparison` | runs with `to_pandas`, `plot`, `report`, and a table as their HTML |
| `Picture`, `Page` | a figure and a report page, which notebooks show and `save` writes |

Why
- `clustersim.runs` knows no report and no figure, since these lie above it. What a notebook needs is added
  here, and the runs of every other part stay what they are: a `ShownRun` is a `Run`.
"""

from clustersim.export import Picture

from .calls import compare, run
from .shown import Comparison, Page, ShownRun

__all__ = ["Comparison", "Page", "Picture", "ShownRun", "compare", "run"]
