"""Records as arrays: the columns of jobs, the use of the cluster over time, means and percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from clustersim.records import FINISHED, UNFINISHED, Columns, JobRecord, Snapshot

from .tables import RecordTable

__all__ = [
    "Array",
    "Jobs",
    "Snapshots",
    "Usage",
    "Value",
    "job_columns",
    "mean",
    "of_finished",
    "percentiles",
    "reached",
    "requested_gpus",
    "span",
]

Value = float | int | str | None
Array = np.ndarray
Jobs = Sequence[JobRecord] | Columns
Snapshots = Sequence[Snapshot] | Columns | RecordTable


def job_columns(jobs: Jobs) -> Columns:
    """The numbers of job records as columns; columns are returned unchanged."""
    return jobs if isinstance(jobs, Columns) else Columns.of(jobs, JobRecord, coded=("state",))


@dataclass(frozen=True)
class Usage:
    """Snapshots as arrays. Row i holds from time_s[i] to time_s[i + 1], the last row to `end_s`.

    `allocated` and `stranded` count GPUs, `jobs` counts running and waiting jobs. The cluster is empty before
    the first row.
    """

    time_s: Array
    allocated: Array
    stranded: Array
    jobs: Array
    end_s: float

    @classmethod
    def of(cls, snapshots: Snapshots, end_s: float) -> Usage:
        rows: Columns | RecordTable | Mapping[str, Array]
        if isinstance(snapshots, Sequence):
            table = np.array(list(snapshots), dtype=float).reshape(-1, len(Snapshot._fields))
            rows = dict(zip(Snapshot._fields, table.T, strict=True))
        else:
            rows = snapshots
        time_s = rows["time_s"]
        last_s = max(end_s, float(time_s[-1])) if len(time_s) else end_s
        return cls(time_s, rows["allocated"], rows["stranded"], rows["running"] + rows["pending"], last_s)

    def integral(self, values: Array, from_s: float, to_s: float) -> float:
        """The integral of `values` (one per row) over [from_s, to_s], in their unit x seconds."""
        edges = np.clip(np.append(self.time_s, self.end_s), from_s, to_s)
        return fsum((np.diff(edges) * values).tolist())

    def averages(self, values: Array, from_s: Array, to_s: Array) -> Array:
        """The time averages of `values` (one per row) over many intervals, each of positive length."""
        edges = np.append(self.time_s, self.end_s)
        cumulative = np.concatenate([[0.0], np.cumsum(np.diff(edges) * values)])
        between = np.interp(to_s, edges, cumulative) - np.interp(from_s, edges, cumulative)
        return between / (to_s - from_s)


def of_finished(jobs: Jobs, name: str) -> Array:
    """A column of the finished jobs, without missing values."""
    columns = job_columns(jobs)
    values = columns[name][columns.equal("state", FINISHED)]
    return values[~np.isnan(values)]


def span(jobs: Jobs) -> tuple[float, float] | None:
    """(T0, T1): the first submission and the last finish; None if no job finished."""
    columns = job_columns(jobs)
    finishes = of_finished(columns, "finish_s")
    return (float(columns["submit_s"].min()), float(finishes.max())) if len(finishes) else None


def reached(jobs: Columns) -> Array:
    """For each job, whether the run went on until its submission."""
    return ~(jobs.equal("state", UNFINISHED) & np.isnan(jobs["isolated_s"]))


def requested_gpus(jobs: Columns | RecordTable) -> Array:
    """The GPUs that each job asks for; NaN where it asks for none. Part of a GPU counts as that part."""
    return jobs["gpus"] * np.nan_to_num(jobs["gpu_fraction"], nan=1.0)


def mean(values: Array) -> float | None:
    """The mean; None of no values."""
    return fsum(values.tolist()) / len(values) if len(values) else None


def percentiles(values: Array, *percents: float) -> list[float | None]:
    """Percentiles by linear interpolation between order statistics (type 7 of Hyndman and Fan, 1996)."""
    if not len(values):
        return [None] * len(percents)
    return list(np.percentile(values, percents).tolist())
