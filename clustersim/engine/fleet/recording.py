"""What one cluster of a fleet reports, as records of the fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from clustersim.cluster import Capacity, FleetMember, Placement, in_use, moved
from clustersim.records import EventRecord, InUse, MemoryRecorder, Recorder

__all__ = ["PartRecorder", "UseOfParts"]


class _Use(NamedTuple):
    """The use of one cluster, or of all: free GPUs, those of them on partly used nodes, millionths of shared
    GPUs that no job holds, jobs, GPUs down.
    """

    free: int
    stranded: int
    idle_millionths: int
    running: int
    pending: int
    down: int

    def in_use(self, in_service: int) -> tuple[float, float]:
        return in_use(in_service, self.free, self.stranded, self.idle_millionths)


class UseOfParts:
    """The use of a fleet, as the sum of what its clusters report. The last of an instant counts."""

    def __init__(self, recorder: Recorder, parts: tuple[FleetMember, ...]):
        self._recorder = recorder
        self._uses = {part.name: _Use(part.cluster.gpus, 0, 0, 0, 0, 0) for part in parts}
        self._changed_s: float | None = None

    def change(self, name: str, time_s: float, use: _Use) -> None:
        self.keep(time_s)
        self._uses[name] = use

    def keep(self, time_s: float) -> None:
        """Record the use at this time, too, even if no cluster reports any."""
        if self._changed_s is not None and self._changed_s != time_s:
            self.report()
        self._changed_s = time_s

    def report(self) -> None:
        """Record the use since the last change."""
        if self._changed_s is not None:
            total = _Use(*map(sum, zip(*self._uses.values(), strict=True)))
            self._recorder.snapshot(self._changed_s, total, total.running, total.pending, total.down)
            self._changed_s = None


class PartRecorder(MemoryRecorder):
    """The recorder of the simulation of one cluster. Its nodes get the numbers that they have in the fleet;
    everything else goes to the recorder of the fleet as it is. `decided` is called after each decision.
    """

    def __init__(self, recorder: Recorder, part: FleetMember, use: UseOfParts, decided: Callable[[], None]):
        super().__init__(part.cluster)
        self._whole, self._part, self._use, self._decided = recorder, part, use, decided
        self.plan, self.keep_job = recorder.plan, recorder.keep_job  # type: ignore[method-assign]
        self.request = recorder.request  # type: ignore[method-assign]

    def event(
        self,
        time_s: float,
        event: str,
        job_id: str,
        gpus: int = 0,
        placement: Placement = (),
        plan: str = "",
        overhead_s: float = 0.0,
        detail: str = "",
        unit_s: float = 0.0,
    ) -> EventRecord:
        first_node = self._part.first
        if placement and first_node:
            placement = moved(placement, first_node)
        return self._whole.event(time_s, event, job_id, gpus, placement, plan, overhead_s, detail, unit_s)

    def snapshot(self, time_s: float, capacity: InUse, running: int, pending: int, down: int = 0) -> None:
        assert isinstance(capacity, Capacity)
        use = _Use(capacity.free, capacity.stranded, capacity.idle_millionths, running, pending, down)
        self._use.change(self._part.name, time_s, use)
        self._decided()
