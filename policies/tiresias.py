"""Tiresias: least attained service, in a few queues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import increasing, number

__all__ = ["Tiresias"]

_INSTANT_S, _ROUNDING_GPU_S = 1e-6, 1e-3  # sums of times and of GPU-seconds are exact to within these


class Tiresias(Scheduler):
    """Discretised 2D-LAS: a job falls from queue to queue as its GPU-seconds pass `thresholds_gpu_s`; higher
    queues first, preemptive, each in order of submission; a job that does not fit is skipped.

    Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 3. A job
    that was preempted and has since waited `promote_knob` times as long as it ran goes back to the first
    queue (the paper's PROMOTEKNOB; None: never). Ten and a thousand GPU-hours are our choice for the
    thresholds, 8 for the knob.
    """

    def __init__(
        self,
        thresholds_gpu_s: Sequence[float] = (36_000.0, 3_600_000.0),
        promote_knob: float | None = 8.0,
    ):
        self.thresholds_gpu_s = increasing("thresholds_gpu_s", thresholds_gpu_s)
        self.promote_knob = None if promote_knob is None else number("promote_knob", promote_knob, least=0.01)
        self._forgiven: dict[JobView, float] = {}  # GPU-seconds attained before the last promotion
        self._promotion_s: dict[JobView, float] = {}  # when a preempted job is promoted
        self._promotions: list[tuple[float, int, JobView]] = []  # a heap: (time, order of submission, job)

    def schedule(self, state: State) -> Proposal:
        self._promote(state)
        proposal = state.proposal()
        proposal.run_by(self._queue)
        if state.pending:
            self._note_preempted(proposal, state)
            changes = [self._falls_s(job, state.now) for job in proposal.running()]
            changes += [time for time, _, _ in self._promotions[:1]]
            next_change_s = min(changes, default=inf)
            proposal.wake_at = next_change_s if next_change_s < inf else None
        return proposal

    def _service(self, job: JobView) -> float:
        """GPU-seconds attained since the last promotion."""
        return job.attained - self._forgiven.get(job, 0.0)

    def _queue(self, job: JobView) -> int:
        """0 for the first queue. While a job waits, only a promotion changes it."""
        return bisect_right(self.thresholds_gpu_s, self._service(job) + _ROUNDING_GPU_S)

    def _falls_s(self, job: JobView, now: float) -> float:
        """When a job that runs from now on falls into the next queue."""
        queue = self._queue(job)
        if queue == len(self.thresholds_gpu_s):
            return inf
        left_gpu_s = self.thresholds_gpu_s[queue] - self._service(job)
        return now + max(left_gpu_s / job.requested, _INSTANT_S)

    def _note_preempted(self, proposal: Proposal, state: State) -> None:
        """Schedule the promotion of the jobs that lose their GPUs now, or have just lost them to a
        failure.
        """
        if self.promote_knob is None:
            return
        lost = [event.job for event in state.events if event.kind in ("interrupted", "stopped")]
        for job in (*state.running, *lost):
            if job is not None and not proposal.gpus(job) and self._queue(job):
                patience_s = self.promote_knob * self._service(job) / job.requested
                self._promotion_s[job] = state.now + max(patience_s, _INSTANT_S)
                heappush(self._promotions, (self._promotion_s[job], job.order, job))

    def _promote(self, state: State) -> None:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._forgiven.pop(event.job, None)
                self._promotion_s.pop(event.job, None)
        waiting = state.pending_by(self._queue)
        while self._promotions and self._promotions[0][0] <= state.now + _INSTANT_S:
            due_s, _, job = heappop(self._promotions)
            if self._promotion_s.get(job) == due_s and not job.running:
                waiting.remove(job)  # the key that it is sorted by changes now
                self._forgiven[job] = job.attained
                waiting.add(job)
