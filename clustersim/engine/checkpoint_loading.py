"""Jobs that load their checkpoints at the same time, from storage that they share."""

from __future__ import annotations

from math import inf
from typing import Any

from clustersim.jobs import CheckpointedJob
from clustersim.overheads import SharedStorage
from clustersim.records import LOADED

from .enactment import Enactment
from .kernel import Kernel

__all__ = ["CheckpointLoading"]


class CheckpointLoading:
    """Shares the storage among the loading jobs of a simulation (see `Loads`).

    A job that must load first pays its other overheads, then loads at the bandwidth that it gets beside the
    other loads, then works. Only the beginning and the end of a load are events.
    """

    def __init__(self, kernel: Kernel, enactment: Enactment):
        self._kernel, self._enactment = kernel, enactment
        self._storage: SharedStorage[CheckpointedJob] = SharedStorage(kernel.overheads.storage_bytes_per_s)
        self._began_s: dict[CheckpointedJob, float] = {}
        self._generation = 0  # counts changes of the storage, so that an outdated end is recognised

    def expect(self, job: CheckpointedJob, fixed_s: float) -> None:
        """`job`, which has just got GPUs, begins to load in `fixed_s` seconds."""
        clock = self._kernel.clock
        job.ready_s, job.loads_from_s = inf, clock.now + fixed_s
        clock.after(fixed_s, [self._on_begin], (job, job.holds))

    def remaining_s(self, job: CheckpointedJob, now: float) -> float:
        """Seconds that the job still pays if no other load begins or ends."""
        if job in self._began_s:
            return self._storage.remaining_s(job, now)
        return job.loads_from_s - now + self._alone_s(job)

    def cancel(self, job: CheckpointedJob) -> None:
        """`job` loses the GPUs on which it loads. No effect if it does not load."""
        if job in self._began_s:
            self._end(job)

    def _on_begin(self, event: Any) -> None:
        job, holds = event.value
        if job.holds != holds:
            return  # it has lost its GPUs since
        now, overheads = self._kernel.clock.now, self._kernel.overheads
        size_bytes = overheads.scale * overheads.checkpoint_bytes(job.curve.parameters)
        self._storage.begin(job, size_bytes, overheads.load_limit(len(job.placement)), now)
        self._began_s[job] = now
        self._expect_end()

    def _on_end(self, event: Any) -> None:
        if event.value != self._generation:
            return  # another load has begun or ended since
        first = self._storage.next_end()
        assert first is not None
        job, now = first[1], self._kernel.clock.now
        loaded_s = now - self._began_s[job]
        self._end(job)
        self._enactment.expect_completion(job, job.become_ready(now), now)
        self._kernel.recorder.event(now, LOADED, job.job.job_id, overhead_s=loaded_s)

    def _end(self, job: CheckpointedJob) -> None:
        self._storage.end(job, self._kernel.clock.now)
        del self._began_s[job]
        self._expect_end()

    def _expect_end(self) -> None:
        self._generation += 1
        first = self._storage.next_end()
        if first is not None:
            clock = self._kernel.clock
            clock.after(first[0] - clock.now, [self._on_end], self._generation)

    def _alone_s(self, job: CheckpointedJob) -> float:
        return self._kernel.overheads.load_s(job.curve.parameters, len(job.placement or ()))
