"""What all pages share: one HTML file that loads nothing from elsewhere, its look, and its charts.

| name | what |
|---|---|
| `render` | a page from a template that extends `base.html.j2` |
| `TERMS` | terms of pages in a sentence each |
| `Page` | a page that a notebook shows and `save` writes |
| `Chart` | one chart as data, which `templates/charts.js` draws |
| `series_of` | one curve or set of points of a chart |
| `downsampled` | the places of at most `MOST_POINTS` of many points |
| `plotly_text` | text that plotly shows unchanged |
| `packed` | a document for a page's script: JSON, gzip in base64 |
| `look_of`, `looks_of` | the number of the colour, line and marker of a policy, the same on every page |
| `FIRST_DATE_S` | the first time of a clock that counts seconds since 1970 |
| `short` | numbers rounded to what a screen shows |
| `TIME_TICKS`, `RATIO_TICKS` | ticks of logarithmic axes of times and of ratios |
"""

from .chart import (
    FIRST_DATE_S,
    MOST_POINTS,
    RATIO_TICKS,
    TIME_TICKS,
    Chart,
    downsampled,
    plotly_text,
    series_of,
    short,
)
from .document import packed, render
from .looks import look_of, looks_of
from .shown_page import Page
from .terms import TERMS

__all__ = [
    "FIRST_DATE_S",
    "MOST_POINTS",
    "RATIO_TICKS",
    "TERMS",
    "TIME_TICKS",
    "Chart",
    "Page",
    "downsampled",
    "look_of",
    "looks_of",
    "packed",
    "plotly_text",
    "render",
    "series_of",
    "short",
]
