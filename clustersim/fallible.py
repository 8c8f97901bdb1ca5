"""A job in a world where nodes and jobs fail: it saves checkpoints, loses what it did not save, and may end
before its work is done.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .active import ActiveJob
from .checkpoints import Cycle
from .cluster import Placement
from .overheads import Overheads

if TYPE_CHECKING:
    from .adversity import Adversity

__all__ = ["FallibleJob"]

_NEVER = Cycle()


class FallibleJob(ActiveJob):
    """An active job that goes through the cycles of `cycle` while it runs.

    `phase_s`: how far into a cycle it was at `since_s`. `saved_left`: work left as of the last complete save;
    what it has done since then took `unsaved_s` seconds. `crashed`: a failure took its GPUs last, and nothing
    was saved then.
    `holds` counts what it was given and lost. `must_load`: with its present GPUs comes a load that shares the
    storage; infinite `ready_s` until that is done.
    `fate`: why it will end before it has finished, "" if it will not; then `never_done` units of its work
    are left, of which no policy knows.
    """

    __slots__ = (
        "adversity", "crashed", "cycle", "done_s", "fate", "holds", "interruptions", "loads_from_s",
        "lost_work_gpu_s", "lost_work_s", "must_load", "never_done", "phase_s", "saved_left",
        "unsaved_s",
    )  # fmt: skip

    def begin_life(self, adversity: Adversity, fate: str = "", share: float = 1.0) -> None:
        """`share` of its work will be done when its fate comes."""
        self.adversity, self.loads_from_s, self.holds, self.must_load = adversity, 0.0, 0, False
        self.cycle = _NEVER
        self.crashed, self.fate, self.never_done = False, fate, self.work * (1 - share)
        self.phase_s = self.unsaved_s = self.lost_work_s = self.lost_work_gpu_s = 0.0
        self.saved_left = self.work
        self.done_s = 0.0
        self.interruptions = 0

    def work_left_at(self, now: float) -> float:
        if self.placement is None or now <= self.ready_s or self.cycle.never:
            return super().work_left_at(now)
        ran_s = now - max(self.ready_s, self.since_s)
        worked_s = self.cycle.worked_s(self.phase_s + ran_s) - self.cycle.worked_s(self.phase_s)
        return max(0.0, self.work_left - worked_s / self.unit_s)

    def settle(self, now: float) -> None:
        """As of every job; the seconds of periodic saves are overhead."""
        ran_s = 0.0 if self.placement is None else max(0.0, now - max(self.ready_s, self.since_s))
        super().settle(now)
        if not ran_s:
            return
        cycle, end_s = self.cycle, self.phase_s + ran_s
        worked_s = cycle.worked_s(end_s) - cycle.worked_s(self.phase_s)
        saving_s = ran_s - worked_s
        self.lost_s += saving_s
        self.overhead_gpu_s += saving_s * self.gpus
        saved_s = cycle.saved_s(end_s)
        if saved_s > 0:
            self.unsaved_s = cycle.worked_s(end_s) - saved_s
            self.saved_left = self.work_left + self.unsaved_s / self.unit_s
        else:
            self.unsaved_s += worked_s
        self.phase_s = cycle.phase_s(end_s)

    def hold(self, placement: Placement, gpus: int, unit_s: float, now: float, overhead_s: float) -> float:
        self._lose_hold()
        super().hold(placement, gpus, unit_s, now, overhead_s)
        self.cycle = self.adversity.cycle(self.curve.parameters, placement)
        self.phase_s, self.unsaved_s, self.saved_left = 0.0, 0.0, self.work_left
        self.crashed = False
        if self.must_load and self.adversity.loading is not None:
            self.adversity.loading.expect(self, overhead_s)
        return self._done_s()

    def let_go(self) -> None:
        self._lose_hold()
        super().let_go()

    def _lose_hold(self) -> None:
        self.holds += 1
        if self.adversity.loading is not None:
            self.adversity.loading.cancel(self)

    def become_ready(self, now: float) -> float:
        """Its checkpoint is loaded; returns the time at which the job will be done."""
        self.settle(now)
        self.ready_s = now
        return self._done_s()

    def paying_s(self, now: float) -> float:
        loading = self.adversity.loading
        return super().paying_s(now) if self.ready_s < inf or loading is None else loading.left_s(self, now)

    def change_speed(self, unit_s: float, now: float) -> float:
        super().change_speed(unit_s, now)
        return self._done_s()

    def _done_s(self) -> float:
        work_s = max(0.0, self.work_left - self.never_done) * self.unit_s
        cycle = self.cycle
        ran_s = cycle.elapsed_s(cycle.worked_s(self.phase_s) + work_s) - self.phase_s if work_s else 0.0
        self.done_s = max(self.ready_s, self.since_s) + max(0.0, ran_s)
        return self.done_s

    def crash(self) -> float:
        """Lose the work that no save holds; returns the seconds in which it had been done."""
        lost_s = self.unsaved_s
        self.work_left = self.saved_left
        self.lost_s += lost_s
        self.lost_work_s += lost_s
        self.lost_work_gpu_s += lost_s * self.gpus
        self.unsaved_s = 0.0
        self.crashed = True
        self.interruptions += 1
        return lost_s

    def overhead_s(self, overheads: Overheads, kind: str, gpus: int, nodes: int) -> float:
        """As of every job; without the load, where that shares the storage and takes an unknown time."""
        parameters, loads = self.curve.parameters, kind != "start"
        if self.crashed:
            loads = self.work_left < self.work
            paid_s = overheads.recover_s(parameters, nodes, gpus, saved=loads)
        else:
            paid_s = super().overhead_s(overheads, kind, gpus, nodes)
        self.must_load = loads and overheads.shares_load(parameters)
        return paid_s - overheads.load_s(parameters, nodes) if self.must_load else paid_s
