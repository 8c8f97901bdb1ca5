"""What all pages share: one HTML file that loads nothing from elsewhere, its look, and its charts.

| name | what |
|---|---|
| `render` | a page from a template that extends `base.html.j2` |
| `TERMS` | terms of pages in a sentence each |
| `Page` | a page that a notebook shows and `save` writes |
| `Chart` | one chart as data, which `templates/charts.js` draws: an axis along x, and panels |
| `Axis`, `Panel`, `Series` | its parts: kinds of axes and of series are in `chart` |
| `chart_script`, `chart_style` | what draws charts, for a page that has a frame of its own |
| `downsampled` | the places of at most `MOST_POINTS` of many points |
| `packed` | a document for a page's script: JSON, gzip in base64 |
| `look_of`, `looks_of` | the number of the colour, line and marker of a policy, the same on every page |
| `FIRST_DATE_S` | the first time of a clock that counts seconds since 1970 |
| `short` | numbers rounded to what a screen shows |
| `TIME_TICKS`, `RATIO_TICKS` | ticks of logarithmic axes of times and of ratios |

Why
- Charts are SVG, drawn by three scripts of this package (36 KB) in the reader's browser: at the width of a
  phone or a screen, with values where the pointer or the keyboard points, in the colours of the theme. All
  pages share them; a page with a frame of its own takes `chart_script` and `chart_style`.
- A library would be larger than the rest of a page: plotly's script has 4.8 MB (1.9 packed) and its package
  64, bokeh's script 1.3. Small libraries of Python make pictures of one width, those of JavaScript have no
  package to depend on. Figures for papers are matplotlib's (extra: plots).
"""

from .chart import (
    FIRST_DATE_S,
    MOST_POINTS,
    RATIO_TICKS,
    TIME_TICKS,
    Axis,
    Chart,
    Panel,
    Series,
    downsampled,
    short,
)
from .document import chart_script, chart_style, packed, render
from .looks import look_of, looks_of
from .shown_page import Page
from .terms import TERMS

__all__ = [
    "FIRST_DATE_S",
    "MOST_POINTS",
    "RATIO_TICKS",
    "TERMS",
    "TIME_TICKS",
    "Axis",
    "Chart",
    "Page",
    "Panel",
    "Series",
    "chart_script",
    "chart_style",
    "downsampled",
    "look_of",
    "looks_of",
    "packed",
    "render",
    "short",
]
