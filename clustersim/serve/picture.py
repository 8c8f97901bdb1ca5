"""The cluster at an instant, from the events up to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from clustersim.cluster import Placement, SharedPlacement
from clustersim.records import (
    ALLOCATES,
    ENDS,
    INTERRUPT,
    NODE_DOWN,
    NODE_UP,
    PREEMPT,
    REQUEUE,
    SUBMIT,
    EventRecord,
)

__all__ = ["RunPicture"]

_LATEST = 12  # events that a picture shows
_QUEUE = 200  # waiting jobs that a picture shows; all are counted
_DETAIL = 120  # characters


class _InSystem(NamedTuple):
    """A job that has been submitted and has not left, and its GPUs since when."""

    submit_s: float
    since_s: float
    gpus: int = 0
    placement: Placement = ()


class RunPicture:
    """The cluster after the events that were applied.

    | attribute | meaning |
    |---|---|
    | `time_s` | the time of the last event, seconds on the trace's clock; None before the first |
    | `before_s` | the last earlier instant with an event |
    | `events` | the number of events |
    | `ended` | the number of jobs that left, by the event with which they did |
    | `queue`, `running` | the number of jobs that wait, and of those that hold GPUs |
    | `used` | the GPUs that jobs hold; parts of shared ones |
    """

    def __init__(self) -> None:
        self.time_s: float | None = None
        self.before_s: float | None = None
        self.events = 0
        self.ended = dict.fromkeys(ENDS, 0)
        self.queue, self.used = 0, 0.0
        self._jobs: dict[str, _InSystem] = {}
        self._down: dict[int, None] = {}
        self._latest: deque[EventRecord] = deque(maxlen=_LATEST)

    def apply(self, events: Iterable[EventRecord]) -> None:
        """Add events in order of time."""
        jobs = self._jobs
        for event in events:
            kind, time_s = event.event, event.time_s
            if time_s != self.time_s:
                self.before_s, self.time_s = self.time_s, time_s
            self.events += 1
            self._latest.append(event)
            if kind == SUBMIT:
                self._enter(event.job_id, _InSystem(time_s, time_s))
            elif kind in ENDS:
                self.ended[kind] += 1
                self._leave(event.job_id)
            elif kind in ALLOCATES:
                old = jobs.get(event.job_id) or _InSystem(time_s, time_s)
                job = old._replace(since_s=time_s, gpus=event.gpus, placement=event.placement)
                self._enter(event.job_id, job)
            elif kind in (PREEMPT, INTERRUPT, REQUEUE):
                if event.job_id in jobs:
                    old = jobs[event.job_id]
                    self._enter(event.job_id, old._replace(since_s=time_s, gpus=0, placement=()))
            elif kind == NODE_DOWN:
                self._down.update(dict.fromkeys(node for node, _ in event.placement))
            elif kind == NODE_UP:
                for node, _ in event.placement:
                    self._down.pop(node, None)

    def _enter(self, job_id: str, job: _InSystem) -> None:
        """Let a job be in the system, instead of what it was there before, if it was."""
        old = self._jobs.get(job_id)
        self._jobs[job_id] = job
        self.queue += (not job.placement) - (old is not None and not old.placement)
        self.used += _gpus(job) - (0.0 if old is None else _gpus(old))

    def _leave(self, job_id: str) -> None:
        old = self._jobs.pop(job_id, None)
        if old is not None:
            self.queue -= not old.placement
            self.used -= _gpus(old)

    @property
    def running(self) -> int:
        return len(self._jobs) - self.queue

    def copy(self) -> Self:
        """A picture of its own, to which other events can be added."""
        picture = copy(self)
        picture.ended, picture._jobs, picture._down = dict(self.ended), dict(self._jobs), dict(self._down)
        picture._latest = self._latest.copy()
        return picture

    def document(self, requests: Mapping[str, int] = MappingProxyType({})) -> dict[str, Any]:
        """For the page: `running` as [job, GPUs, since, [[node, GPUs], ...], part of each GPU], `waiting` as
        [job, requested GPUs or None, submitted, since], in order of submission and at most 200, `latest` as
        [time, event, job, GPUs, detail].
        """
        running: list[list[Any]] = []
        waiting: list[list[Any]] = []
        for job_id, job in self._jobs.items():
            if job.placement:
                part = job.placement.share if isinstance(job.placement, SharedPlacement) else 1.0
                running.append([job_id, job.gpus, job.since_s, [*job.placement], part])
            elif len(waiting) < _QUEUE:
                waiting.append([job_id, requests.get(job_id), job.submit_s, job.since_s])
        return {
            "time_s": self.time_s,
            "before_s": self.before_s,
            "events": self.events,
            "ended": self.ended,
            "running": running,
            "waiting": waiting,
            "queue": self.queue,
            "used": round(self.used, 6),
            "down": [*self._down],
            "latest": [
                [e.time_s, e.event, e.job_id, e.gpus, e.detail[:_DETAIL]] for e in reversed(self._latest)
            ],
        }


def _gpus(job: _InSystem) -> float:
    """The GPUs that a job holds; a part of one if it shares it."""
    part = job.placement.share if isinstance(job.placement, SharedPlacement) else 1.0
    return part * sum(gpus for _, gpus in job.placement)
