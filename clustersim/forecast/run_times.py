"""How long jobs run, drawn from what jobs of a history did with their time limits.

The rule, for each job that runs or waits

1. A job with a time limit runs for a ratio of it. Ratios are run time / limit of the jobs of the history that
   had ended and that state both.
2. The ratio is drawn from the jobs of its user if `ENOUGH` of them are possible, else from the jobs of its
   size (GPUs in the same range between powers of two), else from all. A ratio is possible if it is above
   elapsed / limit: a job that has run for five hours does not end after four.
3. If none is possible, the ratio is drawn evenly between elapsed / limit and 1. A job that has outlived its
   limit ends `OUTLIVED_S` later.
4. A job without limit has the run time of a job of the history instead, by the same order of groups. If none
   ran for as long as the job already has, it runs on for a time T, longer than t with the chance
   elapsed / (elapsed + t).

Without a history, the ratio is one number, by default 1; a job that has outlived it ends at its limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from clustersim.backtest.logged import Floats
from itertime.errors import UserError
from itertime.io import shown
from traces.logs.log import LoggedJob

__all__ = ["ENOUGH", "OUTLIVED_S", "RunTimes"]

ENOUGH = 20
"""Possible jobs from which a group is used."""
OUTLIVED_S = 60.0

_NONE: Floats = np.empty(0)


@dataclass
class RunTimes:
    """Draws run times.

    `ratios` and `times`: by group (a kind and a name), ascending: run time / limit, and run times in seconds.
    `ratio`: that of all jobs where there is no history. `default_limit_s`: that of jobs that state none.
    `file`: the name of the state, for messages. `used`: how many jobs were drawn from which kind of group.
    """

    ratios: dict[tuple[str, str], Floats] = field(default_factory=dict)
    times: dict[tuple[str, str], Floats] = field(default_factory=dict)
    ratio: float = 1.0
    default_limit_s: float | None = None
    file: str = "state"
    used: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        history: Iterable[LoggedJob] = (),
        ratio: float = 1.0,
        default_limit_s: float | None = None,
        file: str = "state",
    ) -> RunTimes:
        """From jobs that have ended; those without a run time tell nothing."""
        ratios: dict[tuple[str, str], list[float]] = {}
        times: dict[tuple[str, str], list[float]] = {}
        for job in history:
            if job.duration_s is None:
                continue
            for group in _groups(job):
                times.setdefault(group, []).append(job.duration_s)
                if job.estimate_s is not None:
                    ratios.setdefault(group, []).append(job.duration_s / job.estimate_s)
        sorted_ratios, sorted_times = (
            {group: np.sort(np.array(values)) for group, values in values_by_group.items()}
            for values_by_group in (ratios, times)
        )
        return cls(sorted_ratios, sorted_times, ratio, default_limit_s, file)

    @property
    def jobs(self) -> int:
        """The jobs of the history that state a run time."""
        return len(self.times.get(("all", ""), _NONE))

    @property
    def with_limit(self) -> int:
        """Those of them that state a time limit."""
        return len(self.ratios.get(("all", ""), _NONE))

    def limit_s(self, job: LoggedJob) -> float | None:
        """The time limit of a job, as policies see it."""
        return self.default_limit_s if job.estimate_s is None else job.estimate_s

    def drawn(self, job: LoggedJob, elapsed_s: float, uniforms: Floats) -> Floats:
        """A run time for each of these numbers between 0 and 1, all above `elapsed_s`, in seconds.

        UserError, with its line, for a job without a limit if there is no history.
        """
        limit_s = self.limit_s(job)
        if limit_s is None:
            return self._without_limit(job, elapsed_s, uniforms)
        elapsed_ratio = elapsed_s / limit_s
        if not self.with_limit:
            self.used["the stated ratio"] += 1
            ratio = self.ratio if self.ratio > elapsed_ratio else 1.0
            return np.full(
                len(uniforms), max(ratio * limit_s, elapsed_s + OUTLIVED_S * (elapsed_ratio >= ratio))
            )
        kind, possible = _possible(self.ratios, job, elapsed_ratio)
        if len(possible):
            self.used[kind] += 1
            return limit_s * _picked(possible, uniforms)
        if elapsed_ratio < 1:
            self.used["evenly up to the limit"] += 1
            return limit_s * (elapsed_ratio + (1 - elapsed_ratio) * uniforms) + 1e-3
        self.used["outlived its limit"] += 1
        return np.full(len(uniforms), elapsed_s + OUTLIVED_S)

    def _without_limit(self, job: LoggedJob, elapsed_s: float, uniforms: Floats) -> Floats:
        if not self.jobs:
            if not job.line:
                raise UserError("--time-limit: is missing, and there is no --history to draw a run time from")
            problem = f"{self.file}:{job.line}: job {shown(job.job_id)}: states no time limit"
            remedy = "give --history LOG, from which its run time is drawn, or --default-limit 24h"
            raise UserError(f"{problem}; {remedy}")
        kind, possible = _possible(self.times, job, elapsed_s)
        if len(possible):
            self.used[f"run time: {kind}"] += 1
            return _picked(possible, uniforms)
        self.used["run time: as long again"] += 1
        return elapsed_s / (1.0 - uniforms) + 1e-3


def _groups(job: LoggedJob) -> Sequence[tuple[str, str]]:
    """The groups of a job, the closest first. Where no user is stated, the tenant stands for it."""
    size = str((job.gpus - 1).bit_length())
    return ("user", job.user or job.tenant), ("size", size), ("all", "")


def _possible(history: dict[tuple[str, str], Floats], job: LoggedJob, above: float) -> tuple[str, Floats]:
    """The kind of the first group with enough values above a number, and these; else what all jobs have."""
    kind, possible = "all", _NONE
    for group in _groups(job):
        values = history.get(group, _NONE)
        kind, possible = group[0], values[np.searchsorted(values, above, side="right") :]
        if len(possible) >= ENOUGH:
            break
    return kind, possible


def _picked(values: Floats, uniforms: Floats) -> Floats:
    picked: Floats = values[(uniforms * len(values)).astype(np.int64)]
    return picked
