"""A job log with what happened: when each job was submitted, started and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import shown
from traces import Job
from traces.attempts import Attempt, attempts_text, parse_attempts
from traces.logs import Log, OnNode, ReadOptions, Selection, convert, open_log, read
from traces.logs.cells import time_zone
from traces.logs.named_columns import MEANINGS
from traces.logs.source import Head

__all__ = ["DATED_S", "Floats", "LoggedRun", "Rows", "read_logged", "read_rows"]

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]
"""Places of jobs in the log, or numbers of GPUs."""

_OURS = ("submit_s", "gpus", "duration_s")  # columns by which a native trace is recognised
DATED_S = 1e8  # a clock that reads more than this at the first submission counts from 1970
_FIELDS = ("tenant", "user", "partition", "qos", "gpu_type", "state")
_IN_DETAIL = ("dropped", "choices", "selection", "demand")  # parts of the import's report left out here


@dataclass(frozen=True)
class LoggedRun:
    """The jobs of a log in order of submission, with arrays of the same length: what became of them.

    Times are seconds on the trace's clock, which begins with the first submission. `start_s` and `end_s` are
    NaN where the log does not state them. `zero_s`: the first submission on the log's own clock. `account`:
    the report of the import (format, counts, reasons of dropped rows, times, assumptions). `zone`: that of
    its dates. `on_nodes`: where each job ran, on the trace's clock; empty if the log does not say.
    """

    jobs: tuple[Job, ...]
    start_s: Floats
    end_s: Floats
    zero_s: float
    account: Mapping[str, Any]
    zone: tzinfo = UTC
    on_nodes: tuple[tuple[OnNode, ...], ...] = ()

    @cached_property
    def submit_s(self) -> Floats:
        return np.array([job.submit_s for job in self.jobs])

    @cached_property
    def gpus(self) -> Rows:
        return np.array([job.gpus for job in self.jobs], dtype=np.int64)

    @cached_property
    def run_s(self) -> Floats:
        return np.array([job.duration_s for job in self.jobs])

    @cached_property
    def eligible_s(self) -> Floats:
        """When only the queue kept each job waiting: its submission where the log says nothing else."""
        stated = (job.submit_s if job.eligible_s is None else job.eligible_s for job in self.jobs)
        return np.array(list(stated))

    @cached_property
    def held_s(self) -> Floats:
        """How long each job was held back before that: by dependencies, limits of arrays, begin times."""
        return self.eligible_s - self.submit_s

    @cached_property
    def wait_s(self) -> Floats:
        """From when the job was eligible to its first start."""
        return self.start_s - self.eligible_s

    @cached_property
    def jct_s(self) -> Floats:
        """From the submission to the end. Where the log states no end, it is the start plus the run time."""
        return np.where(np.isnan(self.end_s), self.start_s + self.run_s, self.end_s) - self.submit_s

    def runs_of(self, rows: Rows) -> tuple[Floats, Floats, Rows]:
        """The starts, the run times and the GPUs of all runs of the jobs of these rows; of a job that was
        started again these are several.
        """
        starts_s, runs_s, gpus = (
            self.start_s[rows].tolist(),
            self.run_s[rows].tolist(),
            self.gpus[rows].tolist(),
        )
        for place, row in enumerate(rows.tolist() if any(job.attempts for job in self.jobs) else ()):
            attempts = _attempts(self.jobs[row])
            for attempt in attempts[:-1]:
                starts_s.append(attempt.start_s)
                runs_s.append(attempt.run_s)
                gpus.append(gpus[place])
            if attempts:
                starts_s[place] = attempts[-1].start_s
        return np.array(starts_s), np.array(runs_s), np.array(gpus, dtype=np.int64)

    @property
    def is_dated(self) -> bool:
        """Whether the log's clock counts from 1970, so that hours of the day are known."""
        return self.zero_s > DATED_S

    def hour(self) -> Rows:
        """The hour of the day of each submission: of the log's zone, or from the zero of its own clock."""
        if self.is_dated and self.zone is not UTC:
            dates = (datetime.fromtimestamp(t, self.zone) for t in (self.submit_s + self.zero_s).tolist())
            return np.array([date.hour for date in dates], dtype=np.int64)
        return ((self.submit_s + self.zero_s) % 86400 // 3600).astype(np.int64)

    def part(self, only: str = "", since: str = "", before: str = "") -> LoggedRun:
        """The jobs with `only` (FIELD=VALUE), submitted from the date `since` to before the date `before`.

        The clock of the result begins with its first job. UserError for an unknown field, for a date that
        cannot be read, dates of a log without any, and a part without jobs.
        """
        mask = np.ones(len(self.jobs), dtype=bool)
        if only:
            field, equals, value = only.partition("=")
            if not equals or field not in _FIELDS:
                raise UserError(f"--only {shown(only)}: write FIELD=VALUE with one of {', '.join(_FIELDS)}")
            mask &= np.array([getattr(job, field) == value for job in self.jobs])
            if not mask.any():
                values = sorted({str(getattr(job, field)) for job in self.jobs if getattr(job, field)})
                raise UnknownName(field, shown(value), values)
        for option, text in (("--since", since), ("--before", before)):
            if text:
                at_s = self._moment(option, text)
                mask &= self.submit_s >= at_s if option == "--since" else self.submit_s < at_s
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        if not len(rows) or np.isnan(self.start_s[rows]).all():
            raise UserError("--only, --since, --before: leave no job with a start; widen them")
        first_s = float(self.submit_s[rows[0]])
        return replace(
            self,
            jobs=tuple(_later(self.jobs[i], -first_s) for i in rows),
            start_s=self.start_s[rows] - first_s,
            end_s=self.end_s[rows] - first_s,
            zero_s=self.zero_s + first_s,
            account={**self.account, **self._account_of(first_s, rows, only, since, before)},
            on_nodes=tuple(_shifted(self.on_nodes[i], first_s) for i in rows) if self.on_nodes else (),
        )

    def _moment(self, option: str, text: str) -> float:
        """A date on the trace's clock."""
        if not self.is_dated:
            raise UserError(f"{option} {shown(text)}: the log has no dates; use --from-s and --until-s")
        try:
            when = datetime.fromisoformat(text.strip())
        except ValueError:
            raise UserError(f"{option} {shown(text)}: is no date such as 2020-09-01") from None
        return (when if when.tzinfo else when.replace(tzinfo=self.zone)).timestamp() - self.zero_s

    def _account_of(self, first_s: float, rows: Rows, *texts: str) -> dict[str, Any]:
        names = zip(("--only", "--since", "--before"), texts, strict=True)
        selection = " ".join(f"{name} {text}" for name, text in names if text)
        sentence = f"{len(rows):,} of {len(self.jobs):,} jobs are kept: {selection}; others take no part"
        clock = {**self.account["clock"], "shift_s": self.account["clock"]["shift_s"] + first_s}
        return {"clock": clock, "assumptions": [*self.account["assumptions"], sentence]}


def read_logged(
    path: str | Path, options: ReadOptions | None = None, selection: Selection | None = None
) -> LoggedRun:
    """Read any log that `trace import` reads, or a native trace that states `logged_start_s`.

    Jobs run as logged: on their logged GPUs, for their logged run time, whatever model they name. Raises
    TableError for a log that cannot be used, or that states no start; UserError for unusable options.
    """
    options = options or ReadOptions()
    log, digest = read_rows(path, options)
    jobs, report = convert(log, None, 0, selection or Selection())
    zero_s = report["clock"]["shift_s"]
    rows = {row.job_id: row for row in log.jobs}
    starts_s = _array([job.logged_start_s for job in jobs])
    if np.isnan(starts_s).all():
        raise TableError(_no_starts(path, log.format))
    account = {name: value for name, value in report.items() if name not in _IN_DETAIL}
    return LoggedRun(
        jobs=tuple(_as_logged(job) for job in jobs),
        start_s=starts_s,
        end_s=_array([rows[job.job_id].logged_end_s for job in jobs]) - zero_s,
        zero_s=zero_s,
        account={
            "format": log.format,
            "file": Path(path).name,
            "sha256": digest,
            "time_zone": options.time_zone or "UTC",
            **account,
        },
        zone=time_zone(options.time_zone),
        on_nodes=tuple(_shifted(rows[job.job_id].on_nodes, zero_s) for job in jobs),
    )


def _shifted(spans: tuple[OnNode, ...], zero_s: float) -> tuple[OnNode, ...]:
    return tuple(span._replace(from_s=span.from_s - zero_s, until_s=span.until_s - zero_s) for span in spans)


def read_rows(path: str | Path, options: ReadOptions) -> tuple[Log, str]:
    """The rows of any log that `trace import` reads, or of a native trace; and the hash of its bytes."""
    with open_log(path) as opened:
        if options.columns is None and options.log_format is None and set(_OURS) <= set(opened.head.columns):
            options = replace(options, columns=_native_columns(opened.head))
        log, digest = read(opened, options), opened.sha256()
    if log.clusters:
        listed = ", ".join(f"{shown(name)} {count:,}" for name, count in log.clusters.items())
        first_name = next(iter(log.clusters))
        problem = f"{path}: holds jobs of {len(log.clusters)} clusters ({listed}), which share no GPUs"
        raise UserError(f"{problem}; keep one: --log-cluster {shown(first_name)}")
    return log, digest


def _native_columns(head: Head) -> str:
    """The columns of a native trace as `--columns` names them."""
    return ",".join(f"{name}={name}" for name in MEANINGS if name in head.columns)


def _attempts(job: Job) -> tuple[Attempt, ...]:
    return () if job.attempts is None else parse_attempts(job.attempts)


def _array(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _later(job: Job, by_s: float) -> Job:
    names = ("logged_start_s", "begin_s", "eligible_s", "cancel_s")
    times: dict[str, Any] = {
        name: time_s + by_s for name in names if (time_s := getattr(job, name)) is not None
    }
    if job.attempts is not None:
        runs = parse_attempts(job.attempts)
        later = (run._replace(start_s=run.start_s + by_s, end_s=run.end_s + by_s) for run in runs)
        times["attempts"] = attempts_text(tuple(later))
    return replace(job, submit_s=job.submit_s + by_s, **times)


def _as_logged(job: Job) -> Job:
    """The job with its GPUs and run time as its work, and nothing that would make it elastic or urgent."""
    return replace(job, model=None, global_batch=None, iterations=None, deadline_s=None)


def _no_starts(path: object, log_format: str) -> str:
    problem = f"{path}: states no start of any job (format {log_format}), so no wait is known to compare with"
    remedy = "name it with --columns ...,start_s=COLUMN or wait_s=COLUMN if the log has it"
    return f"{problem}; {remedy}, or simulate without comparing: clustersim trace import, then clustersim run"
