"""The charts of a report as data, downsampled for a screen. `templates/charts.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from clustersim.analysis import CATEGORIES, GpuTime
from clustersim.analysis.tables import finished, jobs_of, snapshots_of

from .fairness import SIZES, mean_known, size_numbers, slowdowns
from .frame import (
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
from .numbers import duration, listed, time_unit
from .runs import Pair, PolicyRuns, finishing, mean_of, measured
from .time_axis import TimeAxis

__all__ = ["charts"]

_ROW_PX, _MARGIN_PX, _BAR_PX, _THIN_BAR_PX, _LEAST_THIN = 92, 84, 44, 26, 12
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
        drawn += [_means(groups), _completion(groups)]
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
    quiet_looks = {series.look for series in chart.series} - shown_looks - {None}
    if not quiet_looks:
        return chart
    panels = [
        replace(panel, series=[replace(curve, quiet=curve.look in quiet_looks) for curve in panel.series])
        for panel in chart.panels
    ]
    caption = f"{chart.caption} {_FIRST_FEW} are drawn at first; the names show or hide any policy."
    return replace(chart, caption=caption, panels=panels)


def _means(groups: Sequence[PolicyRuns]) -> Chart:
    """A bar for each policy: its mean JCT over its runs, split into the time with GPUs and the wait."""
    labels = [group.label for group in groups]
    jct_s, wait_s = (
        np.array([mean_of(group, metric) for group in groups]) for metric in ("jct_mean_s", "wait_mean_s")
    )
    unit, factor = time_unit(float(jct_s.max()))
    series = [
        Series(name, short(seconds / factor), labels, "bars", colour=f"--t-{colour}", text=texts)
        for name, colour, seconds, texts in (
            ("with GPUs", "running", jct_s - wait_s, [duration(s) for s in jct_s - wait_s]),
            ("waiting", "waiting", wait_s, [duration(s) for s in wait_s]),
        )
    ]
    series = [replace(bars, hover="{text} " + bars.name) for bars in series]
    bar_px = _BAR_PX if len(groups) < _LEAST_THIN else _THIN_BAR_PX
    panel = Panel(Axis(kind="names", names=labels), series)
    caption = "Mean over the finished jobs of each policy, from submission to finish."
    caption += _declining(groups)
    x_axis = Axis(f"mean job completion time, {unit}", low=0, high=1.02 * float(jct_s.max()) / factor)
    return Chart("chart-means", "Mean completion time", caption, 60 + bar_px * len(groups), x_axis, [panel])


def _declining(groups: Sequence[PolicyRuns]) -> str:
    """The policies under which far fewer jobs finish, as a sentence; empty for runs of other jobs."""
    jobs, able = {mean_of(group, "jobs") for group in groups}, finishing(groups)
    fewer = [f"{group.label} {mean_of(group, 'finished'):,.0f}" for group in groups if group not in able]
    if not fewer or len(jobs) > 1:
        return ""
    return f" Far fewer jobs finish under some: {listed(fewer)} of {jobs.pop():,.0f}."


def _completion(groups: Sequence[PolicyRuns]) -> Chart:
    """Cumulative distribution of JCT over all submitted jobs. A curve may end below 100 %."""
    series = []
    for group in groups:
        jobs = jobs_of(group.runs[0])
        jct = np.sort(jobs["jct_s"][~np.isnan(jobs["jct_s"])])
        rank = downsampled(len(jct), MOST_POINTS - 1)
        seconds = np.maximum(jct[rank], 1.0)  # the axis is logarithmic
        text = [duration(float(jct[i])) for i in rank]
        x, y = short(seconds), short(100 * (rank + 1) / len(jobs))
        curve = Series(group.label, x, y, look=group.look, text=text, hover="{y:1} % within {text}")
        series.append(_from_zero(curve))
    caption = (
        "Share of all submitted jobs that finished within a time. "
        "Where a curve ends below 100 %, the other jobs were rejected or left unfinished."
    )
    axis = Axis("job completion time", "log", ticks=TIME_TICKS)
    panel = Panel(Axis("% of submitted jobs", low=0, high=101), series)
    return Chart("chart-jct", "Job completion times", caption, 360, axis, [panel])


def _paired(pairs: Sequence[Pair], baseline: str) -> Chart:
    """Cumulative distribution of the ratio of JCT to the JCT of the same job under the baseline."""
    series = []
    for pair in pairs:
        rank = downsampled(len(pair.ratio), MOST_POINTS - 1)
        share = 100 * (rank + 1) / max(1, len(pair.ratio))
        text = [_times(float(pair.ratio[i])) for i in rank]
        x, y = short(np.clip(pair.ratio[rank], 1e-3, 1e3)), short(share)
        curve = Series(pair.label, x, y, look=pair.series, text=text, hover="{y:1} % at most {text}")
        series.append(_from_zero(curve))
    caption = (
        f"Job by job: left of the line at 1×, jobs complete sooner than under {baseline}; right of it, "
        "later. Over the jobs that finished under both."
    )
    axis = Axis(f"JCT over JCT of the same job under {baseline}", "log", ticks=RATIO_TICKS, line=1)
    panel = Panel(Axis("% of these jobs", low=0, high=101), series)
    return Chart("chart-pairs", "The same jobs, side by side", caption, 360, axis, [panel])


def _from_zero(curve: Series) -> Series:
    """The steps with a rise from 0 at the first one, without which a single job has no curve."""
    if not curve.x:
        return curve
    text = curve.text or [""]
    return replace(curve, x=[curve.x[0], *curve.x], y=[0.0, *curve.y], text=[text[0], *text])


def _times(ratio: float) -> str:
    return f"{ratio:.3g}× the JCT"


def _gpu_time(groups: Sequence[PolicyRuns], times: Sequence[GpuTime | None]) -> Chart:
    """One bar per policy, all GPU-seconds from the first submission to the last finish."""
    labels = [group.label for group in groups]
    series = []
    for category, name in CATEGORIES.items():
        shares = [0.0 if time is None else 100 * time.seconds[category] / time.total for time in times]
        if any(share >= 0.005 for share in shares):
            hours = ["" if time is None else f"{time.seconds[category] / 3600:,.0f} GPU-h" for time in times]
            lengths = short(np.array(shares))
            bars = Series(name, lengths, labels, "bars", colour=f"--t-{category}", text=hours)
            series.append(replace(bars, hover="{x:1} %, {text}"))
    caption = (
        "Each GPU-second from the first submission to the last finish of a policy counts once. Running time "
        "is split as itertime predicts for the slowest pipeline stage of each plan."
    )
    bar_px = _BAR_PX if len(groups) < _LEAST_THIN else _THIN_BAR_PX
    x = Axis("% of all GPU-hours until the last finish", low=0, high=100)
    panel = Panel(Axis(kind="names", names=labels), series)
    return Chart("chart-time", "Where GPU time went", caption, 60 + bar_px * len(groups), x, [panel])


def _allocation(groups: Sequence[PolicyRuns], of: int, clock: TimeAxis) -> Chart:
    """One row of GPUs per policy, on a common time axis: GPUs that jobs hold, and useful GPUs among them.

    `groups`: those that are drawn, of a number of all.
    """
    panels = []
    for group in groups:
        run = group.runs[0]
        held = Series("allocated", *clock.snapshots(run, "allocated"), "area", group.look, faint=True)
        useful = Series("useful", *clock.useful(run), "area", group.look)
        panels.append(Panel(Axis(low=0, high=run.cluster.gpus * 1.02), [held, useful], group.label))
    caption = (
        f"GPUs that jobs hold (pale) and GPUs that make progress (full colour), {clock.resolution}"
        "; the full height is the whole cluster."
    )
    if len(groups) < of:
        caption += f" {_FIRST_FEW} are drawn; the timeline has every policy."
    height = _MARGIN_PX + len(groups) * _ROW_PX
    return Chart("chart-gpus", "Allocated and useful GPUs", caption, height, clock.axis, panels)


def _queue(groups: Sequence[PolicyRuns], clock: TimeAxis) -> Chart:
    series = [
        Series(group.label, *clock.snapshots(group.runs[0], "pending"), look=group.look) for group in groups
    ]
    caption = f"Jobs in the system without GPUs, {clock.resolution}."
    panel = Panel(Axis("jobs", zero=True), series)
    return Chart("chart-queue", "Waiting jobs", caption, 300, clock.axis, [panel])


def _slowdown(groups: Sequence[PolicyRuns]) -> Chart:
    """Mean slowdown by the GPUs that jobs ask for."""
    names = [name for _, name in SIZES]
    series = []
    for group in groups:
        jobs, ratios = jobs_of(group.runs[0]), slowdowns(jobs_of(group.runs[0]))
        sizes = np.where(finished(group.runs[0]), size_numbers(jobs), -1)
        members = [sizes == number for number in range(len(SIZES))]
        points = [
            (name, float(f"{mean:.4g}"), f"{int(class_members.sum()):,} jobs")
            for name, class_members in zip(names, members, strict=True)
            if (mean := mean_known(ratios[class_members])) is not None
        ]
        x, y = [name for name, _, _ in points], [mean for _, mean, _ in points]
        text = [jobs_text for _, _, jobs_text in points]
        series.append(Series(group.label, x, y, "dots", group.look, text=text, hover="{y:2}×, {text}"))
    class_names = [name for name in names if any(name in class_series.x for class_series in series)]
    caption = (
        "Completion time divided by the run time on the GPUs asked for, without waiting; mean over finished "
        "jobs. Below 1×, jobs got more GPUs than they asked for. Dots at one height mean equal treatment."
    )
    x_axis = Axis("GPUs asked for", "names", names=class_names)
    panel = Panel(Axis("mean slowdown", "log", ticks=RATIO_TICKS, line=1), series)
    return Chart("chart-slowdown", "Slowdown by size", caption, 320, x_axis, [panel])
