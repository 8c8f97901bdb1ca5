"""A job that saves checkpoints, loses unsaved work in failures, and may end before its work is done."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from clustersim.cluster import Placement
from clustersim.overheads import Cycle, Overheads
from clustersim.records import START
from clustersim.speed import Curve
from traces.job import Job

from .active import ActiveJob

__all__ = ["CheckpointedJob", "Loads"]

_NEVER = Cycle()


class Loads(Protocol):
    """The loads of checkpoints from a storage that jobs share."""

    def expect(self, job: CheckpointedJob, fixed_s: float) -> None:
        """`job`, which has just got GPUs, begins to load in `fixed_s` seconds."""

    def cancel(self, job: CheckpointedJob) -> None:
        """`job` loses the GPUs on which it loads. No effect if it does not load."""

    def remaining_s(self, job: CheckpointedJob, now: float) -> float:
        """Seconds that the job still pays if no other load begins or ends."""


class CheckpointedJob(ActiveJob):
    """An active job that goes through the cycles of `cycle` while it runs.

    | attribute | |
    |---|---|
    | `phase_s` | seconds into a cycle at `since_s` |
    | `saved_left` | work left as of the last complete save, periodic saves included |
    | `unsaved_s` | seconds of work done since that save |
    | `holds` | counts allocations and releases, so that an outdated load is recognised |
    | `must_load` | whether the allocation begins with a load from shared storage |
    | `ready_s` | infinite until that load ends |
    | `failure` | why the job will end before its work is done, "" if it will not |
    | `never_done` | units of work left at that end; policies do not know it |
    | `stops_left` | units of work left when the job ends, or reaches the end of a phase |
    | `done_s` | when the job is expected to be done |
    """

    __slots__ = (
        "_cycle_of", "_loads", "cycle", "done_s", "failure", "holds", "interruptions", "loads_from_s",
        "lost_work_gpu_s", "lost_work_s", "must_load", "never_done", "phase_s", "stops_left", "unsaved_s",
    )  # fmt: skip

    def __init__(
        self, job: Job, order: int, curve: Curve, requested: int, note: str, *,
        cycle_of: Callable[[Placement], Cycle], loads: Loads | None, failure: str = "", share: float = 1.0,
    ):  # fmt: skip
        """`cycle_of`: how the job saves in a placement. `loads`: None unless jobs share the storage.
        `share`: the part of the work that is done when the `failure` ends the job.
        """
        super().__init__(job, order, curve, requested, note)
        self._cycle_of, self._loads = cycle_of, loads
        self.loads_from_s, self.holds, self.must_load = 0.0, 0, False
        self.cycle = _NEVER
        self.failure, self.never_done = failure, self.work * (1 - share)
        self.stops_left = self.never_done
        self.phase_s = self.unsaved_s = self.lost_work_s = self.lost_work_gpu_s = 0.0
        self.done_s = 0.0
        self.interruptions = 0

    def work_left_at(self, now: float) -> float:
        if self.placement is None or now <= self.ready_s or self.cycle.never:
            return super().work_left_at(now)
        ran_s = now - max(self.ready_s, self.since_s)
        worked_s = self.cycle.worked_s(self.phase_s + ran_s) - self.cycle.worked_s(self.phase_s)
        return max(0.0, self.work_left - worked_s / self.unit_s)

    def settle(self, now: float) -> None:
        """As for every job; the seconds of periodic saves count as overhead."""
        ran_s = 0.0 if self.placement is None else max(0.0, now - max(self.ready_s, self.since_s))
        super().settle(now)
        if not ran_s:
            return
        cycle, end_s = self.cycle, self.phase_s + ran_s
        worked_s = cycle.worked_s(end_s) - cycle.worked_s(self.phase_s)
        saving_s = ran_s - worked_s
        self.lost_s += saving_s
        self.overhead_gpu_s += saving_s * self.held
        saved_s = cycle.saved_s(end_s)
        if saved_s > 0:
            self.unsaved_s = cycle.worked_s(end_s) - saved_s
            self.saved_left = self.work_left + self.unsaved_s / self.unit_s
        else:
            self.unsaved_s += worked_s
        self.phase_s = cycle.phase_s(end_s)

    def hold(self, placement: Placement, gpus: int, unit_s: float, now: float, overhead_s: float) -> float:
        self._end_hold()
        super().hold(placement, gpus, unit_s, now, overhead_s)
        self.cycle = self._cycle_of(placement)
        self.phase_s = self.unsaved_s = 0.0
        if self.must_load and self._loads is not None:
            self._loads.expect(self, overhead_s)
        return self._expected_end_s()

    def let_go(self) -> None:
        self._end_hold()
        super().let_go()

    def _end_hold(self) -> None:
        self.holds += 1
        if self._loads is not None:
            self._loads.cancel(self)

    def become_ready(self, now: float) -> float:
        """The checkpoint is loaded. Returns the time at which the job will be done."""
        self.settle(now)
        self.ready_s = now
        return self._expected_end_s()

    def save_owed_at(self, now: float) -> float:
        """As for every job; what periodic saves have saved by `now` is not owed."""
        ran_s = 0.0 if self.placement is None else now - max(self.ready_s, self.since_s)
        end_s = self.phase_s + ran_s
        saved_s = self.cycle.saved_s(end_s) if ran_s > 0 else 0.0
        if not saved_s:
            return super().save_owed_at(now)
        left, unsaved_s = self.work_left_at(now), self.cycle.worked_s(end_s) - saved_s
        return 1.0 if left < left + unsaved_s / self.unit_s else 0.0

    def paying_s(self, now: float) -> float:
        if self.ready_s < inf or self._loads is None:
            return super().paying_s(now)
        return self._loads.remaining_s(self, now)

    def change_speed(self, unit_s: float, now: float) -> float:
        super().change_speed(unit_s, now)
        return self._expected_end_s()

    def _expected_end_s(self) -> float:
        work_s = max(0.0, self.work_left - self.stops_left) * self.unit_s
        cycle = self.cycle
        ran_s = cycle.elapsed_s(cycle.worked_s(self.phase_s) + work_s) - self.phase_s if work_s else 0.0
        self.done_s = max(self.ready_s, self.since_s) + max(0.0, ran_s)
        return self.done_s

    def crash(self) -> float:
        """Lose all unsaved work. Returns the seconds that it took."""
        lost_s = self.unsaved_s
        self.work_left = self.saved_left
        self.lost_s += lost_s
        self.lost_work_s += lost_s
        self.lost_work_gpu_s += lost_s * self.held
        self.unsaved_s = 0.0
        self.interruptions += 1
        return lost_s

    def charge_s(self, overheads: Overheads, kind: str, gpus: int, nodes: int) -> float:
        """As for every job, but without a load from shared storage, whose duration depends on other loads."""
        paid_s, parameters = super().charge_s(overheads, kind, gpus, nodes), self.curve.parameters
        self.must_load = kind != START and self.work_left < self.work and overheads.shares_load(parameters)
        return paid_s - overheads.load_s(parameters, nodes) if self.must_load else paid_s
