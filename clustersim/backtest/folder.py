"""The folder of a backtest: jobs.csv, summary.json and report.html, written and read back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from itertime.errors import TableError, UserError
from itertime.io import MAX_BYTES, open_table, read_text, shown, with_guard, without_guard, write_text

from .logged import Floats
from .outcome import Backtest
from .page import Compared, render_backtest

__all__ = ["JOB_COLUMNS", "has_backtest", "read_backtest", "write_backtest", "write_backtest_report"]

JOB_COLUMNS = (
    "job_id", "pool", "part", "tenant", "user", "partition", "qos", "gpu_type", "gpus", "submit_s", "run_s",
    "logged_start_s", "simulated_start_s", "logged_wait_s", "simulated_wait_s", "error_s", "logged_jct_s",
    "simulated_jct_s",
)  # fmt: skip
"""Columns of jobs.csv. Times are seconds, on the trace's clock where they are moments; empty if unknown."""

_JOBS, _SUMMARY, _REPORT = "jobs.csv", "summary.json", "report.html"
_TEXTS = ("job_id", "part", "tenant", "user")
_TIMES = (
    "submit_s", "run_s", "logged_start_s", "simulated_start_s", "logged_jct_s", "simulated_jct_s",
)  # fmt: skip
_KEYS = ("log", "assumptions", "site", "parts", "use", "groups", "capacity", "not_compared")
_MOST_JOBS = 200_000
"""Rows of a report: more are a table that no browser needs."""


def write_backtest(result: Backtest, folder: Path, *, report: bool = True) -> list[str]:
    """Write jobs.csv and summary.json, and report.html unless `report` is false or the jobs are too many for
    a browser; each whole or not at all. Returns their names. UserError if that is impossible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror or error}") from error
    write_text(folder / _JOBS, _table(result))
    write_text(folder / _SUMMARY, json.dumps(result.summary, indent=2, allow_nan=False) + "\n")
    if not report or len(result.log.jobs) > _MOST_JOBS:
        return [_JOBS, _SUMMARY]
    write_backtest_report(folder)
    return [_JOBS, _SUMMARY, _REPORT]


def write_backtest_report(folder: Path) -> Path:
    """Write report.html of a backtest from its other files. Raises as `read_backtest`."""
    document = read_backtest(folder)
    try:
        page = render_backtest(document)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"does not hold what a backtest of this version writes ({type(error).__name__})"
        raise UserError(f"{folder / _SUMMARY}: {problem}; make the backtest again") from error
    write_text(folder / _REPORT, page)
    return folder / _REPORT


def has_backtest(folder: Path) -> bool:
    """Whether a folder has the files of a backtest, and is not that of a run."""
    return (
        (folder / _JOBS).exists() and (folder / _SUMMARY).exists() and not (folder / "manifest.json").exists()
    )


def read_backtest(folder: Path) -> Compared:
    """What the files of a backtest state. Raises TableError or UserError for files that cannot be used."""
    summary = _summary(folder / _SUMMARY)
    with open_table(folder / _JOBS) as table:
        absent = [name for name in (*_TEXTS, *_TIMES, "gpus") if name not in table.columns]
        if absent:
            raise TableError(f"{folder / _JOBS}:1: lacks the column {absent[0]}; make the backtest again")
        names = list(table.columns)
        rows = list(table.rows)
    if not 0 < len(rows) <= _MOST_JOBS:
        raise TableError(f"{folder / _JOBS}: has {len(rows):,} jobs; a report shows 1 to {_MOST_JOBS:,}")
    for line, cells in rows:
        if len(cells) != len(names):
            problem = f"{folder / _JOBS}:{line}: has {len(cells)} cells below {len(names)} columns"
            raise TableError(f"{problem}; make the backtest again")
    column = _Columns(folder / _JOBS, names, rows)
    return Compared(
        summary=summary,
        texts={name: column.texts(name) for name in _TEXTS},
        gpus=column.numbers("gpus").astype(np.int64),
        times={name: column.numbers(name, name not in ("submit_s", "run_s")) for name in _TIMES},
    )


@dataclass(frozen=True)
class _Columns:
    """The columns of jobs.csv, checked."""

    path: Path
    names: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]

    def texts(self, name: str) -> list[str]:
        place = self.names.index(name)
        return [without_guard(cells[place]) for _, cells in self.rows]

    def numbers(self, name: str, may_lack: bool = False) -> Floats:
        place = self.names.index(name)
        numbers = np.full(len(self.rows), np.nan)
        for i, (line, cells) in enumerate(self.rows):
            if may_lack and not cells[place]:
                continue
            try:
                numbers[i] = float(cells[place])
            except ValueError:
                numbers[i] = np.nan
            if not abs(numbers[i]) < 1e15:  # not for NaN
                problem = f"{self.path}:{line}: {name}={shown(cells[place])}: must be a number"
                raise TableError(f"{problem}; make the backtest again")
        return numbers


def _summary(path: Path) -> Mapping[str, Any]:
    try:
        summary = json.loads(read_text(path, MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is no JSON; make the backtest again") from error
    absent = _KEYS if not isinstance(summary, dict) else [name for name in _KEYS if name not in summary]
    if absent:
        raise UserError(f"{path}: lacks {absent[0]}, so it is not of a backtest of this version")
    return dict(summary)


def _table(result: Backtest) -> str:
    log, simulated = result.log, result.made
    pool_of = {int(i): pool.name for pool in result.pools for i in pool.rows}
    waits_s = simulated.wait_s(log)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(JOB_COLUMNS)
    for i, job in enumerate(log.jobs):
        names = (job.job_id, pool_of[i], result.parts[i], job.tenant, job.user, job.partition, job.qos)
        times = (
            log.submit_s[i], log.run_s[i], log.start_s[i], simulated.start_s[i], log.wait_s[i], waits_s[i],
            waits_s[i] - log.wait_s[i], log.jct_s[i], simulated.end_s[i] - log.submit_s[i],
        )  # fmt: skip
        texts = [with_guard(name or "") for name in (*names, job.gpu_type)]
        rows.writerow(
            [*texts, job.gpus, *("" if np.isnan(t) else f"{round(float(t), 3):.15g}" for t in times)]
        )
    return text.getvalue()
