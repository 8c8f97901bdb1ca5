"""A run or a grid for other programs: figures for papers, traces for Perfetto.

| name | what |
|---|---|
| `KINDS` | What can be drawn of runs |
| `check_ending` | The format of a figure, by the end of its name |
| `figures` | matplotlib.pyplot in our style, without a screen |
| `save` | Write a figure whole or not at all, without dates |
| `write_timeline` | Write the trace as JSON, gzip-compressed if the name ends in .gz |
| `draw_sweep` | The curves, with their intervals as bars |
| `read_sweep` | The points in a grid's results.csv |
"""

from .figures import KINDS, check_ending, figures, save
from .perfetto import write_timeline
from .sweep import draw_sweep, read_sweep

__all__ = ["KINDS", "check_ending", "draw_sweep", "figures", "read_sweep", "save", "write_timeline"]
