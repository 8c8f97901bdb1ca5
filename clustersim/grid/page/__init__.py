"""The page of a grid: effects with intervals, heat maps, lines over an axis, the best cells, and every run.

| name | what |
|---|---|
| `GridDocument` | what the page shows: cells with metrics, differences, baseline |
| `render_grid` | the page as HTML |
| `load_notes`, `planner_notes`, `cell_notes` | sentences on loads, planners and cells that say little |
| `difference_rows` | heads and rows of the table of differences, as text |
| `axis_number` | the number that a value of an axis is, if it is one |
| `RUN_PAGES`, `page_of_run` | where the pages of single runs are, beside the page of the grid |
"""

from .document import RUN_PAGES, GridDocument, axis_number, page_of_run
from .html import render_grid
from .notes import cell_notes, load_notes, planner_notes
from .tables import difference_rows

__all__ = [
    "RUN_PAGES",
    "GridDocument",
    "axis_number",
    "cell_notes",
    "difference_rows",
    "load_notes",
    "page_of_run",
    "planner_notes",
    "render_grid",
]
