"""When a policy decides: once a round, or at the ends of time slices.

A decision at every instant at which one job's priority passes another's would be processor sharing, with a
preemption each time. Policies that share GPUs over time therefore decide in rounds, and so do those that
compare every job with every other.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Rounds", "TimeSlices"]

_INSTANT_S = 1e-6  # an end this close is reached: the engine's clock adds up differences


class Rounds:
    """The clock of a policy that decides once per round of `round_s` seconds and otherwise changes nothing.

    A round begins when the previous one ends, or at once when no job runs, so that an idle cluster keeps no
    job waiting.
    """

    def __init__(self, round_s: float):
        self.round_s = round_s
        self._end_s = -inf

    def begins(self, state: State) -> bool:
        """Whether a round begins now."""
        if state.running and state.now < self._end_s - _INSTANT_S:
            return False
        self._end_s = state.now + self.round_s
        return True

    def until_end(self, proposal: Proposal, state: State) -> Proposal:
        """`proposal`, with a wake-up at the end of the round if there are jobs in the system."""
        if state.running or state.pending:
            proposal.wake_at = self._end_s
        return proposal


class TimeSlices:
    """The clock of a policy that slices time into rounds of `quantum_s` seconds while jobs wait.

    A job's slice lasts until the end of the first round by which the job has made progress for `quantum_s`
    seconds. The overhead of its start does not count: otherwise jobs that take longer to restart than a round
    would preempt each other endlessly without making progress.
    """

    def __init__(self, quantum_s: float):
        self.quantum_s = quantum_s
        self._end_s = -inf

    def expired(self, state: State) -> list[JobView]:
        """At the end of a round, the running jobs that have used up their slice, in order of their start.
        Empty between the ends of rounds.
        """
        if state.now < self._end_s - _INSTANT_S:
            return []
        self._end_s = state.now + self.quantum_s
        return [job for job in state.running if job.productive_s >= self.quantum_s - _INSTANT_S]

    def request_wake_up(self, proposal: Proposal, state: State) -> None:
        """Wake the policy at the end of this round if any job is pending."""
        if state.pending:
            proposal.wake_at = self._end_s
