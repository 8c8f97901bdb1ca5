"""Rewards: what the time between two decisions is worth. Their sum over an episode is the metric."""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.scheduler import JobView, State
from itertime.errors import UnknownName

from .observation import stated_s

__all__ = ["REWARDS", "RewardMeter"]

REWARDS: Mapping[str, str] = {
    "jct": "minus the job-hours in the system; the sum is minus the sum of all completion times, in hours",
    "wait": "minus the job-hours of waiting jobs",
    "slowdown": "minus the sum of completion times, each over the stated run time; 0 for jobs without",
    "makespan": "minus the hours that pass",
    "utilization": "the hours that pass, times the share of the cluster's GPUs that jobs hold",
    "deadlines": "1 for each job with a deadline that leaves the system by then",
}
"""The rewards by name, and what they are."""

_HOUR_S = 3600.0


class RewardMeter:
    """Integrates a reward over the periods between decisions, in which no job comes, starts or ends."""

    def __init__(self, reward: str):
        if reward not in REWARDS:
            raise UnknownName("reward", reward, REWARDS)
        self.reward = reward
        self._earned, self._per_second = 0.0, 0.0
        self._since_s: float | None = None
        self._inverse_s: dict[JobView, float] = {}  # 1 / stated run time of the jobs in the system

    def before(self, state: State) -> None:
        """Count the period that ends now, and the jobs that ended with it."""
        if self._since_s is not None:
            self._earned += self._per_second * (state.now - self._since_s)
        self._since_s = state.now
        if self.reward == "deadlines":
            ended = (
                event.job for event in state.events if event.kind == "finished" and event.job is not None
            )
            self._earned += sum(job.deadline_s is not None and state.now <= job.deadline_s for job in ended)

    def after(self, state: State, running: int, held: int) -> None:
        """Note what holds from now on: how many jobs have GPUs, and how many GPUs they hold."""
        present = len(state.pending) + len(state.running)
        if self.reward == "jct":
            self._per_second = -present / _HOUR_S
        elif self.reward == "wait":
            self._per_second = -(present - running) / _HOUR_S
        elif self.reward == "makespan":
            self._per_second = -1.0 / _HOUR_S if present else 0.0
        elif self.reward == "utilization":
            self._per_second = held / state.cluster.gpus / _HOUR_S
        elif self.reward == "slowdown":
            self._per_second = -self._slowing(state)

    def _slowing(self, state: State) -> float:
        """The sum of 1 / run time, as stated at first sight, of the jobs in the system."""
        inverse_s = self._inverse_s
        for job in state.pending:
            if job not in inverse_s:
                seconds = stated_s(job)
                inverse_s[job] = 1.0 / seconds if seconds else 0.0
        return sum(inverse_s[job] for job in (*state.pending, *state.running))

    def take(self) -> float:
        """What was earned since the last call."""
        earned, self._earned = self._earned, 0.0
        return earned
