"""Backfilling: estimates of run times, and the reservation of the first job in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from math import inf

from clustersim.scheduler import JobView, PolicyError, Proposal, State

from .parameters import number

__all__ = ["RunTimeEstimates", "Shadow", "start_types"]

CORRECTIONS_S = (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
"""By how much an estimate that has run out is extended, time after time; the last step is repeated."""


class RunTimeEstimates:
    """Run times at the requested GPUs, in seconds, as users would estimate them.

    A job's estimate is the first of these that applies:

    1. `estimate_s`, the estimate of its user;
    2. the exact run time, if the job states its work;
    3. `factor` times the logged duration, taken from the oracle and noted in the records: the f-model of
       Mu'alem and Feitelson, IEEE TPDS 2001. `factor` is at least 1, an upper bound.

    A job that outlives its user's estimate keeps running. The estimate is then extended by 1 minute, later by
    5, 15 and 30 minutes, and by 1, 2, 5, 10, 20, 50 and 100 hours, as in Tsafrir, Etsion and Feitelson,
    "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS 18(6),
    2007. Extensions depend on the excess alone, so they need no memory.
    """

    def __init__(self, factor: float):
        self.factor = number("estimate_factor", factor, minimum=1)
        self._excess_s: dict[JobView, float] = {}
        self._expiries: dict[JobView, float] = {}
        self._any_stated: bool | None = None  # whether any job had an estimate of its user so far
        self.expired = False

    def update(self, state: State) -> None:
        """To be called first in every decision: the excess of an estimate over the true run time depends on
        all of a job's work, so it is noted before the job makes progress.

        Sets `expired`: whether an estimate has run out since the last `watch`, and its job still runs.
        """
        self.expired = any(job.running and end_s <= state.now for job, end_s in self._expiries.items())
        if self._any_stated is None:
            self._any_stated = any(job.estimate_s is not None for job in (*state.running, *state.pending))
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                if event.job.estimate_s is None:
                    self._excess(event.job)
                else:
                    self._any_stated = True
            elif event.kind == "finished" and event.job is not None:
                self._excess_s.pop(event.job, None)

    def run_s(self, job: JobView, gpu_type: str | None = None) -> float:
        """Seconds for which a pending job will hold its GPUs, its start included. `gpu_type`: their type,
        where the job can run on several; an estimate is that of the type on which the job is fastest.
        """
        if gpu_type is not None:
            return self._run_on_s(job, gpu_type)
        if job.estimate_s is None:
            return job.start_cost_s(job.requested) + job.oracle_remaining() + self._excess(job)
        return job.start_cost_s(job.requested) + _extended(job.estimated_remaining(), 0.0)

    def _run_on_s(self, job: JobView, gpu_type: str) -> float:
        gpus = job.requested_on(gpu_type)
        slowdown = job.rate(job.requested) / job.rate(gpus, gpu_type)
        remaining_s = job.oracle_remaining() if job.estimate_s is None else job.estimated_remaining()
        start_s = job.change_cost_s(gpus, gpu_type)
        if job.estimate_s is None:
            return start_s + remaining_s * slowdown + self._excess(job)
        return start_s + _extended(remaining_s * slowdown, 0.0)

    def end_s(self, job: JobView, now: float, proposal: Proposal | None = None) -> float:
        """When a job ends that runs already, or starts now, as in `proposal`."""
        if not job.running:
            several = proposal is not None and len(job.gpu_types) > 1
            return now + self.run_s(job, proposal.gpu_type(job) if proposal and several else None)
        if job.estimate_s is None:
            return now + job.paying_s + job.oracle_remaining() + self._excess(job)
        expiry_s = job.estimated_end_s()
        if expiry_s <= now:
            return _extended(expiry_s, now)
        return now + job.paying_s + job.estimated_remaining()

    def start(self, job: JobView, proposal: Proposal, now: float, gpu_type: str | None = None) -> bool:
        """Start a pending job where it fits and where its estimated end comes before nodes are planned to be
        closed to it. Returns whether it started. `gpu_type`: of its GPUs; if None, the first with room.
        """
        if not proposal.plans_closures:
            return proposal.start(job, gpu_type=gpu_type) is not None
        return any(
            proposal.start(job, gpu_type=name, until_s=now + self.run_s(job, name)) is not None
            for name in (start_types(job) if gpu_type is None else (gpu_type,))
        )

    def watch(self, proposal: Proposal, now: float) -> float:
        """When the first estimate of a job in `proposal` runs out, extensions included: from then on the
        policy should plan with an extended one. Infinite if no running job has an estimate of its user.
        """
        if not self._any_stated:
            return inf
        self._expiries = {
            job: _extended(job.estimated_end_s(), now)
            for job in proposal.running()
            if job.estimate_s is not None
        }
        return min(self._expiries.values(), default=inf)

    def _note_excess(self, job: JobView) -> None:
        whole_s = 0.0 if _states_work(job) else job.oracle_remaining() + job.productive_s
        self._excess_s[job] = (self.factor - 1) * whole_s

    def _excess(self, job: JobView) -> float:
        if self.factor == 1.0:
            return 0.0
        if job not in self._excess_s:  # it ran before the first decision, as in a scene for `decide`
            self._note_excess(job)
        return self._excess_s[job]


def start_types(job: JobView) -> tuple[str | None, ...]:
    """The GPU types on which a pending job may start, the first choice first; None for the only one."""
    return (None,) if len(job.gpu_types) == 1 else job.start_types


def _extended(time_s: float, now: float) -> float:
    """`time_s`, or the first time after `now` that extensions of an estimate which ends at `time_s` reach."""
    if time_s > now:
        return time_s
    return next(time_s + added_s for added_s in _extensions() if time_s + added_s > now)


def _extensions() -> Iterator[int]:
    """The sum of the first one, two, ... corrections."""
    return accumulate(chain(CORRECTIONS_S, repeat(CORRECTIONS_S[-1])))


def _states_work(job: JobView) -> bool:
    try:
        job.remaining()
    except PolicyError:
        return False
    return True


class Shadow:
    """EASY's reservation for `head`, the first job of the queue, which does not fit in `proposal` now.

    `start_s`, the shadow time, is when enough of the running jobs have ended by their estimates; infinite if
    `head` does not fit even after all of them. The search stops jobs in a draft, so it accounts for the
    location of GPUs and not only for their number. It knows when nodes are planned to be closed, and to open.
    """

    def __init__(self, head: JobView, proposal: Proposal, estimates: RunTimeEstimates, now: float):
        self.head, self.now = head, now
        self._proposal, self._estimates = proposal, estimates
        self._planned = proposal.plans_closures
        self._later = proposal.copy()
        ends: list[tuple[float, int, JobView | None]] = [
            (estimates.end_s(job, now, proposal), job.order, job) for job in proposal.running()
        ]
        events = [*ends, *((time_s, -1, None) for time_s in proposal.openings_s())]
        self.start_s = inf
        for end_s, _, job in sorted(events, key=lambda event: event[:2]):
            if end_s > self.start_s:
                break
            if self._planned:
                self._later = self._later.later(end_s)
            if job is not None:
                self._later.stop(job)
            if self.start_s == inf and self._has_room(end_s):
                self.start_s = end_s

    def backfill(self, job: JobView) -> bool:
        """Start `job` now if it fits and `head` can still start at `start_s`, on the first of its GPU types
        where that is so. Returns whether it started.
        """
        if len(job.gpu_types) == 1:
            return self._backfill_on(job, None)
        return any(self._backfill_on(job, gpu_type) for gpu_type in job.start_types)

    def _backfill_on(self, job: JobView, gpu_type: str | None) -> bool:
        if self.now + self._estimates.run_s(job, gpu_type) <= self.start_s:
            return self._start(self._proposal, job, self.now, gpu_type)
        if job.needs >= 1 and job.requested > self._later.free - self.head.requested:
            return False
        if not self._start(self._proposal, job, self.now, gpu_type):
            return False
        places = self._proposal.placement(job)
        assert places is not None
        if self._planned and not self._later.has_room(job, places):
            return True  # a reservation that preempts it begins before the head starts
        self._later.start(job, on=places)
        if self._has_room(self.start_s):
            return True
        self._later.stop(job)
        self._proposal.stop(job)
        return False

    def _start(self, draft: Proposal, job: JobView, time_s: float, gpu_type: str | None) -> bool:
        if self._planned:
            return self._estimates.start(job, draft, time_s, gpu_type)
        return draft.start(job, gpu_type=gpu_type) is not None

    def _has_room(self, time_s: float) -> bool:
        """Whether `head` fits at `time_s`. A start tells, as only it considers the types of GPUs that can run
        the job.
        """
        if not self._later.fits(self.head.needs) or not self._start(self._later, self.head, time_s, None):
            return False
        self._later.stop(self.head)
        return True
