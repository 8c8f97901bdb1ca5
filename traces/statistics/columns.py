"""The jobs of a trace as columns of numbers, in order of submission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from traces.job import Job, submission_order

__all__ = ["DAY_S", "HOUR_S", "JobColumns"]

HOUR_S, DAY_S = 3600.0, 86_400.0
_EPOCH_WEEKDAY = 3  # 1 January 1970 was a Thursday; Monday is 0

Numbers = NDArray[np.float64]
Names = NDArray[np.str_]


@dataclass(frozen=True)
class JobColumns:
    """One row a job; all arrays have the shape (jobs,). NaN and "" stand for what a job does not state.

    | column | unit | meaning |
    |---|---|---|
    | submit_s | s | time of submission on the trace's clock, ascending |
    | gap_s | s | since the submission before; NaN for the first |
    | gpus | GPUs | the request, else the least |
    | run_s | s | the run time |
    | estimate_s, wait_s | s | the user's estimate of the run time; from submission to logged start |
    | tenant, user, state | | as the trace states them |
    | owner | | number of the tenant or, in a trace of one tenant, of the user |

    `zero_s` is the time since 1970 at which the trace's clock starts; None if it is not known, and then the
    hours of the day and the days of the week count from the start of the clock.
    """

    submit_s: Numbers
    gap_s: Numbers
    gpus: Numbers
    run_s: Numbers
    estimate_s: Numbers
    wait_s: Numbers
    tenant: Names
    user: Names
    state: Names
    owner: NDArray[np.intp]
    zero_s: float | None = None

    @classmethod
    def of(cls, jobs: Iterable[Job], zero_s: float | None = None) -> Self:
        """The columns of jobs in any order. Raises UserError if there are none."""
        rows = submission_order(jobs)
        if not rows:
            raise UserError("a trace without jobs has no statistics")

        def numbers(values: Iterable[float | int | None]) -> Numbers:
            return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

        submits = numbers(job.submit_s for job in rows)
        tenant = np.array([job.tenant for job in rows])
        user = np.array([job.user or "" for job in rows])
        owner = user if (tenant == tenant[0]).all() and (user != "").any() else tenant
        return cls(
            submit_s=submits,
            gap_s=np.concatenate([[np.nan], np.diff(submits)]),
            gpus=numbers(job.gpus or job.min_gpus for job in rows),
            run_s=numbers(job.duration_s for job in rows),
            estimate_s=numbers(job.estimate_s for job in rows),
            wait_s=numbers(job.logged_start_s for job in rows) - submits,
            tenant=tenant,
            user=user,
            state=np.array([job.state or "" for job in rows]),
            owner=np.unique(owner, return_inverse=True)[1],
            zero_s=zero_s,
        )

    def __len__(self) -> int:
        return len(self.submit_s)

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """The jobs that are chosen. A gap stays the one to the submission before, chosen or not."""
        parts = {f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name != "zero_s"}
        return type(self)(**parts, zero_s=self.zero_s)

    @cached_property
    def gpu_s(self) -> Numbers:
        """GPU-seconds of each job; 0 where it states no run time or no GPUs."""
        return np.nan_to_num(self.gpus * self.run_s)

    @property
    def span_s(self) -> float:
        """From the first submission to the last."""
        return float(self.submit_s[-1] - self.submit_s[0])

    @cached_property
    def hour(self) -> NDArray[np.intp]:
        """Hour of the day of each submission, 0 to 23."""
        return ((self._moment_s // HOUR_S) % 24).astype(np.intp)

    @cached_property
    def weekday(self) -> NDArray[np.intp]:
        """Day of the week of each submission, Monday 0; without `zero_s` the first day of the clock is 0."""
        weekday_of_zero = _EPOCH_WEEKDAY if self.zero_s is not None else 0
        return ((self._moment_s // DAY_S + weekday_of_zero) % 7).astype(np.intp)

    @property
    def _moment_s(self) -> Numbers:
        return self.submit_s + (self.zero_s or 0.0)

    @cached_property
    def per_hour(self) -> Numbers:
        """Submissions in each whole hour of the trace, from the first submission on; shape (hours,)."""
        hours = int(self.span_s // HOUR_S)
        if not hours:
            return np.array([len(self)], dtype=np.float64)
        since = self.submit_s - self.submit_s[0]
        return np.histogram(since, bins=hours, range=(0.0, hours * HOUR_S))[0].astype(np.float64)
