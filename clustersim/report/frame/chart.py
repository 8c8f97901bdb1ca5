"""A chart as data, downsampled for a screen. `templates/charts.js` draws it.

A chart has an axis along x and one or more panels above each other, each with an axis along y and its series.
The script draws at the width of its place, and again when that changes. It tells the values where the pointer
or the keyboard points, zooms, and shows or hides curves.

| kind of series | draws |
|---|---|
| steps | a line that keeps each value until the next |
| area | the same, filled down to zero |
| line | straight lines through markers, with intervals |
| points | many small points, which may hide each other |
| dots | a marker for each name along x, beside those of the other series |
| bars | lengths from the left in the rows of names along y; series of a row stand behind each other |
| intervals | a marker with its interval in the row of its name |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

__all__ = [
    "FIRST_DATE_S",
    "MOST_POINTS",
    "RATIO_TICKS",
    "TIME_TICKS",
    "Axis",
    "Chart",
    "Panel",
    "Series",
    "downsampled",
    "short",
]

MOST_POINTS = 2000
FIRST_DATE_S = 1e9
"""Clocks of traces that begin later count seconds since 1970; those of logs begin at 0."""

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
TIME_TICKS = (
    (1.0, "1 s"), (_HOUR, "1 h"), (_DAY, "1 d"), (_MINUTE, "1 min"), (30 * _DAY, "30 d"),
    (365 * _DAY, "1 y"), (10.0, "10 s"), (10 * _MINUTE, "10 min"), (6 * _HOUR, "6 h"), (7 * _DAY, "1 wk"),
    (3 * _HOUR, "3 h"), (12 * _HOUR, "12 h"), (2 * _DAY, "2 d"), (30 * _MINUTE, "30 min"), (2 * _HOUR, "2 h"),
    (3 * _MINUTE, "3 min"), (3.0, "3 s"), (30.0, "30 s"), (90 * _DAY, "90 d"),
)  # fmt: skip
RATIO_TICKS = tuple(
    (ratio, f"{ratio:g}×")
    for ratio in (1, 0.1, 10, 0.01, 100, 1000, 0.001, 0.5, 2, 0.2, 5, 0.05, 20, 0.02, 50, 0.8, 1.2, 1.5)
)
"""The most important ticks stand first: where labels would touch, the later one is left out."""


@dataclass(frozen=True)
class _Document:
    def document(self) -> dict[str, Any]:
        """What the script needs, as JSON: the fields that are not as by default."""
        values = [(field, getattr(self, field.name)) for field in fields(self)]
        return {field.name: value for field, value in values if value != field.default}


@dataclass(frozen=True)
class Axis(_Document):
    """An axis. `kind`: linear, log, date (values are texts as `2026-03-01 12:00`) or names.

    `low`, `high`: its ends, else those of the data. `zero`: whether it shows 0. `ticks`: values with their
    texts, the most important first; else round numbers. `names`: in their order, along y from the top.
    `line`: a value at which a dotted line stands.
    """

    title: str = ""
    kind: str = "linear"
    low: float | None = None
    high: float | None = None
    zero: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    names: Sequence[str] | None = None
    line: float | None = None


@dataclass(frozen=True)
class Series(_Document):
    """One curve or set of points, in the look of a policy (see `looks`) or in `colour`, a property of CSS.

    `hover`: what a point says, with {x}, {y} and {text}; {y:2} has two decimals, {y:+1} one and a sign.
    `text`: of each point. `low`, `high`: the ends of the interval of each point, None where unknown.
    `faint`: in a pale colour. `quiet`: shown when a reader asks for it.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    kind: str = "steps"
    look: int | None = None
    colour: str = ""
    text: Sequence[str] | None = None
    hover: str = ""
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    faint: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Panel:
    """One of the plots of a chart, with its own axis along y."""

    y: Axis
    series: Sequence[Series]
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """One chart: the id of its element, title, caption, height, the axis along x, and its panels.

    `diagonal`: whether a dotted line stands where both axes have one value.
    """

    id: str
    title: str
    caption: str
    height_px: int
    x: Axis
    panels: Sequence[Panel]
    diagonal: bool = False

    @property
    def series(self) -> list[Series]:
        """The series of all panels."""
        return [series for panel in self.panels for series in panel.series]

    def document(self) -> Mapping[str, Any]:
        """The part that the page's script needs, as JSON."""
        panels = [
            {"title": panel.title, "y": panel.y.document(), "series": [s.document() for s in panel.series]}
            for panel in self.panels
        ]
        x = self.x.document()
        return {"id": self.id, "height": self.height_px, "x": x, "panels": panels, "diagonal": self.diagonal}


def downsampled(count: int, max_points: int = MOST_POINTS) -> np.ndarray:
    """At most `max_points` positions of `count`, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, max_points)).round().astype(int))


def short(values: np.ndarray) -> list[float]:
    """The values rounded to five digits, which is finer than a screen."""
    return [float(f"{value:.5g}") for value in values]
