"""The results of a grid, read back from its folder."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clustersim.analysis import window_metrics, with_window
from clustersim.export import KINDS, Picture, drawn, picture
from clustersim.records import Run
from clustersim.report import Page, render_report
from clustersim.rundir import SUMMARY, read_unverified
from itertime.errors import UserError
from itertime.io import shown, write_text

from .comparisons import CellFacts, Comparison, Number, Result, compare_cells
from .expand import Scalar, text_of
from .gridfile import NUMERIC_METRICS, ON_DEMAND, SHOWN_METRICS, Window
from .page import (
    FigureSpec,
    GridDocument,
    absent_cells,
    answer_of,
    grid_figure,
    page_of_run,
    render_grid,
    runs_of_figure,
)
from .store import FORMAT, Store, read_object

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "compare_runs", "is_grid", "plot_runs", "read_results", "write_run_pages"]


PLANNER = "planner"
"""The column of the planner, unless an axis has this name."""


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result]):
    """The cells of a grid in the order of its file."""

    folder: Path
    name: str
    axes: tuple[str, ...]
    results: tuple[Result, ...]
    baseline: Mapping[str, Scalar] | None
    shown_metrics: tuple[str, ...]
    window: Window | None = None

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
        return compare_cells(
            self, self.axes, baseline or self.baseline, metrics or self.shown_metrics, self._run_of
        )

    def _run_of(self, result: Result) -> Run:
        """The records of a cell, whose hashes were checked, with the metrics of the window."""
        run = read_unverified(result.folder)
        if self.window is None:
            return run
        return with_window(run, self.window.warmup_s, self.window.measure_s)

    def plot(
        self, metric: str = "jct_mean_s", x: str | None = None, y: str | None = None, *,
        kind: str | None = None, where: Mapping[str, Scalar] | None = None, interval: bool = True,
        width: str | float | None = None,
    ) -> Picture:  # fmt: skip
        """A figure of a metric: means over seeds with 95 % intervals (Student's t, independent seeds).

        `kind`: bars, lines or heat-map; by default lines over an axis `x` of numbers, bars over names, a heat
        map with a `y`. `x`: by default an axis of numbers, the load first, else the policy. `where`: values
        of axes to which the figure is confined. `metric` may also be a figure of recorded runs: jct-cdf,
        utilisation or gantt. `width`: "column" (the default), "text", or inches. UserError for what cannot
        be drawn.
        """
        return self.figure(FigureSpec(metric, x, y, kind, where or {}, interval, width))

    def figure(self, spec: FigureSpec) -> Picture:
        """The figure of `plot`, of settings in one object."""
        if spec.metric in KINDS:
            results = runs_of_figure(self.document(()), spec)
            return picture([result.run() for result in results], spec.metric, spec.width)
        return drawn(grid_figure(self.document(()), spec))

    def absent_cells(self, spec: FigureSpec) -> int:
        """How many cells of a figure have no value of its metric."""
        return 0 if spec.metric in KINDS else absent_cells(self.document(()), spec)

    def report(self) -> Page:
        """The page that `clustersim grid` writes: effects, heat maps, lines over an axis, the best cells."""
        return Page(render_grid(self.document()))

    def answer(self, comparisons: Sequence[Comparison] | None = None) -> str:
        """What the grid says, in a line: what is best in how many cells, and how far from the baseline.

        `comparisons`: by default those of the grid file.
        """
        return answer_of(self.document(comparisons))

    def document(self, comparisons: Sequence[Comparison] | None = None) -> GridDocument:
        """What the page of the grid shows; `comparisons`: by default those of the grid file."""
        return GridDocument(
            self.name, self.folder, self.axes, self.results,
            tuple(self.compare() if comparisons is None else comparisons), self.baseline, self.shown_metrics,
        )  # fmt: skip

    def metric_names(self) -> list[str]:
        """The metrics that the tables have, in order."""
        return [
            name
            for name in NUMERIC_METRICS
            if name not in ON_DEMAND or any(result.metrics.get(name) is not None for result in self)
        ]

    def to_pandas(self) -> pd.DataFrame:
        """One row for each cell: axes, `seed`, `status`, metrics, `planner`, `cell`; NaN for undefined."""
        import pandas as pd

        columns: dict[str, Any] = {}
        for name in self.axes:
            columns[name] = pd.Series([result.axes[name] for result in self], dtype=_dtype(self, name))
        columns["seed"] = pd.Series([result.seed for result in self], dtype="int64")
        columns["status"] = [result.status for result in self]
        for name in self.metric_names():
            columns[name] = pd.Series([result.metrics.get(name) for result in self], dtype="float64")
        if PLANNER not in self.axes:
            columns[PLANNER] = [result.facts.planner for result in self]
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
    if not os.path.exists(path):  # Path.exists raises for a name that is too long
        raise UserError(f"{store.folder}: is not the folder of a grid: it has no grid.json")
    document = read_object(path)
    if document.get("format") != FORMAT:
        raise UserError(
            f"{path}: format={shown(document.get('format'))}: must be {FORMAT}; run the grid again"
        )
    try:
        window = Window(**document["window"]) if document["window"] else None
        contents: dict[str, _Content] = {}
        store.rows.refresh()
        results = [_result(store, entry, window, contents) for entry in document["cells"]]
        shown_metrics = tuple(document.get("metrics") or SHOWN_METRICS)
        return Results(
            store.folder, document["name"], tuple(document["axes"]), tuple(results),
            document["baseline"], shown_metrics, window,
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"does not hold what a grid writes ({type(error).__name__}: {error})"
        raise UserError(f"{path}: {problem}; run the grid again") from None


def is_grid(folder: str | Path) -> bool:
    """Whether a folder is that of a grid."""
    return (Path(folder) / "grid.json").is_file()


def write_run_pages(
    results: Results, page_limit: int, on_progress: Callable[[int], None] = lambda done: None
) -> int:
    """Write the pages of at most so many runs into the folder of a grid, those of the first seed first; the
    page of the grid links to them. Returns their number.
    """
    first_seed = min((result.seed for result in results), default=0)
    ordered = sorted(results, key=lambda result: result.seed != first_seed)
    recorded = {result.cell: result for result in ordered if result.has_records}
    page_results = list(recorded.values())[:page_limit]
    for number, result in enumerate(page_results, start=1):
        title = ", ".join(f"{name} {text_of(value)}" for name, value in result.axes.items())
        page = render_report([result.run()], title=f"{title}, seed {result.seed}")
        path = results.folder / page_of_run(result.cell)
        path.parent.mkdir(exist_ok=True)
        write_text(path, page)
        on_progress(number)
    return len(page_results)


def compare_runs(runs: Sequence[Run], baseline: str) -> list[Comparison]:
    """The paired differences of policies that ran with the same seeds, against policy `baseline`."""
    return compare_cells(
        _results_of_runs(runs), ("policy",), {"policy": baseline}, SHOWN_METRICS,
        lambda result: runs[int(result.cell)],
    )  # fmt: skip


def plot_runs(
    runs: Sequence[Run], metric: str, *, interval: bool = True, width: str | float | None = None
) -> Picture:
    """Bars of a metric over the policies of runs: means over seeds with intervals, as `Results.plot`."""
    document = GridDocument("runs", Path(), ("policy",), _results_of_runs(runs), (), None, (metric,))
    return drawn(
        grid_figure(document, FigureSpec(metric, "policy", interval=interval, width=width or "column"))
    )


def _results_of_runs(runs: Sequence[Run]) -> tuple[Result, ...]:
    """Runs as the cells of a grid over policies; `cell` is the place of a run."""
    results = []
    for number, run in enumerate(runs):
        window = run.summary.get("window")
        summary = window if isinstance(window, Mapping) else run.summary
        result = Result(
            axes={"policy": run.policy},
            seed=run.manifest["seed"],
            cell=str(number),
            status="done",
            folder=Path(),
            metrics={name: summary.get(name) for name in NUMERIC_METRICS},
            facts=CellFacts(policy=run.policy, planner=run.planner if run.plans else ""),
            offered_load=run.summary.get("offered_load"),
        )
        results.append(result)
    return tuple(results)


def _result(
    store: Store, entry: Mapping[str, Any], window: Window | None, contents: dict[str, _Content]
) -> Result:
    key = entry["cell"]
    if key not in contents:  # cells of equal inputs share a folder
        contents[key] = _look_up(store, key, window)
    return Result(
        axes=entry["axes"],
        seed=entry["seed"],
        cell=key,
        folder=store.cell(key),
        facts=CellFacts(**entry.get("facts", {})),  # folders of older versions have none
        **contents[key]._asdict(),
    )


class _Content(NamedTuple):
    """What the folder of a grid has of a cell."""

    status: str
    metrics: Mapping[str, Number]
    reason: str = ""
    offered_load: float | None = None


def _look_up(store: Store, key: str, window: Window | None) -> _Content:
    if key in store.rows and window is None:
        row = store.rows[key]
        metrics = {name: row[name] for name in NUMERIC_METRICS}
        return _Content("done", metrics, offered_load=row["offered_load"])
    damage = store.damage(key) if store.has(key) else None
    if store.has(key) and damage is None:
        summary = read_object(store.cell(key) / SUMMARY)
        return _Content(
            "done", _metrics(store.cell(key), summary, window), offered_load=summary.get("offered_load")
        )
    failure = store.failure(key)
    if failure is not None:
        return _Content("failed", {}, str(failure.get("reason", "")))
    return _Content("missing", {}, damage or "")


def _metrics(folder: Path, summary: Mapping[str, Any], window: Window | None) -> Mapping[str, Number]:
    if window is not None:
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
