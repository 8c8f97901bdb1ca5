"""Time slicing in turns."""

from __future__ import annotations

from itertools import count

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number
from policies.toolkit.rounds import TimeSlices

__all__ = ["RoundRobin"]


class RoundRobin(Scheduler):
    """In turns of `quantum_s` seconds, preemptive: who has had a turn goes to the end of the line; a job that
    does not fit is skipped and keeps its place.

    Kleinrock, "Analysis of a time-shared processor", Naval Research Logistics Quarterly 1964.
    """

    def __init__(self, quantum_s: float = 600.0):
        self.quantum_s = number("quantum_s", quantum_s, least=1)
        self._slices = TimeSlices(self.quantum_s)
        self._ticket = count()
        self._place: dict[JobView, int] = {}

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._place.pop(event.job, None)
        for job in self._slices.expired(state):
            self._place[job] = next(self._ticket)
        proposal = state.proposal()
        proposal.run_by(self._line)
        self._slices.request_wake_up(proposal, state)
        return proposal

    def _line(self, job: JobView) -> int:
        """The place in line, a new job's the last."""
        if job not in self._place:
            self._place[job] = next(self._ticket)
        return self._place[job]
