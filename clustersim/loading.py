"""Jobs that load their checkpoints at the same time, in the course of a simulation."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from .fallible import FallibleJob
from .storage import Storage

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["Loading"]


class Loading:
    """Shares the storage among the jobs of a simulation that load.

    A job that has to load first pays what it does not share, then loads for as long as the others leave it
    to, then works. Only the beginning and the end of a load are events.
    """

    def __init__(self, simulation: Simulation):
        self._simulation = simulation
        self._storage: Storage[FallibleJob] = Storage(simulation.overheads.storage_bytes_per_s)
        self._began_s: dict[FallibleJob, float] = {}
        self._expected = 0  # counts what was expected, so that an outdated end is recognised

    def expect(self, active: FallibleJob, fixed_s: float) -> None:
        """`active`, which has just been given GPUs, begins to load in `fixed_s` seconds."""
        now = self._simulation.clock.now
        active.ready_s, active.loads_from_s = inf, now + fixed_s
        self._simulation.clock.after(fixed_s, [self._on_begin], (active, active.holds))

    def left_s(self, active: FallibleJob, now: float) -> float:
        """Seconds that a job still pays if nothing else begins or ends to load."""
        if active in self._began_s:
            return self._storage.left_s(active, now)
        return active.loads_from_s - now + self._alone_s(active)

    def cancel(self, active: FallibleJob) -> None:
        """`active` loses the GPUs on which it loads, if it does."""
        if active in self._began_s:
            self._end(active)

    def _on_begin(self, event: Any) -> None:
        active, holds = event.value
        if active.holds != holds:
            return  # it has lost its GPUs since
        now, overheads = self._simulation.clock.now, self._simulation.overheads
        size_bytes = overheads.scale * overheads.checkpoint_bytes(active.curve.parameters)
        self._storage.begin(active, size_bytes, overheads.load_limit(len(active.placement)), now)
        self._began_s[active] = now
        self._expect_end()

    def _on_end(self, event: Any) -> None:
        if event.value != self._expected:
            return  # another load has begun or ended since
        first = self._storage.next_end()
        assert first is not None
        simulation, active = self._simulation, first[1]
        now = simulation.clock.now
        loaded_s = now - self._began_s[active]
        self._end(active)
        simulation.enactment.expect_completion(active, active.become_ready(now), now)
        simulation.recorder.event(now, "loaded", active.job.job_id, overhead_s=loaded_s)

    def _end(self, active: FallibleJob) -> None:
        self._storage.end(active, self._simulation.clock.now)
        del self._began_s[active]
        self._expect_end()

    def _expect_end(self) -> None:
        self._expected += 1
        first = self._storage.next_end()
        if first is not None:
            clock = self._simulation.clock
            clock.after(first[0] - clock.now, [self._on_end], self._expected)

    def _alone_s(self, active: FallibleJob) -> float:
        return self._simulation.overheads.load_s(active.curve.parameters, len(active.placement or ()))
