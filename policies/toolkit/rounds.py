"""Time slicing: when a running job has had its turn.

A decision at every instant at which one job's claim passes another's would be processor sharing, with a
preemption each time. Schedulers that share over time therefore decide in rounds.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Turns"]

_INSTANT_S = 1e-6  # a wake-up may come this much early: times are sums of times


class Turns:
    """Rounds of `quantum_s` seconds, kept up only while somebody waits.

    A turn lasts until the end of the first round by which the job has made progress for `quantum_s`: the
    overhead of its start does not count, or jobs whose restart takes longer than a round would change places
    for ever without getting anything done.
    """

    def __init__(self, quantum_s: float):
        self.quantum_s = quantum_s
        self._ends_s = -inf

    def over(self, state: State) -> list[JobView]:
        """At the end of a round, the running jobs that have had their turn, in order of their start; between
        the ends of rounds, nobody.
        """
        if state.now < self._ends_s - _INSTANT_S:
            return []
        self._ends_s = state.now + self.quantum_s
        return [job for job in state.running if job.productive_s >= self.quantum_s - _INSTANT_S]

    def wake(self, proposal: Proposal, state: State) -> None:
        """Ask to be called at the end of this round, if it can matter."""
        if state.pending:
            proposal.wake_at = self._ends_s
