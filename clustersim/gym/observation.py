"""What an agent sees: arrays of the cluster and of the first waiting jobs, and which actions are possible."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from math import isfinite, log1p
from typing import NamedTuple, TypedDict

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, State
from itertime.errors import UserError

__all__ = ["CLUSTER_FEATURES", "JOB_FEATURES", "WAIT", "Observation", "Observer", "StartChoice", "stated_s"]

WAIT = 0
"""The action that lets time pass."""

MOST_JOBS, MOST_SIZES = 10_000, 100

JOB_FEATURES = {
    "present": "1; 0 in rows without a job",
    "gpus": "GPUs asked for, as a share of the GPUs in service",
    "run_time": "stated run time on the request, log scale; 0 if the job states none",
    "states_time": "1 if the job states its run time, by iterations or an estimate",
    "service": "GPUs asked for times run time, as a share of an hour of the cluster, log scale",
    "waited": "time since the submission, log scale",
    "has_deadline": "1 if the job has a deadline",
    "slack": "time to the deadline after the stated run time, log scale; 0 if none is left",
    "fits": "1 if the request has a place now",
}
"""The columns of `jobs`, all within 0 and 1."""

CLUSTER_FEATURES = {
    "free": "free GPUs, as a share of those in service",
    "in_service": "GPUs in service, as a share of the cluster",
    "running": "running jobs, log scale",
    "waiting": "waiting jobs, log scale",
    "beyond": "waiting jobs beyond the window, as a share of all waiting jobs",
    "demand": "GPUs asked for by the waiting jobs of the window, over those in service, log scale",
}
"""The entries of `cluster`, all within 0 and 1."""

_LONGEST_S, _MOST_COUNTED, _MOST_HOURS = 1e9, 1e6, 1e6


class Observation(TypedDict):
    """`cluster` (len(CLUSTER_FEATURES),), `jobs` (window, len(JOB_FEATURES)), `action_mask` (actions,)."""

    cluster: NDArray[np.float32]
    jobs: NDArray[np.float32]
    action_mask: NDArray[np.int8]


class StartChoice(NamedTuple):
    """What an agent may choose from. `starts`: the job and GPU count of every action but `WAIT`, None if it
    is not possible.
    """

    observation: Observation
    starts: Sequence[tuple[JobView, int] | None]

    def start_of(self, action: int) -> tuple[JobView, int] | None:
        """What an action starts; None to let time pass. An action that is not possible lets time pass; where
        that is not possible either, the first possible job starts.
        """
        chosen_start = self.starts[action - 1] if action != WAIT else None
        if chosen_start is None and not self.observation["action_mask"][WAIT]:
            return next(start for start in self.starts if start is not None)
        return chosen_start


class Observer:
    """Turns a state and a draft into a `StartChoice`.

    `window`: how many waiting jobs are seen, those submitted first. `sizes`: the GPU counts that each may
    start on, as multiples of its request; each is rounded to a useful count of the job, at least the
    smallest. Action 0 lets time pass; action 1 + k * len(sizes) + i starts the k-th job on the i-th size.
    Letting time pass is not possible while no job runs, so that every episode ends. UserError.
    """

    def __init__(self, window: int = 16, sizes: Sequence[float] = (1.0,)):
        if not (isinstance(window, int) and 1 <= window <= MOST_JOBS):
            raise UserError(f"window={window!r}: must be an integer from 1 to {MOST_JOBS}")
        if not 1 <= len(sizes) <= MOST_SIZES or not all(isfinite(s) and s > 0 for s in sizes):
            raise UserError(
                f"sizes={sizes!r}: must be one to {MOST_SIZES} positive numbers, as in [0.5, 1, 2]"
            )
        self.window, self.sizes = window, tuple(float(size) for size in sizes)
        self.actions = 1 + window * len(self.sizes)

    @property
    def observation_space(self) -> spaces.Dict:
        """The space of `Observation`."""
        return spaces.Dict(
            {
                "cluster": spaces.Box(0.0, 1.0, (len(CLUSTER_FEATURES),), np.float32),
                "jobs": spaces.Box(0.0, 1.0, (self.window, len(JOB_FEATURES)), np.float32),
                "action_mask": spaces.MultiBinary(self.actions),
            }
        )

    @property
    def action_space(self) -> spaces.Discrete:
        """The space of actions."""
        return spaces.Discrete(self.actions)

    def empty(self) -> Observation:
        """The observation after the end: no job, nothing possible but to wait."""
        mask = np.zeros(self.actions, np.int8)
        mask[WAIT] = 1
        return {
            "cluster": np.zeros(len(CLUSTER_FEATURES), np.float32),
            "jobs": np.zeros((self.window, len(JOB_FEATURES)), np.float32),
            "action_mask": mask,
        }

    def choice(self, state: State, proposal: Proposal, started: set[JobView]) -> StartChoice | None:
        """What can be chosen now, after the jobs in `started` have places in the draft; None if no visible
        job can start.
        """
        if proposal.full:
            return None
        waiting = [job for job in islice(state.pending, self.window + len(started)) if job not in started][
            : self.window
        ]
        starts = [start for job in waiting for start in self._starts(job, proposal)]
        if not any(starts):
            return None
        seen = self.empty()
        mask = seen["action_mask"]
        mask[1 : 1 + len(starts)] = [start is not None for start in starts]
        mask[WAIT] = bool(proposal.running())
        per_job = len(self.sizes)
        in_service = max(1, state.in_service)
        rows = [
            _job_row(job, state.now, in_service, any(starts[i * per_job : (i + 1) * per_job]))
            for i, job in enumerate(waiting)
        ]
        seen["jobs"][: len(rows)] = rows
        seen["cluster"][:] = _cluster_row(state, proposal, waiting, len(started))
        return StartChoice(seen, [*starts, *[None] * (self.actions - 1 - len(starts))])

    def _starts(self, job: JobView, proposal: Proposal) -> list[tuple[JobView, int] | None]:
        counts = [self._count(job, size) for size in self.sizes]
        fits = {count: proposal.fits(count if len(counts) > 1 else job.needs, None, job) for count in counts}
        return [(job, count) if fits[count] else None for count in counts]

    def _count(self, job: JobView, size: float) -> int:
        """The largest useful count up to that multiple of the request, or the smallest useful one."""
        if size == 1.0:
            return job.requested
        useful = job.sizes
        size_index = bisect_left(useful, job.requested * size + 0.5)
        return useful[max(0, size_index - 1)]


def _log(value: float, maximum: float) -> float:
    return min(1.0, log1p(max(0.0, value)) / log1p(maximum))


def _job_row(job: JobView, now: float, in_service: int, fits: bool) -> tuple[float, ...]:
    run_s = stated_s(job)
    seconds = run_s or 0.0
    deadline_s = job.deadline_s
    slack_s = 0.0 if deadline_s is None else deadline_s - now - seconds
    hours = job.requested * seconds / in_service / 3600.0
    return (
        1.0,
        min(1.0, job.requested / in_service),
        _log(seconds, _LONGEST_S),
        float(run_s is not None),
        _log(hours * 1e3, _MOST_HOURS),
        _log(now - job.submit_s, _LONGEST_S),
        float(deadline_s is not None),
        _log(slack_s, _LONGEST_S),
        float(fits),
    )


def stated_s(job: JobView) -> float | None:
    """Seconds on the request by what the user states, iterations or an estimate; None without either."""
    return job.remaining() if isfinite(job.work_left) else job.estimate_s


def _cluster_row(
    state: State, proposal: Proposal, waiting: Sequence[JobView], started: int
) -> tuple[float, ...]:
    in_service, waits = max(1, state.in_service), len(state.pending) - started
    return (
        min(1.0, proposal.free / in_service),
        min(1.0, state.in_service / state.cluster.gpus),
        _log(len(proposal.running()), _MOST_COUNTED),
        _log(waits, _MOST_COUNTED),
        max(0.0, (waits - len(waiting)) / max(1, waits)),
        _log(sum(job.requested for job in waiting) / in_service, _MOST_COUNTED),
    )
