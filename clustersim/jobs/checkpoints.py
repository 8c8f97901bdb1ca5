"""The part of a job that saves checkpoints while it runs and loses unsaved work in failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from clustersim.cluster import Placement
from clustersim.overheads import Cycle

__all__ = ["Checkpoints", "Loads"]

_NEVER = Cycle()
LoadingJob = TypeVar("LoadingJob", contravariant=True)


class Loads(Protocol[LoadingJob]):
    """The loads of checkpoints from a storage that jobs share."""

    def expect(self, job: LoadingJob, fixed_s: float) -> None:
        """`job`, which has just got GPUs, begins to load in `fixed_s` seconds."""

    def cancel(self, job: LoadingJob) -> None:
        """`job` loses the GPUs on which it loads. No effect if it does not load."""

    def remaining_s(self, job: LoadingJob, now: float) -> float:
        """Seconds that the job still pays if no other load begins or ends."""


class Checkpoints:
    """The saves and loads of one job, which goes through the cycles of `cycle` while it runs.

    | attribute | |
    |---|---|
    | `cycle` | how the job saves on its present GPUs |
    | `offset_s` | seconds into a cycle as of the last `advance` |
    | `unsaved_s` | seconds of work done since the last complete save |
    | `loads` | the loads from the storage that jobs share; None unless they share it |
    | `hold_count` | counts allocations and releases, so that an outdated load is recognised |
    | `must_load` | whether the next allocation begins with a load from shared storage |
    | `loads_from_s` | when that load begins |
    | `interruptions` | how often the job failed |
    | `lost_work_s`, `lost_work_gpu_s` | the work lost in these failures, in seconds and in GPU-seconds |
    """

    __slots__ = (
        "_cycle_of",
        "cycle",
        "hold_count",
        "interruptions",
        "loads",
        "loads_from_s",
        "lost_work_gpu_s",
        "lost_work_s",
        "must_load",
        "offset_s",
        "unsaved_s",
    )

    def __init__(self, cycle_of: Callable[[Placement], Cycle], loads: Loads[Any] | None):
        """`cycle_of`: how the job saves in a placement. `loads`: None unless jobs share the storage."""
        self._cycle_of, self.loads = cycle_of, loads
        self.cycle = _NEVER
        self.offset_s = self.unsaved_s = self.loads_from_s = 0.0
        self.hold_count, self.must_load = 0, False
        self.interruptions = 0
        self.lost_work_s = self.lost_work_gpu_s = 0.0

    def begin_hold(self, placement: Placement) -> None:
        """The job gets GPUs."""
        self.cycle = self._cycle_of(placement)
        self.offset_s = self.unsaved_s = 0.0

    def end_hold(self, job: object) -> None:
        """The job gets other GPUs, or none."""
        self.hold_count += 1
        if self.loads is not None:
            self.loads.cancel(job)

    def worked_s(self, ran_s: float) -> float:
        """Seconds of work in the next `ran_s` seconds; in the others the job saves."""
        return self.cycle.worked_s(self.offset_s + ran_s) - self.cycle.worked_s(self.offset_s)

    def elapsed_s(self, work_s: float) -> float:
        """Seconds in which the next `work_s` seconds of work are done."""
        if not work_s:
            return 0.0
        cycle = self.cycle
        return max(0.0, cycle.elapsed_s(cycle.worked_s(self.offset_s) + work_s) - self.offset_s)

    def advance(self, ran_s: float) -> tuple[float, bool]:
        """The job has run for `ran_s` seconds. Returns the seconds in which it saved, and whether a save of
        this allocation is complete, so that all but the last `unsaved_s` seconds are saved.
        """
        cycle, end_s = self.cycle, self.offset_s + ran_s
        worked_s = cycle.worked_s(end_s) - cycle.worked_s(self.offset_s)
        saved_s = cycle.saved_s(end_s)
        if saved_s > 0:
            self.unsaved_s = cycle.worked_s(end_s) - saved_s
        else:
            self.unsaved_s += worked_s
        self.offset_s = cycle.offset_s(end_s)
        return ran_s - worked_s, saved_s > 0

    def unsaved_after_s(self, ran_s: float) -> float | None:
        """Seconds of work that periodic saves do not hold after another `ran_s` seconds; None if no such save
        is complete by then.
        """
        end_s = self.offset_s + ran_s
        saved_s = self.cycle.saved_s(end_s) if ran_s > 0 else 0.0
        return self.cycle.worked_s(end_s) - saved_s if saved_s else None

    def lose(self, gpus: float) -> float:
        """A job on `gpus` GPUs loses its unsaved work. Returns the seconds that it took."""
        lost_s, self.unsaved_s = self.unsaved_s, 0.0
        self.lost_work_s += lost_s
        self.lost_work_gpu_s += lost_s * gpus
        self.interruptions += 1
        return lost_s
