"""Round robin."""

from __future__ import annotations

from itertools import count

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number
from policies.toolkit.rounds import TimeSlices

__all__ = ["RoundRobin"]


class RoundRobin(Scheduler):
    """Time slices of `quantum_s` seconds, preemptive: a job goes to the end of the queue after its slice;
    a job that does not fit is skipped and keeps its place.

    Kleinrock, "Analysis of a time-shared processor", Naval Research Logistics Quarterly 1964.
    """

    def __init__(self, quantum_s: float = 600.0):
        self.quantum_s = number("quantum_s", quantum_s, minimum=1)
        self._slices = TimeSlices(self.quantum_s)
        self._positions = count()
        self._position: dict[JobView, int] = {}

    def schedule(self, state: State) -> Proposal:
        self.end_slices(state)
        proposal = state.proposal()
        proposal.run_by(self.queue_position)
        self._slices.request_wake_up(proposal, state)
        return proposal

    def end_slices(self, state: State) -> bool:
        """Send the jobs whose slice is over to the end of the queue. Returns whether there are any."""
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._position.pop(event.job, None)
        expired = self._slices.expired(state)
        for job in expired:
            self._position[job] = next(self._positions)
        return bool(expired)

    def queue_position(self, job: JobView) -> int:
        """The position in the queue; a new job's is the last."""
        if job not in self._position:
            self._position[job] = next(self._positions)
        return self._position[job]
