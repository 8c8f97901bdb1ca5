"""Ways in which the simulator of ElasticFlow's artifact may differ from ours, as schedulers to try.

What its program prints for edf, dlas and gandiva is lower than what those orders reach here. Each class of
`InRounds` with its parameters is a guess at why; `experiments.elasticflow_traces` prints what they come to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, inf
from typing import Any

from clustersim.scheduler import JobView, Proposal, Scheduler, State

__all__ = ["MECHANISMS", "ORDERS", "InRounds"]

_MOMENT_S = 1e-3

ORDERS: Mapping[str, Callable[[JobView], float]] = {
    "edf": lambda job: inf if job.deadline_s is None else job.deadline_s,
    "dlas": lambda job: job.attained,
    "gandiva": lambda job: job.attained / job.requested,
}
"""By the artifact's names: earliest deadline first, least attained GPU time first, turns."""

MECHANISMS: Mapping[str, Mapping[str, Any]] = {
    "at every event": {"round_s": 0},
    "in rounds of 60 s": {"round_s": 60},
    "in rounds of 300 s": {"round_s": 300},
    "at every event, a change costs everybody a restart": {"round_s": 0, "all_pay": True},
    "in rounds of 300 s, a change costs everybody a restart": {"round_s": 300, "all_pay": True},
    "in rounds of 60 s, not preemptive, nobody passes, a change costs everybody a restart": {
        "round_s": 60, "preemptive": False, "passing": False, "all_pay": True,
    },
}  # fmt: skip


class InRounds(Scheduler):
    """Jobs in the order `order` (of `ORDERS`) on the GPUs they ask for, decided at multiples of `round_s`
    seconds, or at every event if that is 0; what becomes free in between stays free.

    `preemptive`: those who run are in line with the others, not before them. `passing`: who does not fit is
    passed by others. `all_pay`: where anything changes, all jobs stop for a moment and pay a restart.
    """

    def __init__(
        self, order: str, round_s: float, preemptive: bool = True, passing: bool = True, all_pay: bool = False
    ):
        self.order, self.round_s = order, round_s
        self.preemptive, self.passing, self.all_pay = preemptive, passing, all_pay
        self._key = ORDERS[order]
        self._begins_s = -inf  # the next round
        self._next: list[JobView] = []  # who starts after the moment in which all have stopped

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if self._next:
            for job in self._next:
                proposal.start(job)
            self._next = []
        elif state.now >= self._begins_s - _MOMENT_S:
            chosen = self._chosen(state)
            stopped = [job for job in state.running if job not in chosen]
            started = [job for job in chosen if not job.running]
            all_stop = self.all_pay and (stopped or started)
            for job in list(state.running) if all_stop else stopped:
                proposal.stop(job)
            if all_stop and state.running:
                self._next = chosen
                proposal.wake_at = state.now + _MOMENT_S
                return proposal
            for job in started:
                proposal.start(job)
        if self.round_s:
            self._begins_s = self.round_s * ceil((state.now + _MOMENT_S) / self.round_s)
            proposal.wake_at = self._begins_s
        return proposal

    def _chosen(self, state: State) -> list[JobView]:
        line = sorted(
            (*state.running, *state.pending),
            key=lambda job: (not self.preemptive and not job.running, self._key(job), job.order),
        )
        chosen, left = [], state.in_service
        for job in line:
            if job.requested <= left:
                chosen.append(job)
                left -= job.requested
            elif not self.passing:
                break
        return sorted(chosen, key=lambda job: -job.requested)
