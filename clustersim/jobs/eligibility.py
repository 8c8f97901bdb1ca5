"""The part of a job that says when it may have GPUs, and what it lost when it began anew."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EarlierRun", "Eligibility"]


class EarlierRun(NamedTuple):
    """A run after which a job begins anew: its seconds, why it ends, and how long the job is then held."""

    run_s: float
    reason: str
    pause_s: float


class Eligibility:
    """The times at which one job was held: in the system, but not to be run yet. A job without this part is
    eligible from its submission on, and never began anew.

    | attribute | |
    |---|---|
    | `first_s` | when it became eligible for the first time; None until then |
    | `since_s` | when it became eligible for the last time; None while it is held |
    | `held_s` | seconds that it was held, of the holds that are over |
    | `requeues` | how often it lost its GPUs and all of its work |
    | `lost_work_s`, `lost_work_gpu_s` | the work lost there, in seconds and in GPU-seconds |
    | `earlier_runs` | the runs ahead of the last one, the present one first |
    | `last_work`, `left_at_end`, `failure` | work of the last run, and how it ends, while others are ahead |
    """

    __slots__ = (
        "earlier_runs",
        "failure",
        "first_s",
        "held_s",
        "last_work",
        "left_at_end",
        "lost_work_gpu_s",
        "lost_work_s",
        "requeues",
        "since_s",
    )

    def __init__(self, eligible_s: float | None):
        """`eligible_s`: None for a job that is held from its submission on."""
        self.first_s = self.since_s = eligible_s
        self.held_s = self.lost_work_s = self.lost_work_gpu_s = 0.0
        self.requeues = 0
        self.earlier_runs: list[EarlierRun] = []
        self.last_work = self.left_at_end = 0.0
        self.failure = ""

    def begin(self, now: float) -> None:
        """The job is eligible from `now` on."""
        self.since_s = now
        if self.first_s is None:
            self.first_s = now

    def lose(self, lost_s: float, lost_gpu_s: float, now: float) -> None:
        """The job lost all of its work at `now`, and waits again."""
        self.lost_work_s += lost_s
        self.lost_work_gpu_s += lost_gpu_s
        self.requeues += 1
        self.since_s = now
