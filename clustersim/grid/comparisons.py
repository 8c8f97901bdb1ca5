"""One cell of a grid with its metrics, and the paired differences between cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf
from pathlib import Path
from typing import Any

from clustersim.analysis import PairedDifference, holm, paired_difference
from clustersim.records import Run
from clustersim.rundir import read_run
from itertime.errors import UnknownName

from .expand import Scalar
from .gridfile import NUMERIC_METRICS

__all__ = ["CellFacts", "Comparison", "Number", "Result", "compare_cells"]

Number = int | float | None


@dataclass(frozen=True)
class CellFacts:
    """What the plan of a grid says of a cell: the policy, whether it is elastic, its planner, and the load
    that its trace states. None for a trace that states none, and for a run that ends before all jobs.
    """

    policy: str = ""
    elastic: bool = False
    planner: str = ""
    stated_load: float | None = None


@dataclass(frozen=True)
class Result:
    """One cell: its position in the grid, and its metrics (empty if it is not done).

    `status`: done, failed, or missing. `reason`: why it failed. `facts`: what the plan says of it.
    `offered_load`: of the whole run, also where the metrics are those of a window.
    """

    axes: Mapping[str, Scalar]
    seed: int
    cell: str
    status: str
    folder: Path
    metrics: Mapping[str, Number] = field(default_factory=dict)
    reason: str = ""
    facts: CellFacts = CellFacts()
    offered_load: float | None = None

    def run(self) -> Run:
        """All records of the cell. UserError if it is not done, or was changed."""
        return read_run(self.folder)


@dataclass(frozen=True)
class Comparison:
    """A metric of the cells with these values of axes, against the baseline with all other axes equal.

    `p_holm`: the p value, adjusted for all comparisons of this metric in the grid. `offered_load`,
    `baseline_load`: of the cells and of the baseline, the mean over seeds; None where it is not defined.
    """

    axes: Mapping[str, Scalar]
    metric: str
    difference: PairedDifference
    p_holm: float | None = None
    offered_load: float | None = None
    baseline_load: float | None = None


def compare_cells(
    results: Sequence[Result], axes: Sequence[str], baseline: Mapping[str, Scalar] | None,
    metrics: Sequence[str],
) -> list[Comparison]:  # fmt: skip
    """Comparisons in the order of the grid, metrics innermost; none without a baseline.

    The baseline of a cell has the values of `baseline` and is otherwise equal; both runs of a pair have the
    same seed. UnknownName for axes, values and metrics that do not exist.
    """
    if not baseline:
        return []
    _check_names(results, axes, baseline, metrics)
    groups: dict[tuple[Scalar, ...], dict[int, Result]] = {}
    for result in results:
        groups.setdefault(tuple(result.axes[name] for name in axes), {})[result.seed] = result
    comparisons = []
    for values in groups:
        variant = dict(zip(axes, values, strict=True))
        against = tuple({**variant, **baseline}.values())
        if against == values or against not in groups:
            continue
        for metric in metrics:
            difference = _difference(groups[against], groups[values], metric)
            loads = [_mean_load(groups[group].values()) for group in (values, against)]
            comparisons.append(Comparison(variant, metric, difference, None, *loads))
    return _with_holm(comparisons)


def _mean_load(results: Iterable[Result]) -> float | None:
    loads = [result.offered_load for result in results if result.offered_load is not None]
    return fsum(loads) / len(loads) if loads else None


def _difference(
    baseline: Mapping[int, Result], variant: Mapping[int, Result], metric: str
) -> PairedDifference:
    seeds = [seed for seed in variant if seed in baseline]
    return paired_difference(
        [baseline[seed].metrics.get(metric) for seed in seeds],
        [variant[seed].metrics.get(metric) for seed in seeds],
        limit=1.0 if metric.endswith("_ratio") else inf,
    )


def _with_holm(comparisons: list[Comparison]) -> list[Comparison]:
    adjusted: dict[int, Any] = {}
    for metric in dict.fromkeys(comparison.metric for comparison in comparisons):
        family = [i for i, comparison in enumerate(comparisons) if comparison.metric == metric]
        p_values = holm([comparisons[i].difference.p for i in family])
        adjusted |= dict(zip(family, p_values, strict=True))
    return [replace(comparison, p_holm=adjusted[i]) for i, comparison in enumerate(comparisons)]


def _check_names(
    results: Sequence[Result], axes: Sequence[str], baseline: Mapping[str, Scalar], metrics: Sequence[str]
) -> None:
    for name, value in baseline.items():
        if name not in axes:
            raise UnknownName("axis", name, axes)
        values = dict.fromkeys(result.axes[name] for result in results)
        if value not in values:
            raise UnknownName(f"value of {name}", str(value), [str(axis_value) for axis_value in values])
    for metric in metrics:
        if metric not in NUMERIC_METRICS:
            raise UnknownName("metric", metric, NUMERIC_METRICS)
