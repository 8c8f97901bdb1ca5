"""Runs and grids for other programs: figures for papers, traces for Perfetto.

| name | what |
|---|---|
| `figures` | a context with matplotlib's pyplot in the style of the project, without a screen |
| `KINDS` | the figures that can be drawn of runs, by name: a function each |
| `picture`, `drawn`, `Picture` | a figure that a notebook shows, of runs by its name or drawn by a function |
| `line_style`, `marker_of` | colour, dashes and marker of a look, as on the pages |
| `check_ending` | the format of a figure, from the ending of its file name |
| `save` | write a figure: equal figures give equal bytes |
| `write_timeline` | write a run as JSON for ui.perfetto.dev or chrome://tracing |
"""

from itertime.io.figures import check_ending, figures, save

from .perfetto import write_timeline
from .picture import Picture, drawn, picture
from .run_figures import KINDS, line_style, marker_of

__all__ = [
    "KINDS",
    "Picture",
    "check_ending",
    "drawn",
    "figures",
    "line_style",
    "marker_of",
    "picture",
    "save",
    "write_timeline",
]
