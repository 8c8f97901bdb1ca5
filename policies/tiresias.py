"""Tiresias: least attained service, in a few queues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from reprlib import repr as brief

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import increasing, number

__all__ = ["Tiresias"]

_INSTANT_S, _ROUNDING_GPU_S = 1e-6, 1e-3  # sums of times and of GPU-seconds are exact to within these
_LEAST_WAIT_S = 1.0  # until the promotion of a job that has already waited for longer than the knob says
_MARGIN_S = 0.01  # more than what rounding adds to the time at which a job falls
_RUNS, _WAITS = 0, 1

Place = tuple[int, int, int]
"""(queue, whether the job runs or waits, position): jobs that run are ahead of those that wait."""


class Tiresias(Scheduler):
    """Discretised 2D-LAS: a job falls from queue to queue as its GPU-seconds pass `thresholds_gpu_s`; higher
    queues first, preemptive, each in the order of the jobs' starts; a job that does not fit is skipped.

    Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 3. A job
    below the first queue that has waited `promote_knob` times as long as it ran begins anew in the first
    queue (the paper's PROMOTEKNOB; None: never). `order="submission"` sorts each queue by submission instead.
    Ten and a thousand GPU-hours are our choice for the thresholds, 8 for the knob.
    """

    def __init__(
        self,
        thresholds_gpu_s: Sequence[float] = (36_000.0, 3_600_000.0),
        promote_knob: float | None = 8.0,
        order: str = "start",
    ):
        self.thresholds_gpu_s = increasing("thresholds_gpu_s", thresholds_gpu_s)
        self.promote_knob = (
            None if promote_knob is None else number("promote_knob", promote_knob, minimum=0.01)
        )
        if order not in ("start", "submission"):
            raise ValueError(f"order={brief(order)}: must be start or submission")
        self.order = order
        self._places: dict[JobView, Place] = {}
        self._last, self._first = count(1), count(-1, -1)  # positions at the end and at the head of a queue
        self._forgiven: dict[JobView, tuple[float, float]] = {}  # (GPU-seconds, waiting) before the promotion
        self._promotion_s: dict[JobView, float] = {}  # when a waiting job is promoted
        self._promotions: list[tuple[float, int, JobView]] = []  # a heap: (time, order of submission, job)
        self._fall_s: dict[JobView, float] = {}  # when a running job reaches the end of its queue
        self._falls: list[tuple[float, int, JobView]] = []  # a heap, likewise; entries may be outdated
        self._uneven_jobs: dict[JobView, None] = {}  # running jobs that hold other GPUs than they requested

    def schedule(self, state: State) -> Proposal:
        self._follow(state)
        fallen_jobs = self._fall(state)
        self._promote(state)
        proposal = state.proposal()
        proposal.run_by(self._standing, falling=True)
        self._regroup(proposal, fallen_jobs, state)
        if state.pending:
            proposal.wake_at = self._next_change_s(proposal, state)
        return proposal

    def _standing(self, job: JobView) -> Place:
        """What the jobs are sorted by. A new job joins the end of the first queue."""
        place = self._places.get(job)
        if place is None:
            place = self._places[job] = 0, _WAITS, next(self._last)
        return place if self.order == "start" else (place[0], 0, 0)

    def _service(self, job: JobView) -> float:
        """GPU-seconds since the last promotion, without the payment for starts. If starts counted, a job with
        starts longer than its share of a queue would fall before it has worked.
        """
        return job.productive_gpu_s - self._forgiven.get(job, (0.0, 0.0))[0]

    def _follow(self, state: State) -> None:
        """Forget the jobs that left. Jobs that lost their GPUs to a node wait at the head of their queue."""
        for event in state.events:
            job = event.job
            if job is None:
                continue
            if event.kind == "finished":
                for table in (self._places, self._forgiven, self._promotion_s):
                    table.pop(job, None)
            elif event.kind in ("interrupted", "stopped"):
                self._move(job, (self._places[job][0], _WAITS, next(self._first)), state)
                self._expect_promotion(job, state.now)
        for job in state.changed_jobs:
            self._fall_s.pop(job, None)
            self._uneven_jobs.pop(job, None)
            if job.running:
                self._expect_fall(job, state.now)

    def _expect_fall(self, job: JobView, now: float) -> None:
        """Note when a running job reaches the end of its queue."""
        queue = self._places[job][0]
        if queue == len(self.thresholds_gpu_s):
            return
        if job.needs != job.gpus:
            self._uneven_jobs[job] = None
            return
        self._fall_s[job] = fall_s = self._falls_s(job, now)
        heappush(self._falls, (fall_s, job.order, job))

    def _next_to_fall(self, by_s: float = inf, changes: Container[JobView] = ()) -> list[JobView]:
        """The running jobs without `changes` that may reach the ends of their queues by then, of all times
        those that may be the first. They stay in the heap.
        """
        falls, jobs, valid_entries = self._falls, dict(self._uneven_jobs), []
        until_s = by_s
        while falls and falls[0][0] <= until_s + _MARGIN_S:
            entry = heappop(falls)
            fall_s, _, job = entry
            if self._fall_s.get(job) != fall_s:
                continue
            valid_entries.append(entry)
            if job not in changes:
                jobs[job] = None
                until_s = min(until_s, fall_s) if by_s == inf else by_s
        for entry in valid_entries:
            heappush(falls, entry)
        return [job for job in jobs if job not in changes]

    def _fall(self, state: State) -> list[JobView]:
        """Move the running jobs that have passed a threshold to the ends of their new queues, in the order in
        which they passed it. Returns them.
        """
        fallen = []
        for job in self._next_to_fall(by_s=state.now):
            service = self._service(job)
            queue = bisect_right(self.thresholds_gpu_s, service + _ROUNDING_GPU_S)
            if queue > self._places[job][0]:
                ago_s = (service - self.thresholds_gpu_s[queue - 1]) / job.gpus
                fallen.append((round(state.now - ago_s, 6), job.order, queue, job))
        for _, _, queue, job in sorted(fallen, key=lambda entry: entry[:2]):
            self._places[job] = queue, _WAITS, next(self._last)
            state.rerank(self._standing, job)
            self._fall_s.pop(job, None)
            self._expect_fall(job, state.now)
        return [job for _, _, _, job in fallen]

    def _promote(self, state: State) -> None:
        """Move the waiting jobs whose time has come to the end of the first queue."""
        while self._promotions and self._promotions[0][0] <= state.now + _INSTANT_S:
            due_s, _, job = heappop(self._promotions)
            if self._promotion_s.get(job) == due_s:
                del self._promotion_s[job]
                self._forgiven[job] = job.productive_gpu_s, job.waited_s
                self._move(job, (0, _WAITS, next(self._last)), state)

    def _move(self, job: JobView, place: Place, state: State) -> None:
        """Give a waiting job another place."""
        self._places[job] = place
        if job in state.pending:  # not one that was requeued and is held
            state.pending_by(self._standing).rerank(job)

    def _regroup(self, proposal: Proposal, fallen_jobs: Iterable[JobView], state: State) -> None:
        """In every queue, put the jobs that run from now on before those that wait, else in their order."""
        changed = [job for job, placement in proposal.changes.items() if not placement or not job.running]
        moved = sorted({*changed, *fallen_jobs}, key=self._places.__getitem__)
        for job in moved:
            if proposal.gpus(job):
                self._promotion_s.pop(job, None)
                self._places[job] = self._places[job][0], _RUNS, next(self._last)
                if self._service(job) <= 0.0:  # the wait for the first share of a queue does not count
                    self._forgiven[job] = job.productive_gpu_s, job.waited_s
            else:
                self._expect_promotion(job, state.now)
        for job in reversed(moved):
            queue, group, _ = self._places[job]
            if group == _RUNS and not proposal.gpus(job):
                self._places[job] = queue, _WAITS, next(self._first)

    def _expect_promotion(self, job: JobView, now: float) -> None:
        """Note when a job that waits from now on is promoted."""
        if self.promote_knob is not None and self._places[job][0]:
            ran_s = self._service(job) / job.requested
            waited_s = job.waited_s - self._forgiven.get(job, (0.0, 0.0))[1]
            self._promotion_s[job] = now + max(self.promote_knob * ran_s - waited_s, _LEAST_WAIT_S)
            heappush(self._promotions, (self._promotion_s[job], job.order, job))

    def _next_change_s(self, proposal: Proposal, state: State) -> float | None:
        """When a running job falls or a waiting one is promoted, at the earliest; None if none does."""
        changes_s = [time_s for time_s, _, _ in self._promotions[:1]]
        changes_s += [
            self._falls_s(job, state.now)
            for job, placement in proposal.changes.items()
            if placement and self._places[job][0] < len(self.thresholds_gpu_s)
        ]
        first_jobs = self._next_to_fall(changes=proposal.changes)
        changes_s += [self._falls_s(job, state.now) for job in first_jobs]
        return min(changes_s, default=None)

    def _falls_s(self, job: JobView, now: float) -> float:
        """When a job that runs from now on falls from a queue that is not the last, at the earliest."""
        queue = self._places[job][0]
        left_gpu_s = self.thresholds_gpu_s[queue] - self._service(job)
        return now + max(job.paying_s + left_gpu_s / job.requested, _INSTANT_S)
