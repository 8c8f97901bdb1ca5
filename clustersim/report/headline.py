"""The headline table of a comparison, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clustersim.records import Run

from .numbers import decimals, difference, time_unit
from .runs import (
    baseline_run,
    common_jobs,
    group_runs,
    mean_jct_s,
    measured,
    run_labels,
    same_jobs_finished,
    same_trace,
)

__all__ = ["TITLES", "Headline", "HeadlineCell", "HeadlineColumn", "Row", "comparison_table", "headline_rows"]


@dataclass(frozen=True)
class Measure:
    """What a column shows: a metric, its kind (time, share, load, factor, count, usd), and the better
    direction.
    """

    key: str
    title: str
    kind: str
    better: str = ""


_COMMON = Measure("jct_common_s", "JCT mean, jobs all finished", "time", "lower")
_MEASURES = (
    Measure("jct_mean_s", "JCT mean", "time", "lower"),
    Measure("jct_over_bound", "JCT x best possible", "factor"),
    Measure("jct_p50_s", "JCT p50", "time", "lower"),
    Measure("jct_p99_s", "JCT p99", "time", "lower"),
    Measure("wait_mean_s", "Waiting mean", "time", "lower"),
    Measure("wait_p99_s", "Waiting p99", "time", "lower"),
    Measure("queue_mean_s", "First start after, mean", "time", "lower"),
    Measure("makespan_s", "Makespan", "time", "lower"),
    Measure("makespan_over_bound", "Makespan x best possible", "factor"),
    Measure("deadline_met_ratio", "Deadlines met", "share", "higher"),
    Measure("deadlines_of_bound", "Deadlines met of possible", "share", "higher"),
    Measure("rejected", "Rejected", "count", "lower"),
    Measure("unfinished", "Unfinished", "count", "lower"),
    Measure("offered_load", "Offered load", "load"),
    Measure("gpu_allocated_arrival_ratio", "GPUs allocated, arrivals", "share"),
    Measure("gpu_allocated_ratio", "GPUs allocated", "share"),
    Measure("gpu_useful_ratio", "GPUs useful", "share"),
    Measure("disruptions", "Preemptions + resizes", "count"),
    Measure("cost_usd", "Cost", "usd"),
)
TITLES = {measure.key: measure.title for measure in _MEASURES}
"""The metrics of the table in words."""

_OVER_FINISHED = ("jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "wait_p99_s", "queue_mean_s")
_ON_TERMINAL = (
    "jct_common_s", "jct_mean_s", "wait_mean_s", "deadline_met_ratio", "jct_over_bound",
    "gpu_allocated_arrival_ratio", "rejected", "unfinished", "makespan_s", "gpu_useful_ratio", "jct_p99_s",
    "gpu_allocated_ratio",
)  # fmt: skip
"""The columns on a terminal, the most important first; the last are left out where it is narrow."""


_ALWAYS = 3  # columns beside the policy that are never left out


@dataclass(frozen=True)
class HeadlineCell:
    """A value as text in the unit of its column, its difference to the baseline, and whether that is better
    or worse.
    """

    text: str
    difference: str = ""
    trend: str = ""


@dataclass(frozen=True)
class HeadlineColumn:
    """The head of a column. `unit` applies to all its cells; `better` is lower, higher or empty."""

    key: str
    title: str
    unit: str
    better: str


@dataclass(frozen=True)
class Row:
    """One run; `series` is the look of its policy."""

    label: str
    series: int
    is_baseline: bool
    cells: tuple[HeadlineCell, ...]


@dataclass(frozen=True)
class Headline:
    """The table, without metrics that are undefined in every run and counts that are zero in every run."""

    columns: tuple[HeadlineColumn, ...]
    rows: tuple[Row, ...]


def headline_rows(runs: Sequence[Run], baseline: str | None) -> Headline:
    """The headline table of `runs`, with differences to the run of policy `baseline` with the same seed.

    If runs finished different jobs, one more column covers the jobs that all runs finished. The other
    averages over finished jobs are then not marked better or worse: a policy that rejects long jobs looks
    fast on the rest. Raises UnknownName if no run has the policy `baseline`.
    """
    values = {id(run): measured(run) for run in runs}
    measures = _measures(runs, values)
    telling_measures = [
        m for m in measures if _says_something(m, [values[id(run)].get(m.key) for run in runs])
    ]
    scales = [_scale(m, [values[id(run)].get(m.key) for run in runs]) for m in telling_measures]
    rows = []
    for group in group_runs(runs):
        for label, run in zip(run_labels(group), group.runs, strict=True):
            base = run if baseline is None else baseline_run(run, runs, baseline)
            ours, theirs = values[id(run)], {} if base is run else values[id(base)]
            pairs = zip(telling_measures, scales, strict=True)
            cells = [_cell(m, scale, ours.get(m.key), theirs.get(m.key)) for m, scale in pairs]
            rows.append(Row(label, group.look, baseline is not None and base is run, tuple(cells)))
    columns = [
        HeadlineColumn(m.key, m.title, s.unit, m.better)
        for m, s in zip(telling_measures, scales, strict=True)
    ]
    return Headline(tuple(columns), tuple(rows))


class TerminalTable(NamedTuple):
    """Heads and rows as text. `least`: the columns to leave out first on a narrow terminal, in this order."""

    heads: list[str]
    rows: list[list[str]]
    least: list[int]


def comparison_table(runs: Sequence[Run], baseline: str | None) -> TerminalTable:
    """The headline table for a terminal: heads and rows, with differences to the baseline in parentheses."""
    headline = headline_rows(runs, baseline)
    column_indices = [i for i, column in enumerate(headline.columns) if column.key in _ON_TERMINAL]
    heads = ["policy"]
    for i in column_indices:
        column = headline.columns[i]
        heads.append(f"{column.title}, {column.unit}" if column.unit else column.title)
    rows = []
    for row in headline.rows:
        cells = [row.cells[i] for i in column_indices]
        rows.append([row.label, *(f"{c.text} ({c.difference})" if c.difference else c.text for c in cells)])
    ranked = sorted(
        range(len(column_indices)), key=lambda k: _ON_TERMINAL.index(headline.columns[column_indices[k]].key)
    )
    least_columns = [1 + k for k in reversed(ranked[_ALWAYS:])]
    return TerminalTable(heads, rows, least_columns)


def _says_something(measure: Measure, values: Sequence[float | None]) -> bool:
    if measure.kind == "count" and measure.key != "rejected":
        return any(values)
    if measure.kind == "load":  # that of the trace, unless policies plan jobs in other ways
        return len({value for value in values if value is not None}) > 1
    return any(value is not None for value in values)


def _measures(runs: Sequence[Run], values: Mapping[int, dict[str, float | None]]) -> list[Measure]:
    if len(runs) == 1 or not same_trace(runs) or same_jobs_finished(runs):
        return list(_MEASURES)
    common = common_jobs(runs)
    for run in runs:
        values[id(run)]["jct_common_s"] = mean_jct_s(run, common) if common else None
    neutral_measures = [replace(m, better="") if m.key in _OVER_FINISHED else m for m in _MEASURES]
    return [_COMMON, *neutral_measures]


# Numbers as text


@dataclass(frozen=True)
class _Scale:
    """How a column shows its numbers: divided by `factor`, with `decimals` digits after the point."""

    unit: str
    factor: float
    decimals: int

    def text(self, value: float | None) -> str:
        return "–" if value is None else f"{value / self.factor:,.{self.decimals}f}"


def _scale(measure: Measure, values: Sequence[float | None]) -> _Scale:
    magnitudes = [abs(value) for value in values if value]
    if measure.kind == "share":
        return _Scale("%", 0.01, 1)
    if measure.kind == "count":
        return _Scale("", 1.0, 0)
    if measure.kind in ("load", "factor"):
        return _Scale("", 1.0, 2)
    if measure.kind == "usd":
        return _Scale("USD", 1.0, 0)
    unit, factor = time_unit(max(magnitudes, default=0.0))
    return _Scale(unit, factor, decimals(min(magnitudes, default=0.0) / factor))


def _cell(measure: Measure, scale: _Scale, value: float | None, base: float | None) -> HeadlineCell:
    if value is None or base is None or measure.kind == "factor":  # a factor is a comparison already
        return HeadlineCell(scale.text(value))
    worse = value > base if measure.better == "lower" else value < base
    trend = "" if not measure.better or value == base else "worse" if worse else "better"
    return HeadlineCell(scale.text(value), difference(measure.kind, value, base), trend)
