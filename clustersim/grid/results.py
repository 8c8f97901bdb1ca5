"""The results of a grid, read back from its folder, and the paired differences between its cells."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.analysis import Difference, holm, paired_difference, window_metrics
from clustersim.export import Picture, draw_sweep, drawn, read_sweep
from clustersim.records import Run
from clustersim.rundir import SUMMARY, read_run, read_unverified
from itertime.errors import UnknownName, UserError
from itertime.io import shown

from .expand import Scalar
from .gridfile import NUMERIC_METRICS, SHOWN_METRICS, Window
from .store import FORMAT, Store, read_object

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Result", "Results", "compare_cells", "compare_runs", "read_results"]

Number = int | float | None


@dataclass(frozen=True)
class Result:
    """One cell: its position in the grid, and its metrics (empty if it is not done).

    `status`: done, failed, or missing. `reason`: why it failed.
    """

    axes: Mapping[str, Scalar]
    seed: int
    cell: str
    status: str
    folder: Path
    metrics: Mapping[str, Number] = field(default_factory=dict)
    reason: str = ""

    def run(self) -> Run:
        """All records of the cell. UserError if it is not done, or was changed."""
        return read_run(self.folder)


@dataclass(frozen=True)
class Comparison:
    """A metric of the cells with these values of axes, against the baseline with all other axes equal.

    `p_holm`: the p value, adjusted for all comparisons of this metric in the grid.
    """

    axes: Mapping[str, Scalar]
    metric: str
    difference: Difference
    p_holm: float | None = None


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result]):
    """The cells of a grid in the order of its file."""

    folder: Path
    name: str
    axes: tuple[str, ...]
    results: tuple[Result, ...]
    baseline: Mapping[str, Scalar] | None
    shown_metrics: tuple[str, ...]

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in _counts(self).items())
        return f"<Results of grid {self.name}: {counts or 'no cells'}>"

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def compare(
        self, baseline: Mapping[str, Scalar] | None = None, metrics: Sequence[str] | None = None
    ) -> list[Comparison]:
        """Every cell against the one that differs from it only by the values of `baseline`, over seeds.

        By default, baseline and metrics are those of the grid file. UserError for a baseline or a metric
        that does not exist.
        """
        return compare_cells(self, self.axes, baseline or self.baseline, metrics or self.shown_metrics)

    def plot(self, metric: str = "jct_mean_s", x: str | None = None) -> Picture:
        """A metric against the axis `x` (by default the load): means over seeds with intervals, a curve for
        the values of all other axes. UserError for an axis or a metric that does not exist.
        """
        sweep = read_sweep(self.folder, metric, x)
        return drawn(lambda plt: draw_sweep(plt, sweep))

    def to_pandas(self) -> pd.DataFrame:
        """One row for each cell: axes, `seed`, `status`, every metric, `cell`; NaN for undefined."""
        import pandas as pd

        columns: dict[str, Any] = {}
        for name in self.axes:
            columns[name] = pd.Series([result.axes[name] for result in self], dtype=_dtype(self, name))
        columns["seed"] = pd.Series([result.seed for result in self], dtype="int64")
        columns["status"] = [result.status for result in self]
        for name in NUMERIC_METRICS:
            columns[name] = pd.Series([result.metrics.get(name) for result in self], dtype="float64")
        columns["cell"] = [result.cell for result in self]
        return pd.DataFrame(columns)

    def _repr_html_(self) -> str:
        frame = self.to_pandas()
        frame = frame[[*self.axes, "seed", "status", *self.shown_metrics]]
        counts = ", ".join(f"{n} {status}" for status, n in _counts(self).items())
        title = f"<p>Grid <b>{html.escape(self.name)}</b>: {counts}</p>"
        return title + frame.to_html(max_rows=60, escape=True, index=False)


def read_results(folder: str | Path) -> Results:
    """The results in the folder of a grid, complete or not.

    The hashes of every cell are checked, and a cell that was changed counts as missing. UserError for a
    folder that no grid wrote.
    """
    store = Store(folder)
    path = store.folder / "grid.json"
    if not path.exists():
        raise UserError(f"{store.folder}: is not the folder of a grid: it has no grid.json")
    document = read_object(path)
    if document.get("format") != FORMAT:
        raise UserError(
            f"{path}: format={shown(document.get('format'))}: must be {FORMAT}; run the grid again"
        )
    try:
        window = Window(**document["window"]) if document["window"] else None
        known: dict[str, tuple[str, Mapping[str, Number], str]] = {}
        results = [_result(store, entry, window, known) for entry in document["cells"]]
        shown_metrics = tuple(document.get("metrics") or SHOWN_METRICS)
        return Results(
            store.folder, document["name"], tuple(document["axes"]), tuple(results),
            document["baseline"], shown_metrics,
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"does not hold what a grid writes ({type(error).__name__}: {error})"
        raise UserError(f"{path}: {what}; run the grid again") from None


def compare_runs(runs: Sequence[Run], baseline: str) -> list[Comparison]:
    """The paired differences of policies that ran with the same seeds, against policy `baseline`."""
    results = [
        Result(
            {"policy": run.policy}, run.manifest["seed"], "", "done", Path(),
            {name: run.summary.get(name) for name in NUMERIC_METRICS},
        )
        for run in runs
    ]  # fmt: skip
    return compare_cells(results, ("policy",), {"policy": baseline}, SHOWN_METRICS)


def _result(store: Store, entry: Mapping[str, Any], window: Window | None, known: dict[str, Any]) -> Result:
    key = entry["cell"]
    if key not in known:  # cells of equal inputs share a folder
        known[key] = _look_up(store, key, window)
    status, metrics, reason = known[key]
    return Result(entry["axes"], entry["seed"], key, status, store.cell(key), metrics, reason)


def _look_up(store: Store, key: str, window: Window | None) -> tuple[str, Mapping[str, Number], str]:
    damage = store.damage(key) if store.has(key) else None
    if store.has(key) and damage is None:
        return "done", _metrics(store.cell(key), window), ""
    failure = store.failure(key)
    if failure is not None:
        return "failed", {}, str(failure.get("reason", ""))
    return "missing", {}, damage or ""


def _metrics(folder: Path, window: Window | None) -> Mapping[str, Number]:
    if window is None:
        summary: Mapping[str, Any] = read_object(folder / SUMMARY)
    else:
        run = read_unverified(folder)  # its hashes have just been checked
        summary = window_metrics(
            run.jobs, run.snapshots, run.cluster, warmup_s=window.warmup_s, measure_s=window.measure_s,
            price_usd_per_gpu_h=run.manifest["price_usd_per_gpu_h"],
        )  # fmt: skip
    return {name: summary.get(name) for name in NUMERIC_METRICS}  # an older version had fewer


def _counts(results: Sequence[Result]) -> dict[str, int]:
    statuses = [result.status for result in results]
    return {status: statuses.count(status) for status in ("done", "failed", "missing") if status in statuses}


def _dtype(results: Results, axis: str) -> str:
    """A numeric type if all values are numbers, else objects."""
    values = [result.axes[axis] for result in results]
    if all(type(value) is int for value in values):
        return "int64"
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "float64" if numeric else "object"


# Comparisons


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
            comparisons.append(Comparison(variant, metric, difference))
    return _with_holm(comparisons)


def _difference(baseline: Mapping[int, Result], variant: Mapping[int, Result], metric: str) -> Difference:
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
            raise UnknownName(f"value of {name}", str(value), [str(known) for known in values])
    for metric in metrics:
        if metric not in NUMERIC_METRICS:
            raise UnknownName("metric", metric, NUMERIC_METRICS)
