"""A simulation that begins in the middle: jobs that run already keep running, the others wait."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from clustersim.cluster import Placement
from clustersim.errors import PolicyError
from clustersim.scheduler import Event, JobView, Proposal, Scheduler, State

__all__ = ["Resumed"]


class Resumed(Scheduler):
    """The policy of a site, from the moment `now_s` on.

    Before, the jobs of `places` get these GPUs when they are submitted, which is when they started in truth,
    and no other job starts. So at `now_s` every job has run and waited for as long as in truth. The policy
    then sees all submissions up to there as events of one instant. Jobs in the system are never declined.

    Once the job `target` has GPUs nothing else is of interest, and no further job starts. `started_s`: when
    that was, infinite if it never was. `earlier`: the jobs that got GPUs from `now_s` on and before it.
    `unplaced`: jobs of `places` for which there was no room.
    """

    def __init__(self, site: Scheduler, now_s: float, places: Mapping[str, Placement], target: str):
        self.planner, self.one_gpu_type, self.elastic = site.planner, site.one_gpu_type, site.elastic
        self.equal_nodes = site.equal_nodes
        self.leaves_idle = site.leaves_idle
        self.started_s = inf
        self.earlier: dict[str, None] = {}
        self.unplaced: list[str] = []
        self._site, self._now_s, self._places, self._target = site, now_s, places, target
        self._before: list[Event] = []

    def admit(self, job: JobView, state: State) -> bool:
        return job.submit_s < self._now_s or self._site.admit(job, state)

    def refusal(self, job: JobView) -> str:
        return "" if job.submit_s < self._now_s else self._site.refusal(job)

    def schedule(self, state: State) -> Proposal:
        if state.now < self._now_s:
            return self._past(state)
        if self.started_s < inf:
            return state.proposal()
        if self._before:
            state.events[:0] = self._before
            self._before.clear()
            self.unplaced = [job.id for job in state.pending if job.id in self._places]
        proposal = self._decided(state)
        started = [job.id for job, place in proposal.changes.items() if place and not job.running]
        if self._target in started:
            self.started_s = state.now
            started.remove(self._target)
        self.earlier.update(dict.fromkeys(started))
        return proposal

    def _decided(self, state: State) -> Proposal:
        """What the site's policy proposes. Some policies look up notes that they made as a job started."""
        try:
            return self._site.schedule(state)
        except KeyError as error:
            if not isinstance(error.args[0], JobView):
                raise
            name = type(self._site).__name__
            problem = f"{name} knows running jobs from their start alone, and cannot begin with a state"
            raise PolicyError(f"{problem}; choose another policy") from None

    def _past(self, state: State) -> Proposal:
        self._before += [event for event in state.events if event.kind == "submitted"]
        proposal = state.proposal()
        for job in list(state.pending):
            if job.id in self._places:
                proposal.start(job, on=self._places[job.id] or None)
        proposal.wake_at = self._now_s
        return proposal
