"""The charts of a report, as data: series thinned here, drawn by `templates/report.js` with plotly."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .metrics import Usage
from .report_headline import duration
from .report_runs import Group, group_runs

if TYPE_CHECKING:
    from .rundir import Run

__all__ = ["MOST_POINTS", "Chart", "charts"]

MOST_POINTS = 2000
_BINS = 600
_TICKS_S = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_TICK_TEXT = ("1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "1 wk", "30 d", "1 y")
_ROW_PX, _MARGIN_PX = 84, 84


@dataclass(frozen=True)
class Chart:
    """One chart: its place in the page, what it shows in words, its series and its plotly layout.

    A series has `series` (the number of its policy, for the colour), `name`, `x`, `y`, optionally `text` per
    point, `yaxis` and `fill`. Names are escaped, since plotly renders some HTML.
    """

    id: str
    title: str
    caption: str
    height_px: int
    series: list[dict[str, Any]]
    layout: dict[str, Any]


def charts(runs: Sequence[Run]) -> list[Chart]:
    """All charts that `runs` have data for; of a policy with several seeds, the first run is drawn."""
    groups = group_runs(runs)
    drawn = []
    if any(job.jct_s is not None for group in groups for job in group.runs[0].jobs):
        drawn.append(_completion(groups))
    if any(group.runs[0].snapshots for group in groups):
        drawn += [_allocation(groups), _queue(groups)]
    return drawn


def _completion(groups: Sequence[Group]) -> Chart:
    """Cumulative distribution of JCT over all submitted jobs, so that what never finished is missing."""
    series = []
    for number, group in enumerate(groups):
        jobs = group.runs[0].jobs
        jct = np.sort([job.jct_s for job in jobs if job.jct_s is not None])
        rank = _thinned(len(jct))
        seconds = np.maximum(jct[rank], 1.0)  # the axis is logarithmic
        share = 100 * (rank + 1) / len(jobs)
        text = [duration(float(jct[i])) for i in rank]
        series.append(_series(number, group.label, _short(seconds), _short(share), text=text))
    ticks = {"tickvals": list(_TICKS_S), "ticktext": list(_TICK_TEXT)}
    layout = {
        "xaxis": {"type": "log", "title": {"text": "job completion time"}, **ticks},
        "yaxis": {"title": {"text": "% of submitted jobs"}, "range": [0, 101]},
    }
    caption = (
        "Share of all submitted jobs that finished within a time. "
        "Where a curve ends below 100 %, the other jobs were rejected or left unfinished."
    )
    return Chart("chart-jct", "Job completion times", caption, 380, series, layout)


def _allocation(groups: Sequence[Group]) -> Chart:
    """One row of allocated GPUs per policy, all on the same axes."""
    clock = _Clock.of(groups)
    gap, count = 0.06, len(groups)
    height = (1 - gap * (count - 1)) / count
    series: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"xaxis": clock.axis | {"anchor": f"y{count}"}, "annotations": []}
    for number, group in enumerate(groups):
        x, y = clock.steps(group.runs[0], "allocated")
        axis = f"y{number + 1}"
        series.append(_series(number, group.label, x, y, yaxis=axis, fill="tozeroy"))
        top = 1 - number * (height + gap)
        span = {"domain": [max(0.0, top - height), top], "range": [0, group.runs[0].cluster.gpus * 1.02]}
        layout[f"yaxis{number + 1}"] = {**span, "nticks": 3}
        layout["annotations"].append({"text": _plotly_text(group.label), "y": top, "series": number})
    caption = f"GPUs that jobs hold, {clock.resolution}; the full height is the whole cluster."
    return Chart("chart-gpus", "Allocated GPUs", caption, _MARGIN_PX + count * _ROW_PX, series, layout)


def _queue(groups: Sequence[Group]) -> Chart:
    clock = _Clock.of(groups)
    series = []
    for number, group in enumerate(groups):
        x, y = clock.steps(group.runs[0], "pending")
        series.append(_series(number, group.label, x, y))
    layout = {"xaxis": clock.axis, "yaxis": {"title": {"text": "jobs"}, "rangemode": "tozero"}}
    caption = f"Jobs in the system without GPUs, {clock.resolution}."
    return Chart("chart-queue", "Waiting jobs", caption, 320, series, layout)


@dataclass(frozen=True)
class _Clock:
    """The common time axis of all runs: from the first submission to the last thing that happened."""

    from_s: float
    to_s: float
    unit: str
    unit_s: float
    exact: bool

    @classmethod
    def of(cls, groups: Sequence[Group]) -> _Clock:
        runs = [group.runs[0] for group in groups]
        from_s = min((job.submit_s for run in runs for job in run.jobs), default=0.0)
        ends = [job.finish_s for run in runs for job in run.jobs if job.finish_s is not None]
        to_s = max([from_s, *ends, *(run.snapshots[-1].time_s for run in runs if run.snapshots)])
        unit, unit_s = next((u, s) for u, s in _UNITS if to_s - from_s >= 3 * s or s == 1.0)
        exact = all(len(run.snapshots) < MOST_POINTS for run in runs)
        return cls(from_s, to_s, unit, unit_s, exact)

    @property
    def axis(self) -> dict[str, Any]:
        return {"title": {"text": f"{self.unit} since the first submission"}}

    @property
    def resolution(self) -> str:
        bin_s = (self.to_s - self.from_s) / _BINS
        return "every change" if self.exact else f"averaged over spans of {duration(bin_s)}"

    def steps(self, run: Run, field: str) -> tuple[list[float], list[float]]:
        """(time, value from then on) of one field of the snapshots: every change, or averages over spans."""
        if not run.snapshots:
            return [], []
        values = np.array([getattr(snapshot, field) for snapshot in run.snapshots], dtype=float)
        if self.exact:
            times = np.array([snapshot.time_s for snapshot in run.snapshots])
        else:
            edges = np.linspace(self.from_s, self.to_s, _BINS + 1)
            values = Usage.of(run.snapshots, self.to_s).averages(values, edges[:-1], edges[1:])
            times = edges[:-1]
        times, values = np.append(times, self.to_s), np.append(values, values[-1])
        return _short((times - self.from_s) / self.unit_s), _short(values)


_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def _thinned(count: int) -> np.ndarray:
    """At most `MOST_POINTS` positions among `count`, the first and the last included."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))


def _series(number: int, label: str, x: list[float], y: list[float], **rest: Any) -> dict[str, Any]:
    return {"series": number, "name": _plotly_text(label), "x": x, "y": y, **rest}


def _plotly_text(text: str) -> str:
    """Text that plotly shows as it is: it takes some HTML in labels, but knows no &quot;."""
    return html.escape(text, quote=False)


def _short(values: np.ndarray) -> list[float]:
    """Five digits are more than a screen shows."""
    return [float(f"{value:.5g}") for value in values]
