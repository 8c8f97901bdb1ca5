"""Least attained service first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number
from policies.toolkit.rounds import TimeSlices

__all__ = ["Las"]


class Las(Scheduler):
    """Least attained service (GPU-seconds held so far) first, preemptive, in rounds of `quantum_s` seconds; a
    job that does not fit is skipped.

    Foreground-background scheduling: Nuyens and Wierman, "The foreground-background queue: a survey",
    Performance Evaluation 2008. It needs no knowledge of run times; new jobs pass all others.
    """

    def __init__(self, quantum_s: float = 600.0):
        self.quantum_s = number("quantum_s", quantum_s, minimum=1)
        self._slices = TimeSlices(self.quantum_s)
        self._rank: dict[JobView, float] = {}

    def schedule(self, state: State) -> Proposal:
        for job in self._slices.expired(state):
            self._rank[job] = job.attained
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._rank.pop(event.job, None)
        proposal = state.proposal()
        proposal.run_by(self._attained)
        self._slices.request_wake_up(proposal, state)
        return proposal

    def _attained(self, job: JobView) -> float:
        """The service attained; that of a running job, at the beginning of its time slice."""
        if not job.running:
            self._rank[job] = job.attained
        return self._rank[job]
