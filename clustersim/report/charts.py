"""The charts of a report as data, downsampled for a screen. `templates/charts.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from clustersim.analysis import CATEGORIES, GpuTime
from clustersim.analysis.tables import finished, jobs_of, snapshots_of

from .fairness import SIZES, mean_known, size_numbers, slowdowns
from .frame import MOST_POINTS, RATIO_TICKS, TIME_TICKS, Chart, downsampled, plotly_text, series_of, short
from .numbers import duration
from .runs import Pair, PolicyRuns, measured
from .time_axis import TimeAxis

__all__ = ["charts"]

_ROW_PX, _MARGIN_PX, _BAR_PX, _THIN_BAR_PX, _LEAST_THIN = 92, 84, 44, 26, 12
_GAP_PX = 18
_FIRST_FEW = "The baseline and the policies with the shortest mean JCT"
_MOST_AT_FIRST = 8  # curves; more cannot be told apart


def charts(
    groups: Sequence[PolicyRuns],
    pairs: Sequence[Pair] = (),
    times: Sequence[GpuTime | None] = (),
    baseline: str = "",
    base: int = 0,
) -> dict[str, Chart]:
    """All charts that have data, by id. Of a policy with several seeds, the first run is drawn.

    `times`: the split of GPU time of the first run of each group; `base`: the place of the baseline's group.
    Of more than eight policies, curves of the baseline and the soonest are shown at first; the page's legend
    shows the others.
    """
    drawn = []
    groups_at_first = _at_first(groups, base)
    runs = [group.runs[0] for group in groups]
    tables = [jobs_of(run) for run in runs]
    if any(not np.isnan(jobs["jct_s"]).all() for jobs in tables):
        drawn.append(_completion(groups))
    if any(len(pair.ratio) for pair in pairs):
        drawn.append(_paired(pairs, baseline))
    if any(time is not None for time in times):
        drawn.append(_gpu_time(groups, times))
    if any(snapshots_of(run)["running"].any() for run in runs if run.snapshots):
        clock = TimeAxis.of(runs)
        drawn += [_allocation(groups_at_first, len(groups), clock), _queue(groups, clock)]
    if any((slowdowns(jobs) > 0).any() for jobs in tables):  # not for NaN
        drawn.append(_slowdown(groups))
    shown_looks = {group.look for group in groups_at_first}
    return {chart.id: _quieter(chart, shown_looks) for chart in drawn}


def _at_first(groups: Sequence[PolicyRuns], base: int) -> Sequence[PolicyRuns]:
    """At most eight groups in their order: that of the baseline, and those of the least mean JCT."""
    if len(groups) <= _MOST_AT_FIRST:
        return groups
    means = [measured(group.runs[0]).get("jct_mean_s") for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (i != base, inf if means[i] is None else means[i], i))
    return [groups[i] for i in sorted(order[:_MOST_AT_FIRST])]


def _quieter(chart: Chart, shown_looks: set[int]) -> Chart:
    """The chart, whose curves of other looks appear when the reader asks for them."""
    quiet = [
        chart_series
        for chart_series in chart.series
        if "series" in chart_series and chart_series["series"] not in shown_looks
    ]
    if not quiet:
        return chart
    series = [{**chart_series, "quiet": chart_series in quiet} for chart_series in chart.series]
    caption = f"{chart.caption} {_FIRST_FEW} are drawn at first; the names below show or hide any policy."
    return replace(chart, caption=caption, series=series)


def _completion(groups: Sequence[PolicyRuns]) -> Chart:
    """Cumulative distribution of JCT over all submitted jobs. A curve may end below 100 %."""
    series = []
    for group in groups:
        jobs = jobs_of(group.runs[0])
        jct = np.sort(jobs["jct_s"][~np.isnan(jobs["jct_s"])])
        rank = downsampled(len(jct), MOST_POINTS - 1)
        seconds = np.maximum(jct[rank], 1.0)  # the axis is logarithmic
        share = 100 * (rank + 1) / len(jobs)
        text = [duration(float(jct[i])) for i in rank]
        hover = "%{y:.1f} % within %{text}"
        x, y, text = _from_zero(short(seconds), short(share), text)
        series.append(series_of(group.look, group.label, x, y, text=text, hover=hover))
    layout = {
        "xaxis": {"type": "log", "title": {"text": "job completion time"}, **TIME_TICKS},
        "yaxis": {"title": {"text": "% of submitted jobs"}, "range": [0, 101]},
    }
    caption = (
        "Share of all submitted jobs that finished within a time. "
        "Where a curve ends below 100 %, the other jobs were rejected or left unfinished."
    )
    return Chart("chart-jct", "Job completion times", caption, 380, series, layout)


def _paired(pairs: Sequence[Pair], baseline: str) -> Chart:
    """Cumulative distribution of the ratio of JCT to the JCT of the same job under the baseline."""
    series = []
    for pair in pairs:
        rank = downsampled(len(pair.ratio), MOST_POINTS - 1)
        share = 100 * (rank + 1) / max(1, len(pair.ratio))
        text = [_times(float(pair.ratio[i])) for i in rank]
        ratio = np.clip(pair.ratio[rank], 1e-3, 1e3)
        hover = "%{y:.1f} % at most %{text}"
        x, y, text = _from_zero(short(ratio), short(share), text)
        series.append(series_of(pair.series, pair.label, x, y, text=text, hover=hover))
    layout = {
        "xaxis": {
            "type": "log", "title": {"text": f"JCT over JCT of the same job under {plotly_text(baseline)}"},
            **RATIO_TICKS,
        },
        "yaxis": {"title": {"text": "% of these jobs"}, "range": [0, 101]},
        "line_at": 1,
    }  # fmt: skip
    caption = (
        f"Job by job: left of the line at 1×, jobs complete sooner than under {baseline}; right of it, "
        "later. Over the jobs that finished under both."
    )
    return Chart("chart-pairs", "The same jobs, side by side", caption, 380, series, layout)


def _from_zero(x: list[float], y: list[float], text: list[str]) -> tuple[list[float], list[float], list[str]]:
    """The steps with a rise from 0 at the first one, without which a single job has no curve."""
    return ([x[0], *x], [0.0, *y], [text[0], *text]) if x else (x, y, text)


def _times(ratio: float) -> str:
    return f"{ratio:.3g}× the JCT"


def _gpu_time(groups: Sequence[PolicyRuns], times: Sequence[GpuTime | None]) -> Chart:
    """One bar per policy, all GPU-seconds from the first submission to the last finish."""
    labels = [plotly_text(group.label) for group in groups]
    series = []
    for category, name in CATEGORIES.items():
        shares = [0.0 if time is None else 100 * time.seconds[category] / time.total for time in times]
        if any(share >= 0.005 for share in shares):
            hours = ["" if time is None else f"{time.seconds[category] / 3600:,.0f} GPU-h" for time in times]
            bar = {
                "type": "bar",
                "category": category,
                "name": name,
                "x": short(np.array(shares)),
                "y": labels,
            }
            series.append({**bar, "text": hours})
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "% of all GPU-hours until the last finish"}, "range": [0, 100]},
        "yaxis": {"autorange": "reversed"},
    }
    caption = (
        "Each GPU-second from the first submission to the last finish of a policy counts once. Running time "
        "is split as itertime predicts for the slowest pipeline stage of each plan."
    )
    bar_px = _BAR_PX if len(groups) < _LEAST_THIN else _THIN_BAR_PX
    return Chart("chart-time", "Where GPU time went", caption, 80 + bar_px * len(groups), series, layout)


def _allocation(groups: Sequence[PolicyRuns], of: int, clock: TimeAxis) -> Chart:
    """One row of GPUs per policy, on a common time axis: GPUs that jobs hold, and useful GPUs among them.

    `groups`: those that are drawn, of a number of all.
    """
    count = len(groups)
    gap = _GAP_PX / (count * _ROW_PX)
    height = (1 - gap * (count - 1)) / count
    series: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"xaxis": clock.axis | {"anchor": f"y{count}"}, "annotations": []}
    for number, group in enumerate(groups):
        run, axis = group.runs[0], f"y{number + 1}"
        options: dict[str, Any] = {"yaxis": axis, "fill": "tozeroy"}
        held = clock.snapshots(run, "allocated")
        useful = clock.useful(run)
        series.append(series_of(group.look, "allocated", *held, faint=True, **options))
        series.append(series_of(group.look, "useful", *useful, **options))
        top = 1 - number * (height + gap)
        span = {"domain": [max(0.0, top - height), top], "range": [0, run.cluster.gpus * 1.02]}
        layout[f"yaxis{number + 1}"] = {**span, "nticks": 3}
        layout["annotations"].append({"text": plotly_text(group.label), "y": top})
    caption = (
        f"GPUs that jobs hold (pale) and GPUs that make progress (full colour), {clock.resolution}"
        "; the full height is the whole cluster."
    )
    if count < of:
        caption += f" {_FIRST_FEW} are drawn; the timeline has every policy."
    return Chart(
        "chart-gpus", "Allocated and useful GPUs", caption, _MARGIN_PX + count * _ROW_PX, series, layout
    )


def _queue(groups: Sequence[PolicyRuns], clock: TimeAxis) -> Chart:
    series = []
    for group in groups:
        x, y = clock.snapshots(group.runs[0], "pending")
        series.append(series_of(group.look, group.label, x, y))
    layout = {"xaxis": clock.axis, "yaxis": {"title": {"text": "jobs"}, "rangemode": "tozero"}}
    caption = f"Jobs in the system without GPUs, {clock.resolution}."
    return Chart("chart-queue", "Waiting jobs", caption, 320, series, layout)


def _slowdown(groups: Sequence[PolicyRuns]) -> Chart:
    """Mean slowdown by the GPUs that jobs ask for."""
    names = [name for _, name in SIZES]
    series: list[dict[str, Any]] = []
    for group in groups:
        jobs, ratios = jobs_of(group.runs[0]), slowdowns(jobs_of(group.runs[0]))
        sizes = np.where(finished(group.runs[0]), size_numbers(jobs), -1)
        members = [sizes == number for number in range(len(SIZES))]
        class_slowdowns = [
            (name, mean_known(ratios[class_members]), int(class_members.sum()))
            for name, class_members in zip(names, members, strict=True)
        ]
        points = [
            (name, f"{mean:.4g}", f"{jobs:,} jobs")
            for name, mean, jobs in class_slowdowns
            if mean is not None
        ]
        x, y, text = ([row[i] for row in points] for i in range(3))
        dots: dict[str, Any] = {
            "type": "dots",
            "series": group.look,
            "name": plotly_text(group.label),
            "x": x,
            "text": text,
            "hover": "%{y:.2f}×, %{text}",
        }
        series.append({**dots, "y": [float(mean) for mean in y]})
    class_names = [name for name in names if any(name in class_series["x"] for class_series in series)]
    layout = {
        "scattermode": "group",
        "xaxis": {
            "title": {"text": "GPUs asked for"},
            "type": "category",
            "categoryarray": class_names,
            "range": [-0.5, len(class_names) - 0.5],
        },
        "yaxis": {"title": {"text": "mean slowdown"}, "type": "log", **RATIO_TICKS},
        "line_at_y": 1,
    }
    caption = (
        "Completion time divided by the run time on the GPUs asked for, without waiting; mean over finished "
        "jobs. Below 1×, jobs got more GPUs than they asked for. Dots at one height mean equal treatment."
    )
    return Chart("chart-slowdown", "Slowdown by size", caption, 340, series, layout)
