"""Backfilling: estimates of run times, and the reservation of the first job in the queue."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, PolicyError, Proposal, State

from .parameters import number

__all__ = ["Estimates", "Shadow"]


class Estimates:
    """Run times at the requested GPUs, in seconds, as users would estimate them.

    The estimate of a job that states its work is exact. For a job with only a logged duration it is `factor`
    times that duration, taken from the oracle and noted in the records: the f-model of Mu'alem and Feitelson,
    IEEE TPDS 2001. Estimates are upper bounds (`factor` >= 1), since batch systems end jobs that exceed
    theirs.
    """

    def __init__(self, factor: float):
        self.factor = number("estimate_factor", factor, least=1)
        self._excess_s: dict[JobView, float] = {}

    def update(self, state: State) -> None:
        """To be called first in every decision: the excess of an estimate over the true run time depends on
        all of a job's work, so it is noted before the job makes progress.
        """
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                self._excess(event.job)
            elif event.kind == "finished" and event.job is not None:
                self._excess_s.pop(event.job, None)

    def run_s(self, job: JobView) -> float:
        """Seconds for which a pending job will hold its GPUs, its start included."""
        return job.start_cost_s(job.requested) + job.oracle_remaining() + self._excess(job)

    def end_s(self, job: JobView, now: float) -> float:
        """When a job ends that runs already, or starts now."""
        if not job.running:
            return now + self.run_s(job)
        return now + job.paying_s + job.oracle_remaining() + self._excess(job)

    def _note_excess(self, job: JobView) -> None:
        whole_s = 0.0 if _states_work(job) else job.oracle_remaining() + job.productive_s
        self._excess_s[job] = (self.factor - 1) * whole_s

    def _excess(self, job: JobView) -> float:
        if self.factor == 1.0:
            return 0.0
        if job not in self._excess_s:  # it ran before the first decision, as in a scene for `decide`
            self._note_excess(job)
        return self._excess_s[job]


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
    location of GPUs and not only for their number.
    """

    def __init__(self, head: JobView, proposal: Proposal, estimates: Estimates, now: float):
        self.head, self.now = head, now
        self._proposal, self._estimates = proposal, estimates
        self._later = proposal.copy()
        ends = [(estimates.end_s(job, now), job.order, job) for job in proposal.running()]
        self.start_s = inf
        for end_s, _, job in sorted(ends, key=lambda end: end[:2]):
            if end_s > self.start_s:
                break
            self._later.stop(job)
            if self.start_s == inf and self._later.fits(head.requested):
                self.start_s = end_s

    def backfill(self, job: JobView) -> bool:
        """Start `job` now if it fits and `head` can still start at `start_s`. Returns whether it started."""
        if self.now + self._estimates.run_s(job) <= self.start_s:
            return self._proposal.start(job) is not None
        if job.requested > self._later.free - self.head.requested:
            return False
        places = self._proposal.start(job)
        if places is None:
            return False
        self._later.start(job, on=places)
        if self._later.fits(self.head.requested):
            return True
        self._later.stop(job)
        self._proposal.stop(job)
        return False
