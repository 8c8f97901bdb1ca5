"""The charts of a backtest: logged beside simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clustersim.backtest.logged import Floats, Rows
from clustersim.backtest.use import in_use
from clustersim.report import TimeAxis
from clustersim.report.frame import TIME_TICKS, Axis, Chart, Panel, Series, downsampled, short
from clustersim.report.numbers import duration

from .compared import Compared

__all__ = ["charts_of"]

SIDES = ("logged", "simulated")
_LEAST_S = 1.0  # on logarithmic axes
_CAPACITY = 6  # the number of its colour, grey
_MOST_DOTS, _LONGEST_NAME = 24, 16
_SPANS = 60
_ERRORS = (
    ("more than a day sooner", -86400.0), ("1 h to 1 d sooner", -3600.0), ("10 min to 1 h sooner", -600.0),
    ("1 to 10 min sooner", -60.0), ("within a minute", 60.0), ("1 to 10 min later", 600.0),
    ("10 min to 1 h later", 3600.0), ("1 h to 1 d later", 86400.0), ("more than a day later", np.inf),
)  # fmt: skip
"""Classes of errors, each with its upper end in seconds."""
KINDS = {
    "size": "GPUs asked for", "hour": "hour of submission", "user": "user", "tenant": "tenant",
    "pool": "pool", "partition": "partition", "qos": "QOS", "gpu_type": "GPU type",
}  # fmt: skip
"""Kinds of groups in the order of the page, with what their axis says."""


def charts_of(comparison: Compared) -> dict[str, Chart]:
    """All charts that have data, by id."""
    drawn = []
    if len(comparison.rows):
        drawn += [
            _distribution(comparison, "wait"),
            _distribution(comparison, "jct"),
            _scatter(comparison),
            _errors(comparison),
        ]
        drawn.append(_over_time(comparison))
    drawn += [_use(comparison), _queue(comparison)]
    groups = comparison.summary["groups"]
    drawn += [_group(kind, groups[kind]) for kind in KINDS if kind in groups]
    return {chart.id: chart for chart in drawn}


def _distribution(comparison: Compared, metric: str) -> Chart:
    """Cumulative distributions of waits or completion times on both sides."""
    series = []
    for number, times in enumerate(comparison.waits if metric == "wait" else comparison.jcts):
        sorted_times = np.sort(times[~np.isnan(times)])
        rank = downsampled(len(sorted_times))
        text = [duration(float(sorted_times[i])) for i in rank]
        x, y = (
            short(np.maximum(sorted_times[rank], _LEAST_S)),
            short(100 * (rank + 1) / max(1, len(sorted_times))),
        )
        hover = "{y:1} % within {text}"
        series.append(Series(SIDES[number], x, y, look=number, text=text, hover=hover))
    title, name = ("Waits", "wait") if metric == "wait" else ("Completion times", "completion time")
    caption = f"Share of the jobs with a {name} of at most so much; times below a second are drawn at one."
    panel = Panel(Axis("% of the jobs", low=0, high=101), series)
    return Chart(f"chart-{metric}", title, caption, 340, Axis(name, "log", ticks=TIME_TICKS), [panel])


def _scatter(comparison: Compared) -> Chart:
    """A point per job: its logged and its simulated wait."""
    logged, simulated = comparison.waits
    drawn_rows = downsampled(len(logged))
    rows = comparison.rows[drawn_rows]
    text = [
        f"{comparison.texts['job_id'][i][:60]}: {comparison.gpus[i]:,} GPUs, "
        f"{duration(float(a))} logged, {duration(float(b))} simulated"
        for i, a, b in zip(rows.tolist(), logged[drawn_rows], simulated[drawn_rows], strict=True)
    ]
    x, y = (short(np.maximum(waits[drawn_rows], _LEAST_S)) for waits in (logged, simulated))
    points = Series("job", x, y, "points", 1, text=text, hover="{text}")
    note = (
        "" if len(drawn_rows) == len(logged) else f" {len(drawn_rows):,} of {len(logged):,} jobs are drawn."
    )
    caption = (
        f"A point is a job; on the dotted line, both waits are the same. Above it, it waits too long.{note}"
    )
    axis = Axis("logged wait", "log", ticks=TIME_TICKS)
    panel = Panel(replace(axis, title="simulated wait"), [points])
    return Chart("chart-jobs", "Job by job", caption, 420, axis, [panel], diagonal=True)


def _errors(comparison: Compared) -> Chart:
    """The share of jobs by class of error."""
    logged, simulated = comparison.waits
    ends = np.array([end for _, end in _ERRORS[:-1]])
    counts = np.bincount(np.searchsorted(ends, simulated - logged), minlength=len(_ERRORS))
    shares = 100 * counts / len(logged)
    names = [name for name, _ in reversed(_ERRORS)]
    text = [f"{count:,} jobs" for count in reversed(counts.tolist())]
    bars = Series("jobs", short(shares)[::-1], names, "bars", 1, text=text, hover="{x:1} %, {text}")
    caption = "How much sooner or later than logged a job starts in the simulation."
    panel = Panel(Axis(kind="names", names=names), [bars])
    return Chart("chart-errors", "Errors", caption, 420, Axis("% of the jobs", zero=True), [panel])


def _over_time(comparison: Compared) -> Chart:
    """The mean wait of the jobs submitted in each span."""
    submit_s = comparison.times["submit_s"][comparison.rows]
    clock = TimeAxis.over(0.0, float(submit_s[-1]), 0)
    spans = min(_SPANS, max(1, len(submit_s) // 4))
    edges = np.linspace(submit_s[0], submit_s[-1], spans + 1)
    place = np.clip(np.searchsorted(edges, submit_s, side="right") - 1, 0, spans - 1)
    count = np.bincount(place, minlength=spans)
    has_jobs = count > 0
    x = short((edges[:-1][has_jobs] - clock.from_s) / clock.unit_s)
    series = []
    for number, waits in enumerate(comparison.waits):
        means = np.bincount(place, waits, minlength=spans)[has_jobs] / count[has_jobs]
        text = [
            f"{duration(float(mean))}, {jobs:,} jobs"
            for mean, jobs in zip(means, count[has_jobs], strict=True)
        ]
        y = short(means / 3600)
        moments = _moments(comparison, clock, x)
        series.append(Series(SIDES[number], moments, y, look=number, text=text, hover="{text}"))
    length = duration(float(submit_s[-1] - submit_s[0]) / spans)
    caption = f"Mean wait of the jobs submitted in spans of {length}: where the simulation errs, and when."
    panel, axis = Panel(Axis("mean wait, h", zero=True), series), _time_axis(comparison, clock)
    return Chart("chart-over-time", "Waits by time of submission", caption, 320, axis, [panel])


def _held(comparison: Compared) -> list[tuple[Floats, Floats, Rows]]:
    """Start, run time and GPUs of the jobs on both sides; a simulated start-up holds GPUs, too."""
    start_up_s = float(comparison.summary["site"]["start_up_s"])
    run_s, logged_s = comparison.times["run_s"], comparison.times["logged_start_s"]
    simulated_s = np.where(np.isnan(logged_s), np.nan, comparison.times["simulated_start_s"])
    return [
        (logged_s, run_s, comparison.gpus),
        (simulated_s - start_up_s, run_s + start_up_s, comparison.gpus),
    ]


def _use(comparison: Compared) -> Chart:
    """GPUs in use on both sides, and the capacity of the simulation."""
    curves = [in_use(*held) for held in _held(comparison)]
    clock = _clock(comparison, curves)
    series = []
    for number, (moments, gpus_in_use) in enumerate(curves):
        x, y = clock.steps(np.append(0.0, moments), np.append(0.0, gpus_in_use))
        series.append(Series(SIDES[number], _moments(comparison, clock, x), y, look=number))
    moments, capacity = _capacity(comparison)
    x, y = clock.steps(moments, capacity)
    series.append(Series("capacity", _moments(comparison, clock, x), y, look=_CAPACITY))
    caption = f"GPUs that jobs hold, {clock.resolution}, and the capacity that the simulation had."
    panel, axis = Panel(Axis("GPUs", zero=True), series), _time_axis(comparison, clock)
    return Chart("chart-use", "GPUs in use", caption, 340, axis, [panel])


def _queue(comparison: Compared) -> Chart:
    """Jobs that wait on both sides."""
    submit_s = comparison.times["submit_s"]
    ones = np.ones(len(submit_s), dtype=np.int64)
    has_start = ~np.isnan(comparison.times["logged_start_s"])
    curves = []
    for side in SIDES:
        waits_s = comparison.times[f"{side}_start_s"] - submit_s
        curves.append(in_use(np.where(has_start & ~np.isnan(waits_s), submit_s, np.nan), waits_s, ones))
    clock = _clock(comparison, curves)
    series = []
    for number, (moments, waiting) in enumerate(curves):
        x, y = clock.steps(moments, waiting)
        series.append(Series(SIDES[number], _moments(comparison, clock, x), y, look=number))
    caption = f"Jobs without GPUs, {clock.resolution}."
    panel, axis = Panel(Axis("jobs", zero=True), series), _time_axis(comparison, clock)
    return Chart("chart-queue", "Waiting jobs", caption, 300, axis, [panel])


def _capacity(comparison: Compared) -> tuple[Floats, Floats]:
    """The capacity of all pools over time: moments, and GPUs from each of them on."""
    pools = comparison.summary["capacity"].values()
    steps = {0.0: float(sum(pool["gpus"] for pool in pools))}
    for pool in pools:
        for part in pool["reduced"]:
            lost_gpus = max(0.0, pool["gpus"] - part["gpus"])
            steps[float(part["from_s"])] = steps.get(float(part["from_s"]), 0.0) - lost_gpus
            steps[float(part["until_s"])] = steps.get(float(part["until_s"]), 0.0) + lost_gpus
    moments = np.array(sorted(steps))
    return moments, np.cumsum([steps[moment] for moment in moments])


def _group(kind: str, groups: list[dict[str, Any]]) -> Chart:
    """The mean wait of each group on both sides."""
    drawn_groups = [group for group in groups if "jobs" in group][:_MOST_DOTS]
    names = _names([group["group"] for group in drawn_groups])
    series = []
    for number, side in enumerate(SIDES):
        means = [float(group[f"{side}_mean_s"]) for group in drawn_groups]
        text = [
            f"{duration(mean)}, {group['jobs']:,} jobs"
            for mean, group in zip(means, drawn_groups, strict=True)
        ]
        y = short(np.maximum(means, _LEAST_S))
        series.append(Series(side, names, y, "dots", number, text=text, hover="{text}"))
    caption = f"Mean wait of jobs by {KINDS[kind]}; the two dots of a group at one height mean no bias."
    panel = Panel(Axis("mean wait", "log", ticks=TIME_TICKS), series)
    x = Axis(KINDS[kind], "names", names=names)
    return Chart(f"chart-by-{kind}", f"Waits by {KINDS[kind]}", caption, 320, x, [panel])


def _names(groups: list[str]) -> list[str]:
    """The names of groups, short and apart: an axis takes equal ones for one group."""
    texts = [group or "(not stated)" for group in groups]
    cut = [t if len(t) <= _LONGEST_NAME else t[: _LONGEST_NAME - 1] + "…" for t in texts]
    return [text if cut.count(text) == 1 else f"{text} ({number + 1})" for number, text in enumerate(cut)]


def _clock(comparison: Compared, curves: list[tuple[Floats, Floats]]) -> TimeAxis:
    """The axis from the first submission to the last change of any curve."""
    last_s = max((float(moments[-1]) for moments, _ in curves if len(moments)), default=0.0)
    to_s = max(last_s, float(comparison.times["submit_s"][-1]), _LEAST_S)
    return TimeAxis.over(0.0, to_s, max(len(moments) for moments, _ in curves))


def _time_axis(comparison: Compared, clock: TimeAxis) -> Axis:
    return Axis(f"date ({comparison.zone})", "date") if comparison.is_dated else clock.axis


def _moments(comparison: Compared, clock: TimeAxis, x: list[float]) -> list[Any]:
    """The places on the axis as dates, where the log has them."""
    return (
        [comparison.moment(clock.from_s + value * clock.unit_s) for value in x] if comparison.is_dated else x
    )
