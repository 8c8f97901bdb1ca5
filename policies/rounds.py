"""Scheduling in rounds: a policy that compares everybody with everybody does so at the beginning of a round
and leaves the cluster alone until the next one.
"""

from __future__ import annotations

from math import inf

from clustersim.scheduler import Proposal, State

__all__ = ["Rounds"]

_INSTANT_S = 1e-6  # an end this close is reached: the engine's clock adds up differences


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
