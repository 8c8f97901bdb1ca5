"""A chart as data, downsampled for a screen. `templates/charts.js` draws it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "FIRST_DATE_S",
    "MOST_POINTS",
    "RATIO_TICKS",
    "TIME_TICKS",
    "Chart",
    "downsampled",
    "plotly_text",
    "series_of",
    "short",
]

MOST_POINTS = 2000
FIRST_DATE_S = 1e9
"""Clocks of traces that begin later count seconds since 1970; those of logs begin at 0."""
_TICKS_S = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_TICK_TEXT = ("1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "1 wk", "30 d", "1 y")
TIME_TICKS = {"tickvals": list(_TICKS_S), "ticktext": list(_TICK_TEXT)}
_RATIOS = (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
RATIO_TICKS = {"tickvals": list(_RATIOS), "ticktext": [f"{ratio:g}×" for ratio in _RATIOS]}


@dataclass(frozen=True)
class Chart:
    """One chart: the id of its element, title and caption, series and plotly layout.

    A series has `name`, `x` and `y`; its colour comes from `series` (the look of its policy) or `category`
    (of `CATEGORIES`). Optional are `type`, `text` per point, `hover`, `yaxis`, `fill` and `faint`. Names are
    escaped, because plotly renders some HTML.
    """

    id: str
    title: str
    caption: str
    height_px: int
    series: list[dict[str, Any]]
    layout: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """The part that the page's script needs, as JSON."""
        return {"id": self.id, "series": self.series, "layout": self.layout}


def downsampled(count: int, max_points: int = MOST_POINTS) -> np.ndarray:
    """At most `max_points` positions of `count`, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, max_points)).round().astype(int))


def series_of(number: int, label: str, x: list[Any], y: list[Any], **options: Any) -> dict[str, Any]:
    """A series in a look (see `looks`)."""
    return {"series": number, "name": plotly_text(label), "x": x, "y": y, **options}


def plotly_text(text: str) -> str:
    """Text that plotly shows unchanged: plotly renders some HTML in labels, but not &quot;."""
    return html.escape(text, quote=False)


def short(values: np.ndarray) -> list[float]:
    """The values rounded to five digits, which is finer than a screen."""
    return [float(f"{value:.5g}") for value in values]
