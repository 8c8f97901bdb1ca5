"""Jobs that load their checkpoints at the same time, from storage that they share."""

from __future__ import annotations

from math import inf
from typing import cast

from clustersim.engine.clock import Due
from clustersim.engine.enactment import Enactment
from clustersim.engine.world import World
from clustersim.jobs import ActiveJob, Checkpoints
from clustersim.overheads import SharedStorage
from clustersim.records import LOADED

__all__ = ["CheckpointLoading"]


class CheckpointLoading:
    """Shares the storage among the loading jobs of a simulation (see `Loads`).

    A job that must load first pays its other overheads, then loads at the bandwidth that it gets beside the
    other loads, then works. Only the beginning and the end of a load are events.
    """

    def __init__(self, world: World, enactment: Enactment):
        self._world, self._enactment = world, enactment
        self._storage: SharedStorage[ActiveJob] = SharedStorage(world.overheads.storage_bytes_per_s)
        self._began_s: dict[ActiveJob, float] = {}
        self._generation = 0  # counts changes of the storage, so that an outdated end is recognised

    def expect(self, job: ActiveJob, fixed_s: float) -> None:
        """`job`, which has just got GPUs, begins to load in `fixed_s` seconds."""
        clock = self._world.clock
        checkpoints = _checkpoints_of(job)
        job.ready_s, checkpoints.loads_from_s = inf, clock.now + fixed_s
        clock.after(fixed_s, [self._on_begin], (job, checkpoints.hold_count))

    def remaining_s(self, job: ActiveJob, now: float) -> float:
        """Seconds that the job still pays if no other load begins or ends."""
        if job in self._began_s:
            return self._storage.remaining_s(job, now)
        return _checkpoints_of(job).loads_from_s - now + self._alone_s(job)

    def cancel(self, job: ActiveJob) -> None:
        """`job` loses the GPUs on which it loads. No effect if it does not load."""
        if job in self._began_s:
            self._end(job)

    def _on_begin(self, event: Due) -> None:
        job, hold_count = cast("tuple[ActiveJob, int]", event.value)
        if _checkpoints_of(job).hold_count != hold_count:
            return  # it has lost its GPUs since
        now, overheads = self._world.clock.now, self._world.overheads
        size_bytes = overheads.scale * overheads.checkpoint_bytes(job.curve.parameters)
        self._storage.begin(job, size_bytes, overheads.load_limit(len(job.placement or ())), now)
        self._began_s[job] = now
        self._expect_end()

    def _on_end(self, event: Due) -> None:
        if event.value != self._generation:
            return  # another load has begun or ended since
        next_end = self._storage.next_end()
        assert next_end is not None
        job, now = next_end[1], self._world.clock.now
        loaded_s = now - self._began_s[job]
        self._end(job)
        self._enactment.expect_completion(job, job.become_ready(now), now)
        self._world.note_change(job)
        self._world.recorder.event(now, LOADED, job.job.job_id, overhead_s=loaded_s)

    def _end(self, job: ActiveJob) -> None:
        self._storage.end(job, self._world.clock.now)
        del self._began_s[job]
        self._expect_end()

    def _expect_end(self) -> None:
        self._generation += 1
        self._world.facts.stamp += 1  # what the other loads still pay has changed
        for job in self._began_s:
            self._world.note_change(job)
        next_end = self._storage.next_end()
        if next_end is not None:
            clock = self._world.clock
            clock.after(next_end[0] - clock.now, [self._on_end], self._generation)

    def _alone_s(self, job: ActiveJob) -> float:
        return self._world.overheads.load_s(job.curve.parameters, len(job.placement or ()))


def _checkpoints_of(job: ActiveJob) -> Checkpoints:
    assert job.checkpoints is not None
    return job.checkpoints
