"""The page of a grid: effects with intervals, heat maps, lines over an axis, the best cells, and every run.
The figures of a grid for papers show the same document.

| name | what |
|---|---|
| `GridDocument` | what the page shows: cells with metrics, differences, baseline |
| `render_grid` | the page as HTML |
| `answer_of` | what the grid says, in a line |
| `load_notes`, `planner_notes`, `cell_notes` | sentences on loads, planners and cells that say little |
| `difference_rows` | heads and rows of the table of differences, as text |
| `FigureSpec`, `grid_figure`, `GRID_KINDS` | a figure of means over seeds, and its kinds |
| `runs_of_figure` | the cells of which a figure of recorded runs is drawn |
| `absent_cells` | how many cells of a figure have no value |
| `axis_number` | the number that a value of an axis is, if it is one |
| `RUN_PAGES`, `page_of_run` | where the pages of single runs are, beside the page of the grid |
"""

from .answer import answer_of
from .document import RUN_PAGES, GridDocument, axis_number, page_of_run
from .figures import GRID_KINDS, FigureSpec, absent_cells, grid_figure, runs_of_figure
from .html import render_grid
from .notes import cell_notes, load_notes, planner_notes
from .tables import difference_rows

__all__ = [
    "GRID_KINDS",
    "RUN_PAGES",
    "FigureSpec",
    "GridDocument",
    "absent_cells",
    "answer_of",
    "axis_number",
    "cell_notes",
    "difference_rows",
    "grid_figure",
    "load_notes",
    "page_of_run",
    "planner_notes",
    "render_grid",
    "runs_of_figure",
]
