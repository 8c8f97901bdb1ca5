"""The tables of a grid: one row a cell, one row a comparison, as CSV, and as Parquet where pyarrow is
installed.

Text that a spreadsheet would take for a formula is guarded as in `jobs.csv`: by one more apostrophe in front.
Numbers are written with all their digits, undefined values as empty cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from clustersim.analysis import PairedDifference
from clustersim.rundir import guarded_text
from itertime.io import has_parquet, write_bytes, write_text

from .comparisons import Comparison
from .results import PLANNER, Results

__all__ = ["COMPARISON_CSV", "RESULTS_CSV", "RESULTS_PARQUET", "write_tables"]

RESULTS_CSV, RESULTS_PARQUET, COMPARISON_CSV = "results.csv", "results.parquet", "comparison.csv"


def write_tables(results: Results) -> list[Comparison]:
    """Write the tables of a grid into its folder; returns the comparisons. UserError if that fails."""
    comparisons = results.compare()
    planner = [] if PLANNER in results.axes else [PLANNER]
    metrics = results.metric_names()
    header = [*results.axes, "seed", "status", *metrics, *planner, "cell"]
    rows = [
        [
            *(result.axes[name] for name in results.axes),
            result.seed, result.status, *(result.metrics.get(name) for name in metrics),
            *([result.facts.planner] if planner else []), result.cell,
        ]
        for result in results
    ]  # fmt: skip
    write_text(results.folder / RESULTS_CSV, _csv(header, rows))
    # A table that is not written now may be there from an earlier state of the grid.
    if has_parquet():
        write_bytes(results.folder / RESULTS_PARQUET, _parquet(results))
    else:
        (results.folder / RESULTS_PARQUET).unlink(missing_ok=True)
    if comparisons:
        write_text(results.folder / COMPARISON_CSV, _comparison_csv(results, comparisons))
    else:
        (results.folder / COMPARISON_CSV).unlink(missing_ok=True)
    return comparisons


def _comparison_csv(results: Results, comparisons: Sequence[Comparison]) -> str:
    names = [field.name for field in fields(PairedDifference)]
    header = [*results.axes, "metric", *names, "p_holm", "common_jobs", "offered_load"]
    rows = (
        [
            *(comparison.axes[name] for name in results.axes),
            comparison.metric, *(getattr(comparison.difference, name) for name in names),
            comparison.p_holm, comparison.common_jobs, comparison.offered_load,
        ]
        for comparison in comparisons
    )  # fmt: skip
    return _csv(header, rows)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [",".join(guarded_text(name) for name in header)]
    lines += [",".join(_cell(value) for value in row) for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return guarded_text(value)


def _parquet(results: Results) -> bytes:
    """The frame of `to_pandas`; an axis of mixed values becomes text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = results.to_pandas()
    for name in results.axes:
        if frame[name].dtype == object:
            frame[name] = [None if value is None else str(value) for value in frame[name]]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), sink)
    return sink.getvalue().to_pybytes()
