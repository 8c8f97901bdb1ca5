"""The jobs of a cluster at one moment: which run, which wait, which are held back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from clustersim.backtest.logged import read_rows
from itertime.errors import TableError, UserError
from itertime.io import shown
from traces.job import submission_key
from traces.logs import ReadOptions
from traces.logs.cells import moment, time_zone
from traces.logs.log import Log, LoggedJob

__all__ = ["LiveState", "end_of", "is_limited", "moment_of", "read_state", "state_at"]

_GOING = (
    "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
)  # fmt: skip
"""States of jobs that hold GPUs (squeue(1)); a log can state a run time so far for them, which is no end."""

_HELD = (
    "JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime", "BadConstraints",
    "InvalidAccount", "InvalidQOS", "PartitionInactive", "PartitionDown",
)  # fmt: skip
"""Slurm's reasons of jobs that no free GPU would start (slurm.schedmd.com/job_reason_codes.html)."""

_LIMITED = ("Assoc", "QOS", "Quota", "JobArrayTaskLimit")
"""How Slurm's reasons begin that name a limit of an association, a QOS or an array."""

_DATED_S = 1e8  # a clock that reads more than this counts from 1970


@dataclass(frozen=True)
class LiveState:
    """The jobs that run, wait and are held back at `now_s`, each in order of submission, with the rows of the
    log; and those that had `ended`.

    Times are seconds on the log's own clock. `zone`: that of dates. `stated_now`: whether the user states
    `now_s`; else it is the latest moment in the log. `source`: file, format, hash and counts, as JSON.
    """

    now_s: float
    running: tuple[LoggedJob, ...]
    waiting: tuple[LoggedJob, ...]
    held: tuple[LoggedJob, ...]
    ended: tuple[LoggedJob, ...]
    zone: tzinfo
    stated_now: bool
    source: Mapping[str, Any]
    assumptions: tuple[str, ...] = ()

    @property
    def is_dated(self) -> bool:
        """Whether the clock counts from 1970."""
        return self.now_s > _DATED_S

    @property
    def limited(self) -> int:
        """The jobs that wait for a limit of an account, a QOS or an array, by their stated reason."""
        return sum(map(is_limited, self.waiting))

    def moment(self, time_s: float) -> str:
        """A time as the log writes it: a date, or seconds on its clock.

        >>> from datetime import UTC
        >>> LiveState(1714564800.0, (), (), (), (), UTC, True, {}).moment(1714564800.0)
        '2024-05-01 12:00:00'
        """
        if not self.is_dated:
            return f"t={time_s:,.0f} s"
        return datetime.fromtimestamp(time_s, self.zone).strftime("%Y-%m-%d %H:%M:%S")


def read_state(path: str | Path, options: ReadOptions | None = None, now: str | None = None) -> LiveState:
    """Read the jobs of a live system, or those of any other log at the moment `now`.

    `now`: a date or seconds of the log's clock; by default the latest moment that a live log states. Raises
    TableError for a log that cannot be used or in which no job runs or waits, UserError for options.
    """
    options = options or ReadOptions()
    now_s = None if now is None else moment_of("--now", now, options)
    log, digest = read_rows(path, options)
    state = state_at(log, now_s, time_zone(options.time_zone), {"file": Path(path).name, "sha256": digest})
    if not state.running and not state.waiting:
        problem = (
            f"at {state.moment(state.now_s)} no job of it runs or waits ({len(state.ended):,} had ended)"
        )
        how = "print the live jobs (squeue, kubectl), or name an earlier moment of a log with --now"
        raise TableError(f"{path}: {problem}; {how}")
    return state


def moment_of(option: str, text: str, options: ReadOptions) -> float:
    """A moment that an option states. UserError if it is none."""
    try:
        return moment(text, "s", time_zone(options.time_zone))
    except ValueError as error:
        raise UserError(f"{option} {shown(text)}: {error}") from None


def state_at(log: Log, now_s: float | None, zone: tzinfo, source: Mapping[str, Any]) -> LiveState:
    """The state of a log's jobs at a moment, by default the latest that the log states.

    A job runs if it had started by then and had not ended, and waits if it had been submitted and had not
    started. Nothing that the log says of later times is used. UserError for a moment before the first
    submission.
    """
    first_s = min(job.submit_s for job in log.jobs)
    moment_is_stated = now_s is not None
    if now_s is None:
        now_s = max(time_s for job in log.jobs for time_s in _moments(job))
    if now_s < first_s:
        raise UserError(f"--now {now_s:.15g}: lies before the first submission, {first_s:.15g}")
    running, waiting, held, ended = (list[LoggedJob]() for _ in range(4))
    later = 0
    for job in sorted(log.jobs, key=lambda job: submission_key(job.submit_s, job.job_id)):
        end_s = end_of(job)
        if job.submit_s > now_s:
            later += 1
        elif end_s is not None and end_s <= now_s:
            ended.append(job)
        elif job.logged_start_s is not None and job.logged_start_s <= now_s:
            running.append(job)
        elif job.state == "Inactive" or (job.reason or "").partition(",")[0] in _HELD:
            held.append(job)
        else:
            waiting.append(job)
    dropped = Counter(row.kind or row.reason for row in log.dropped)
    return LiveState(
        now_s,
        tuple(running),
        tuple(waiting),
        tuple(held),
        tuple(ended),
        zone,
        moment_is_stated,
        {
            **source,
            "format": log.format,
            "rows": len(log.jobs) + len(log.dropped),
            "running": len(running),
            "waiting": len(waiting),
            "held": len(held),
            "ended": len(ended),
            "submitted_later": later,
            "dropped_by_reason": dict(dropped.most_common()),
        },
        log.assumptions,
    )


def _moments(job: LoggedJob) -> Iterable[float]:
    yield job.submit_s
    if job.logged_start_s is not None:
        yield job.logged_start_s
    if job.duration_s is not None and job.logged_start_s is not None:
        yield job.logged_start_s + job.duration_s  # of a job that still runs, as far as the log goes
    if (end_s := end_of(job)) is not None:
        yield end_s


def is_limited(job: LoggedJob) -> bool:
    """Whether a job waits for a limit of an account, a QOS or an array, by its stated reason. The limit of an
    array that the state names is simulated, and is none of these.
    """
    return job.array_limit is None and (job.reason or "").startswith(_LIMITED)


def end_of(job: LoggedJob) -> float | None:
    """When a job ended, None if the log does not say so."""
    if (job.state or "").upper() in _GOING:
        return None
    if job.logged_end_s is not None:
        return job.logged_end_s
    if job.logged_start_s is None or job.duration_s is None:
        return None
    return job.logged_start_s + job.duration_s
