"""One cell of a grid with its metrics, and the paired differences between cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import fsum, inf
from pathlib import Path
from typing import Any, Self

from clustersim.analysis import OVER_FINISHED, PairedDifference, holm, paired_difference, paired_metrics
from clustersim.records import Run
from clustersim.rundir import read_run
from itertime.errors import UnknownName, UserError

from .expand import Scalar
from .gridfile import NUMERIC_METRICS

__all__ = ["CellFacts", "Comparison", "Number", "Result", "compare_cells"]

Number = int | float | None


@dataclass(frozen=True)
class CellFacts:
    """What the plan of a grid says of a cell: the policy, the one from which it differs in its planner alone
    (`algorithm`), whether it is elastic, its planner, and the load that its trace states. None for a trace
    that states none, and for a run that ends before all jobs.
    """

    policy: str = ""
    algorithm: str = ""
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

    @property
    def has_records(self) -> bool:
        """Whether the folder of the grid has the run of the cell, and not its row of metrics alone."""
        return self.status == "done" and self.folder.is_dir()

    def run(self) -> Run:
        """All records of the cell. UserError if it is not done, was changed, or is a row of metrics alone."""
        if self.status == "done" and not self.has_records:
            raise UserError(f"{self.folder}: has no records, as the grid was run with keep: rows")
        return read_run(self.folder)


@dataclass(frozen=True)
class Comparison:
    """A metric of the cells with these values of axes, against the baseline with all other axes equal.

    Averages over finished jobs cover the jobs that both runs of a pair finished; `common_jobs` is their
    number, the mean over seeds, and None for other metrics. `is_whole`: they are all jobs that either
    finished. `p_holm`: the p value, adjusted for all comparisons of this metric in the grid. `offered_load`,
    `baseline_load`, `planner`, `baseline_planner`: of the cells and of the baseline; loads are means over
    seeds, None where they are not defined.
    """

    axes: Mapping[str, Scalar]
    metric: str
    difference: PairedDifference
    p_holm: float | None = None
    offered_load: float | None = None
    baseline_load: float | None = None
    planner: str = ""
    baseline_planner: str = ""
    common_jobs: float | None = None
    is_whole: bool = True


def compare_cells(
    results: Sequence[Result], axes: Sequence[str], baseline: Mapping[str, Scalar] | None,
    metrics: Sequence[str], run_of: Callable[[Result], Run] = Result.run,
) -> list[Comparison]:  # fmt: skip
    """Comparisons in the order of the grid, metrics innermost; none without a baseline.

    The baseline of a cell has the values of `baseline` and is otherwise equal; both runs of a pair have the
    same seed. `run_of` reads the records of a cell, for pairs that finished different jobs. UnknownName for
    axes, values and metrics that do not exist.
    """
    if not baseline:
        return []
    _check_names(results, axes, baseline, metrics)
    groups: dict[tuple[Scalar, ...], dict[int, Result]] = {}
    for result in results:
        groups.setdefault(tuple(result.axes[name] for name in axes), {})[result.seed] = result
    result_of_cell = {result.cell: result for result in results}
    run_of_cell = lru_cache(_RUNS_IN_MEMORY)(lambda cell: run_of(result_of_cell[cell]))
    comparisons = []
    for values in groups:
        variant = dict(zip(axes, values, strict=True))
        against = tuple({**variant, **baseline}.values())
        if against == values or against not in groups:
            continue
        pairs = [
            _Pair.of(groups[against][seed], groups[values][seed], run_of_cell)
            for seed in groups[values]
            if seed in groups[against]
        ]
        loads = [_mean_load(groups[group].values()) for group in (values, against)]
        planners = [next(iter(groups[group].values())).facts.planner for group in (values, against)]
        for metric in metrics:
            is_average = metric in OVER_FINISHED
            comparison = Comparison(
                axes=variant,
                metric=metric,
                difference=_difference(pairs, metric),
                offered_load=loads[0],
                baseline_load=loads[1],
                planner=planners[0],
                baseline_planner=planners[1],
                common_jobs=_mean(pair.jobs for pair in pairs) if is_average else None,
                is_whole=not is_average or all(pair.is_whole for pair in pairs),
            )
            comparisons.append(comparison)
    return _with_holm(comparisons)


_RUNS_IN_MEMORY = 32


@dataclass(frozen=True)
class _Pair:
    """The metrics of two cells that may be compared. `jobs`: how many both finished; None if a cell is not
    done, or if they had different jobs.
    """

    baseline: Mapping[str, Number]
    variant: Mapping[str, Number]
    jobs: Number = None
    is_whole: bool = True

    @classmethod
    def of(cls, baseline: Result, variant: Result, run_of_cell: Callable[[str], Run]) -> Self:
        """The metrics of the cells, over the common jobs unless both finished all jobs."""
        counts = {result.metrics.get(name) for result in (baseline, variant) for name in ("jobs", "finished")}
        if len(counts) == 1 or not (baseline.metrics and variant.metrics):
            return cls(baseline.metrics, variant.metrics, variant.metrics.get("finished"))
        if not (baseline.has_records and variant.has_records):  # nothing says which jobs both finished
            undefined = dict.fromkeys(OVER_FINISHED)
            return cls({**baseline.metrics, **undefined}, {**variant.metrics, **undefined}, is_whole=False)
        pair = paired_metrics(run_of_cell(variant.cell), run_of_cell(baseline.cell))
        if pair is None:
            return cls(baseline.metrics, variant.metrics)
        return cls(
            {**baseline.metrics, **pair.baseline},
            {**variant.metrics, **pair.variant},
            pair.jobs,
            pair.is_whole,
        )


def _mean(values: Iterable[Number]) -> float | None:
    known_values = [value for value in values if value is not None]
    return fsum(known_values) / len(known_values) if known_values else None


def _mean_load(results: Iterable[Result]) -> float | None:
    return _mean(result.offered_load for result in results)


def _difference(pairs: Sequence[_Pair], metric: str) -> PairedDifference:
    return paired_difference(
        [pair.baseline.get(metric) for pair in pairs],
        [pair.variant.get(metric) for pair in pairs],
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
