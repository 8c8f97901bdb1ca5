"""What `clustersim grid` prints: the cells of a grid, and the table of paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from pathlib import Path
from typing import Any

from clustersim.analysis import (
    LEAST_PAIRS,
    WHOLE,
    GroupWaits,
    group_labels,
    logged_waits_by_group,
    waits_by_group,
)
from clustersim.grid import (
    Comparison,
    GridPlan,
    Results,
    Store,
    cell_notes,
    load_notes,
    planner_notes,
    text_of,
)
from clustersim.report.numbers import difference, duration
from itertime.commandline import print_json
from traces import Job

from .terminal import WIDE, plain, print_table, say

_MOST_COUNTS = 6

__all__ = [
    "WaitsByGroup",
    "as_rows",
    "print_cells",
    "print_differences",
    "print_results",
    "waits_by",
]


def print_cells(plan: GridPlan, folder: Path, json: bool) -> None:
    """All cells, with their keys, and whether their results exist."""
    store = Store(folder)
    is_done = {key: store.has(key) and store.damage(key) is None for key in {c.key for c in plan.cells}}
    if json:
        rows = [
            {"axes": dict(p.cell.axes), "seed": p.cell.seed, "cell": p.key, "there": is_done[p.key]}
            for p in plan.cells
        ]
        print_json({"cells": rows, "excluded": plan.grid.excluded})
        return
    for planned in plan.cells:
        print(
            f"{planned.key}  {'there  ' if is_done[planned.key] else 'to make'}  {plain(planned.cell.label)}"
        )
    to_make = sum(not value for value in is_done.values())
    excluded = f", {plan.grid.excluded} excluded" if plan.grid.excluded else ""
    print(f"{len(plan.cells)} cells, {len(is_done)} different runs, {to_make} to make{excluded}")


def print_results(
    results: Results,
    comparisons: Sequence[Comparison],
    json: bool,
    wide: bool = False,
    in_folder: bool = True,
    waits: WaitsByGroup | None = None,
) -> None:
    """Paired differences to the baseline, waits by group if they are given, and the number of cells."""
    statuses = [result.status for result in results]
    counts = {status: statuses.count(status) for status in ("done", "failed", "missing")}
    if json:
        rows = as_rows(comparisons)
        notes = [
            *load_notes(results), *planner_notes(results), *bound_notes(results), *cell_notes(results)
        ]  # fmt: skip
        print_json(
            {
                "cells": len(results), **counts, "baseline": results.baseline, "comparisons": rows,
                "notes": notes, **({} if waits is None else {"waits": waits.document()}),
            }
        )  # fmt: skip
        return
    width = WIDE if wide else None
    say(results.answer(comparisons), width)
    for sentence in load_notes(results):
        say(sentence, width)
    print_differences(comparisons, results.baseline or {}, width)
    if waits is not None:
        _print_waits(waits, width)
    for sentence in [*planner_notes(results), *bound_notes(results), *cell_notes(results)]:
        say(sentence, width)
    if in_folder:
        print(f"Results of {len(results)} cells: {results.folder / 'results.csv'}")
    else:
        print(f"{len(results)} runs, not kept; --out DIR keeps them and writes a report.")


@dataclass(frozen=True)
class WaitsByGroup:
    """Mean waits of groups of jobs in each cell that is done: by the values of its axes and its seed.

    `logged`: what the trace says of the log that it comes from; empty if it states no starts.
    """

    grouping: str
    cells: Mapping[str, Mapping[str, GroupWaits]]
    logged: Mapping[str, GroupWaits]

    def document(self) -> dict[str, Any]:
        """As JSON."""

        def rows(waits: Mapping[str, GroupWaits]) -> dict[str, Any]:
            return {label: {"jobs": wait.jobs, "wait_mean_s": wait.mean_s} for label, wait in waits.items()}

        groups = {cell: rows(waits) for cell, waits in self.cells.items()}
        return {
            "by": self.grouping,
            "cells": groups,
            **({"logged": rows(self.logged)} if self.logged else {}),
        }


def waits_by(results: Results, jobs: Iterable[Job], grouping: str) -> WaitsByGroup:
    """The waits of groups of jobs in the runs of a what-if, and in the log of its trace. UserError for a run
    that cannot be read. The jobs are iterated twice.
    """
    labels = group_labels(jobs, grouping)
    several_seeds = len({result.seed for result in results}) > 1
    cells: dict[str, Mapping[str, GroupWaits]] = {}
    for result in results:
        if result.status == "done":
            words = [f"{name}={text_of(value)}" for name, value in result.axes.items()]
            words += [f"seed={result.seed}"] if several_seeds else []
            cells[", ".join(words)] = waits_by_group(result.run().jobs, labels)
    return WaitsByGroup(grouping, cells, logged_waits_by_group(jobs, labels))


def _against(waits: GroupWaits | None, base_s: float) -> str:
    """A mean wait with its difference from that of the first cell; a dash for a group without jobs."""
    if waits is None:
        return "–"
    text = difference("time", waits.mean_s, base_s)
    return f"{duration(waits.mean_s)} ({text})" if text else duration(waits.mean_s)


def _print_waits(waits: WaitsByGroup, width: int | None) -> None:
    """A table of the mean waits, with their differences from the first cell."""
    if not waits.cells:
        return
    base = next(iter(waits.cells.values()))
    rows = []
    for label, wait in base.items():
        cells = [group_waits.get(label) for group_waits in waits.cells.values()]
        logged = waits.logged.get(label)
        texts = [duration(logged.mean_s) if logged else "–"] if waits.logged else []
        texts += [duration(wait.mean_s), *(_against(cell, wait.mean_s) for cell in cells[1:])]
        rows.append([plain(label), f"{wait.jobs:,}", *texts])
    heading = "" if waits.grouping == WHOLE else f" by {waits.grouping.replace('_', ' ')}"
    print(f"Mean waits{heading}")
    heads = [
        waits.grouping.replace("_", " "),
        "jobs",
        *(["in the log"] if waits.logged else []),
        *waits.cells,
    ]
    print_table(heads, rows, width=width, remedy="--wide shows them")


def bound_notes(results: Results) -> list[str]:
    """How far the cells are from the best possible, by the values of the axes of the baseline."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        label = ", ".join(plain(text_of(result.axes[name])) for name in results.baseline or {})
        groups.setdefault(label, []).append(result.metrics)
    sentences = []
    for name, metric_title in (("jct_over_bound", "Mean JCT"), ("makespan_over_bound", "Makespan")):
        factors = {label: _mean(name, group) for label, group in groups.items()}
        factor_texts = [
            f"{label} x{value:,.2f}".strip() for label, value in factors.items() if value is not None
        ]
        if factor_texts:
            meaning = "is within these factors of the best possible (means over cells)"
            sentences.append(f"{metric_title} {meaning}: {', '.join(factor_texts)}.")
    met = [
        f"{label} {100 * ours:.1f} of at most {100 * best:.1f} %".strip()
        for label, group in groups.items()
        if (ours := _mean("deadline_met_ratio", group))
        and (best := _mean("_best", list(map(_with_best, group))))
    ]
    return [*sentences, *([f"Deadlines met, mean over cells: {', '.join(met)}."] if met else [])]


def _with_best(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """The bound of the deadlines met, by `_best`."""
    met, share = metrics.get("deadline_met_ratio"), metrics.get("deadlines_of_bound")
    return {"_best": met / share if met and share else None}


def _mean(name: str, cells: Sequence[Mapping[str, Any]]) -> float | None:
    values = [metrics[name] for metrics in cells if metrics.get(name) is not None]
    return fsum(values) / len(values) if values else None


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Comparisons as plain data."""
    return [
        {
            "axes": dict(c.axes), "metric": c.metric, **asdict(c.difference), "p_holm": c.p_holm,
            "common_jobs": c.common_jobs, "planner": c.planner, "offered_load": c.offered_load,
        }
        for c in comparisons
    ]  # fmt: skip


def print_differences(
    comparisons: Sequence[Comparison], baseline: Mapping[str, Any], width: int | None = None
) -> None:
    """The table of paired differences, with notes on its numbers. Prints nothing without comparisons."""
    if not comparisons:
        return
    axes = list(comparisons[0].axes)
    columns = [*axes, *_differing(comparisons)]
    heads = [
        *columns, "metric", "baseline", "mean", "difference", "95 % interval", "relative",
        "relative, 95 % interval", "p (Holm)",
    ]  # fmt: skip
    defined = {c.metric for c in comparisons if c.difference.pairs}  # no deadlines, no ratio of those met
    shown_comparisons = [c for c in comparisons if c.metric in defined or not defined]
    rows = [
        [
            *(plain(text_of(comparison.axes[name])) for name in axes),
            *_differing(comparisons, comparison), *_cells(comparison),
        ]
        for comparison in shown_comparisons
    ]  # fmt: skip
    keys = len(columns) + 1
    last_column = (
        len(heads) - 1
    )  # the interval of the relative difference goes first, difference and interval stay
    least_columns = [last_column - 1, last_column - 2, keys + 1, last_column, keys]
    if all(row[i] == "–" for row in rows for i in (last_column, last_column - 1, keys + 3)):  # too few seeds
        kept_columns = [i for i in range(len(heads)) if i not in (last_column, last_column - 1, keys + 3)]
        heads, rows = [heads[i] for i in kept_columns], [[row[i] for i in kept_columns] for row in rows]
        least_columns = [keys, keys + 3, keys + 1]
    print_table(
        heads,
        rows,
        keys=keys,
        least_columns=least_columns,
        width=width,
        remedy="--wide shows them, --json has all",
    )
    for sentence in _notes(baseline, comparisons):
        say(sentence, width)


def _differing(comparisons: Sequence[Comparison], row: Comparison | None = None) -> list[str]:
    """The heads of columns in which cells and baselines differ beside their axes, planner and load; or their
    texts in a row.
    """
    planners = {planner for c in comparisons for planner in (c.planner, c.baseline_planner)}
    loads = {
        _load_text(load)
        for c in comparisons
        for load in (c.offered_load, c.baseline_load)
        if load is not None
    }
    columns = {}
    if len(planners) > 1 and "planner" not in comparisons[0].axes:
        columns["planner"] = row.planner if row is not None else ""
    if len(loads) > 1:
        columns["load"] = _load_text(row.offered_load) if row is not None else ""
    return list(columns if row is None else columns.values())


def _load_text(load: float | None) -> str:
    return "–" if load is None else f"{load:.2f}"


def _cells(comparison: Comparison) -> list[str]:
    d, unit = comparison.difference, _ColumnUnit.of(comparison.metric)
    return [
        unit.label,
        unit.text(d.baseline),
        unit.text(d.variant),
        unit.text(d.difference, signed=True),
        _interval(unit.text(d.low, signed=True), unit.text(d.high, signed=True)),
        _percent(d.relative),
        _interval(_percent(d.relative_low), _percent(d.relative_high)),
        "–" if comparison.p_holm is None else f"{comparison.p_holm:.3g}",
    ]


class _ColumnUnit:
    """The unit in which a metric is shown: hours for seconds, percent for ratios."""

    def __init__(self, label: str, factor: float, digits: int):
        self.label, self.factor, self.digits = label, factor, digits

    @classmethod
    def of(cls, metric: str) -> _ColumnUnit:
        if metric.endswith("_s"):
            return cls(f"{metric.removesuffix('_s')}, h", 1 / 3600, 3)
        if metric.endswith("_ratio"):
            return cls(f"{metric.removesuffix('_ratio')}, %", 100.0, 2)
        return cls(metric, 1.0, 3)

    def text(self, value: float | None, signed: bool = False) -> str:
        if value is None:
            return "–"
        return f"{value * self.factor:{'+' if signed else ''},.{self.digits}f}"


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{100 * ratio:+.2f} %"


def _interval(low: str, high: str) -> str:
    return "–" if low == "–" else f"{low} to {high}"


def _notes(baseline: Mapping[str, Any], comparisons: Sequence[Comparison]) -> list[str]:
    baseline_text = ", ".join(f"{name}={plain(text_of(value))}" for name, value in baseline.items())
    defined = [c.difference for c in comparisons if c.difference.pairs]
    pairs = sorted({difference.pairs for difference in defined}) or [0]
    many = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    runs = "pair" if pairs[-1] == 1 else "pairs"
    lines = [
        f"Against {baseline_text}: means over {many} {runs} of runs with one seed each"
        + (
            ", bootstrap-t intervals, sign-flip p values, corrected (Holm) for the number of comparisons of "
            "each metric."
            if pairs[-1] >= LEAST_PAIRS
            else "."
        )
    ]
    if pairs[0] < LEAST_PAIRS:
        lines.append(
            f"Fewer than {LEAST_PAIRS} pairs give no interval; state more seeds. They change nothing where "
            "nothing is drawn, as with a trace from a file and no failures."
        )
    elif all(difference.p is None for difference in defined):
        lines.append("Seeds changed nothing, as with a trace from a file: no interval.")
    elif any(difference.low is None for difference in defined):
        lines.append("No interval (–) where too many of the pairs are alike.")
    lines += _common_jobs(comparisons)
    left_out = sum(difference.left_out for difference in defined)
    if left_out:
        were = "pair is" if left_out == 1 else "pairs are"
        lines.append(f"{left_out} {were} left out, where a cell failed or a metric is undefined.")
    return lines


def _common_jobs(comparisons: Sequence[Comparison]) -> list[str]:
    """That averages cover the jobs that both runs of a pair finished, if these are not all of either."""
    counts = {
        ", ".join(plain(text_of(value)) for value in c.axes.values()): c.common_jobs
        for c in comparisons
        if not c.is_whole and c.common_jobs is not None
    }
    if not counts:
        return []
    named_counts = [f"{label} {count:,.1f}".removesuffix(".0") for label, count in counts.items()]
    listed_counts = ", ".join(named_counts[:_MOST_COUNTS])
    other_rows = len(named_counts) - _MOST_COUNTS
    remainder = f" and {other_rows:,} more rows with other jobs" if other_rows > 0 else ""
    return [f"JCT and waiting cover the jobs that both runs of a pair finished: {listed_counts}{remainder}."]
