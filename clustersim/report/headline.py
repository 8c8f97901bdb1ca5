"""The headline table of a comparison, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from clustersim.records import Run

from .numbers import decimals, difference, time_unit
from .runs import baseline_run, group_runs, measured, paired, planners_of, run_labels

__all__ = [
    "TITLES",
    "Headline",
    "HeadlineCell",
    "HeadlineColumn",
    "Row",
    "comparison_table",
    "headline_rows",
    "short_table",
]


@dataclass(frozen=True)
class Measure:
    """What a column shows: a metric, its kind (time, share, load, factor, count, jobs, usd, energy), and the
    better direction.
    """

    key: str
    title: str
    kind: str
    better: str = ""


_MEASURES = (
    Measure("jct_mean_s", "JCT mean", "time", "lower"),
    Measure("paired_jobs", "Jobs compared", "jobs"),
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
    Measure("energy_kwh", "Energy", "energy", "lower"),
)
TITLES = {measure.key: measure.title for measure in _MEASURES}
"""The metrics of the table in words."""

_ON_TERMINAL = (
    "jct_mean_s", "paired_jobs", "wait_mean_s", "deadline_met_ratio", "jct_over_bound",
    "gpu_allocated_arrival_ratio", "rejected", "unfinished", "makespan_s", "gpu_useful_ratio", "jct_p99_s",
    "gpu_allocated_ratio", "energy_kwh",
)  # fmt: skip
"""The columns on a terminal, the most important first; the last are left out where it is narrow."""


_SHORT = {
    "jct_mean_s": "JCT",
    "wait_mean_s": "waiting",
    "deadline_met_ratio": "in time",
    "jct_over_bound": "x best",
    "gpu_allocated_arrival_ratio": "GPUs",
    "rejected": "rejected",
    "unfinished": "unfinished",
}
"""The columns of the short table and their heads of one line; the last two where jobs are left out."""

_LEAST_IN_SHORT = ("gpu_allocated_arrival_ratio", "jct_over_bound", "planner", "wait_mean_s")
"""The columns of the short table to leave out first: how many jobs a policy rejects is said to the last."""

_LONGEST_IN_HEAD = 20  # characters of the baseline's name
_PLANNER = 2  # its column on a terminal, behind the policy and its mean JCT
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
    """One run; `series` is the look of its policy. `planner`: empty where all runs share one."""

    label: str
    planner: str
    series: int
    is_baseline: bool
    cells: tuple[HeadlineCell, ...]


@dataclass(frozen=True)
class Headline:
    """The table, without metrics that are undefined in every run and counts that are zero in every run."""

    columns: tuple[HeadlineColumn, ...]
    rows: tuple[Row, ...]

    @property
    def main_columns(self) -> list[int]:
        """The columns that matter most: mean JCT, mean waiting, deadlines met, mean JCT over the best
        possible, GPUs allocated while jobs arrive; rejected and unfinished jobs where there are any.
        """
        index_of = {column.key: i for i, column in enumerate(self.columns)}
        columns = [index_of[key] for key in _SHORT if key in index_of]
        rejected = index_of.get("rejected")
        if rejected is not None and all(row.cells[rejected].text == "0" for row in self.rows):
            columns.remove(rejected)
        return columns

    @property
    def names_planners(self) -> bool:
        """Whether the runs have several planners."""
        return any(row.planner for row in self.rows)


def headline_rows(runs: Sequence[Run], baseline: str | None) -> Headline:
    """The headline table of `runs`, with differences to the run of policy `baseline` with the same seed.

    Values cover the jobs of their own run. Differences of averages over finished jobs cover the jobs that
    both runs finished: a policy that rejects long jobs looks fast on the rest. If these are not all jobs of
    both, in any pair, a column has their numbers. Raises UnknownName if no run has the policy `baseline`.
    """
    values = {id(run): measured(run) for run in runs}
    pairings = {id(run): _Pairing.of(run, runs, baseline, values) for run in runs} if baseline else {}
    if any(pairing.jobs is not None for pairing in pairings.values()):
        for run in runs:
            jobs = pairings[id(run)].jobs
            values[id(run)]["paired_jobs"] = values[id(run)].get("finished") if jobs is None else float(jobs)
    measures = [m for m in _MEASURES if _says_something(m, [values[id(run)].get(m.key) for run in runs])]
    scales = [_scale(m, [values[id(run)].get(m.key) for run in runs]) for m in measures]
    rows, has_planners = [], len(planners_of(runs)) > 1
    for group in group_runs(runs):
        for label, run in zip(run_labels(group), group.runs, strict=True):
            pairing = pairings.get(id(run))
            cells = [
                _cell(measure, scale, values[id(run)].get(measure.key), pairing)
                for measure, scale in zip(measures, scales, strict=True)
            ]
            is_baseline = pairing is not None and pairing.is_baseline
            planner = run.planner if has_planners else ""
            rows.append(Row(label, planner, group.look, is_baseline, tuple(cells)))
    columns = [
        HeadlineColumn(m.key, m.title, s.unit, m.better) for m, s in zip(measures, scales, strict=True)
    ]
    return Headline(tuple(columns), tuple(rows))


@dataclass(frozen=True)
class _Pairing:
    """The metrics of a run and of its baseline that may be compared. `jobs`: how many both finished, where
    these are not all jobs of both.
    """

    variant: Mapping[str, float | None]
    baseline: Mapping[str, float | None]
    jobs: int | None
    is_baseline: bool

    @classmethod
    def of(
        cls, run: Run, runs: Sequence[Run], baseline: str, values: Mapping[int, dict[str, float | None]]
    ) -> Self:
        base, pair = baseline_run(run, runs, baseline), paired(run, runs, baseline)
        if pair is None or pair.is_whole:
            return cls(values[id(run)], {} if base is run else values[id(base)], None, base is run)
        return cls(
            {**values[id(run)], **pair.variant}, {**values[id(base)], **pair.baseline}, pair.jobs, False
        )


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
        texts = [f"{c.text} ({c.difference})" if c.difference else c.text for c in cells]
        rows.append([row.label, *texts])
    ranked = sorted(
        range(len(column_indices)), key=lambda k: _ON_TERMINAL.index(headline.columns[column_indices[k]].key)
    )
    least_columns = [1 + k for k in reversed(ranked[_ALWAYS:])]
    if headline.names_planners:
        heads.insert(_PLANNER, "planner")
        for cells_of_row, row in zip(rows, headline.rows, strict=True):
            cells_of_row.insert(_PLANNER, row.planner)
        least_columns = [k + (k >= _PLANNER) for k in least_columns]
    return TerminalTable(heads, rows, least_columns)


def short_table(runs: Sequence[Run], baseline: str | None) -> TerminalTable:
    """The main columns of the headline for a terminal, with the differences of mean JCT to the baseline."""
    headline = headline_rows(runs, baseline)
    columns = [headline.columns[i] for i in headline.main_columns]
    keys = ["policy", *(column.key for column in columns)]
    heads = ["policy", *(f"{_SHORT[c.key]}, {c.unit}" if c.unit else _SHORT[c.key] for c in columns)]
    rows = [[row.label, *(row.cells[i].text for i in headline.main_columns)] for row in headline.rows]
    extra: list[tuple[str, str, list[str]]] = []
    if headline.names_planners:
        extra.append(("planner", "planner", [row.planner for row in headline.rows]))
    if baseline is not None and len(rows) > 1 and columns and columns[0].key == "jct_mean_s":
        changes = [row.cells[headline.main_columns[0]].difference for row in headline.rows]
        head = f"vs {baseline}" if len(baseline) <= _LONGEST_IN_HEAD else "vs baseline"
        extra.append(("change", head, changes))
    for key, head, cells in reversed(extra):
        keys.insert(_PLANNER, key)
        heads.insert(_PLANNER, head)
        for row, cell in zip(rows, cells, strict=True):
            row.insert(_PLANNER, cell)
    return TerminalTable(heads, rows, [keys.index(key) for key in _LEAST_IN_SHORT if key in keys])


def _says_something(measure: Measure, values: Sequence[float | None]) -> bool:
    if measure.kind == "count" and measure.key != "rejected":
        return any(values)
    if measure.kind == "load":  # that of the trace, unless policies plan jobs in other ways
        return len({value for value in values if value is not None}) > 1
    return any(value is not None for value in values)


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
    if measure.kind in ("count", "jobs"):
        return _Scale("", 1.0, 0)
    if measure.kind in ("load", "factor"):
        return _Scale("", 1.0, 2)
    if measure.kind == "usd":
        return _Scale("USD", 1.0, 0)
    if measure.kind == "energy":
        return _Scale("kWh", 1.0, decimals(min(magnitudes, default=0.0)))
    unit, factor = time_unit(max(magnitudes, default=0.0))
    return _Scale(unit, factor, decimals(min(magnitudes, default=0.0) / factor))


def _cell(measure: Measure, scale: _Scale, value: float | None, pairing: _Pairing | None) -> HeadlineCell:
    text = scale.text(value)
    if value is None or pairing is None or measure.kind in ("factor", "jobs"):  # a factor is a comparison
        return HeadlineCell(text)
    run_value, base_value = pairing.variant.get(measure.key), pairing.baseline.get(measure.key)
    if run_value is None or base_value is None:
        return HeadlineCell(text)
    worse = run_value > base_value if measure.better == "lower" else run_value < base_value
    trend = "" if not measure.better or run_value == base_value else "worse" if worse else "better"
    return HeadlineCell(text, difference(measure.kind, run_value, base_value), trend)
