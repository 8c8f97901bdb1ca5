"""How long users say that their jobs take, and EASY's reservation: when the job at the head of the queue can
start at the latest, and who may start before it without being in its way.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, PolicyError, Proposal, State

from .parameters import number

__all__ = ["Estimates", "Shadow"]


class Estimates:
    """Run times at the requested GPUs, in seconds, as users would estimate them.

    A job that states its work is estimated exactly. For one of which only the logged duration is known the
    estimate is `factor` times that (from the oracle, noted in the records): the f-model of Mu'alem and
    Feitelson, IEEE TPDS 2001. Estimates are upper bounds (`factor` >= 1), since batch systems end jobs that
    exceed theirs.
    """

    def __init__(self, factor: float):
        self.factor = number("estimate_factor", factor, least=1)
        self._excess_s: dict[JobView, float] = {}

    def keep_up(self, state: State) -> None:
        """First thing in every decision: by how much a job's estimate exceeds the truth depends on all its
        work, so that is noted before some of it is done.
        """
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                self._excess(event.job)
            elif event.kind == "finished" and event.job is not None:
                self._excess_s.pop(event.job, None)

    def run_s(self, job: JobView) -> float:
        """Seconds that a job which waits will hold GPUs once it gets them, its start included."""
        return job.start_cost_s(job.requested) + job.oracle_remaining() + self._excess(job)

    def end_s(self, job: JobView, now: float) -> float:
        """When a job will be done: one that runs, or one that would start now."""
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
    """The reservation of `head`, which has no room in `proposal` now.

    `start_s`, the shadow time, is when enough of the running jobs will have ended, by the estimates; infinite
    if there is no room for it even then. It is found in a draft of that moment, so that it holds for the
    places of GPUs, not only for their number.
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
        """Start `job` now if there is room and the head can still start at `start_s`."""
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
