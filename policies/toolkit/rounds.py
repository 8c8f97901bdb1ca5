"""Policies that decide once a round, and time slicing.

A policy that compares everybody with everybody does so at the beginning of a round and leaves the cluster
alone until the next one. A decision at every instant at which one job's claim passes another's would be
processor sharing, with a preemption each time. Schedulers that share over time therefore decide in rounds.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Rounds", "Turns"]

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


class Rounds:
    """The clock of a policy that decides once per round of `round_s` seconds.

    A round begins when the one before it has ended, or at once when nothing runs, so that an idle cluster
    keeps nobody waiting.
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
        """`proposal`, to be thought over when the round ends, if there is anybody then."""
        if state.running or state.pending:
            proposal.wake_at = self._end_s
        return proposal
