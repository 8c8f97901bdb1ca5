"""A run that is watched, live or afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from clustersim.records import EventRecord
from clustersim.report.frame import FIRST_DATE_S, look_of
from clustersim.rundir import Following, jobs_file, read_streamed
from itertime.errors import UserError

from .picture import RunPicture
from .timeline import Timeline

__all__ = ["TICK_S", "Watched"]

TICK_S = 0.12
"""Seconds between two frames."""
_SHARE = 4  # a frame shows the fourth part of what is new: the picture is half a second late, and moves
_STALE_S = 1.0
_LARGEST_JOBS = 100_000_000  # bytes of records that are read for the requests of waiting jobs
_MOST_EVENTS = 2000  # of one job that its story shows


class Watched:
    """The run in `folder`. All browsers that watch it share its frames. Safe for several threads.

    UserError, TableError if its log cannot be read.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._following = Following(folder)
        self._requests: Mapping[str, int] | None = None
        self._timeline = Timeline(self._following.block)
        self._shown = RunPicture()
        self._waiting: deque[EventRecord] = deque()
        self._lock, self._next_at = Lock(), 0.0
        self._document: dict[str, Any] | None = None
        self._status = self._following.status
        if self._status != "running":
            self._read_all()
            self._shown = self._timeline.last.copy()
            self._waiting.clear()

    @property
    def status(self) -> str:
        """`running` until the last event is shown, then `complete` or `stopped`."""
        return "running" if self._waiting else self._status

    def is_current(self) -> bool:
        """Whether its folder still holds the log that is watched."""
        return self._following.is_current()

    def cluster_document(self) -> dict[str, Any]:
        """For the page: the GPUs of each node, none if the run does not state its cluster; `zero_s`, the
        seconds since 1970 at time 0 of the trace, None if that is not known; policy and look.
        """
        cluster, manifest = self._following.cluster, self._following.stated
        policy = str(manifest.get("policy", ""))
        return {
            "nodes": [] if cluster is None else [*cluster.sizes],
            "zero_s": self._zero_s(),
            "policy": policy,
            "look": look_of(policy),
        }

    def _zero_s(self) -> float | None:
        trace = self._following.stated.get("trace")
        starts_s = trace.get("since_1970_s") if isinstance(trace, dict) else None
        if isinstance(starts_s, int | float) and not isinstance(starts_s, bool):
            return float(starts_s)
        first_s = self.frame()["begin_s"]
        return 0.0 if first_s is not None and first_s >= FIRST_DATE_S else None

    def _requested(self) -> Mapping[str, int]:
        """The GPUs that jobs ask for: from the records of a complete run, else as far as they are written."""
        if self._following.status != "complete":
            return self._following.requests()
        if self._requests is None:
            self._requests = self._following.requests()
            path = jobs_file(self.folder)
            if path.is_file() and path.stat().st_size <= _LARGEST_JOBS:
                with suppress(UserError):
                    records = read_streamed(self.folder).jobs
                    self._requests = {job.job_id: job.gpus for job in records if job.gpus}
        return self._requests

    def frame(self) -> dict[str, Any]:
        """The newest picture as a document. It changes at most every `TICK_S`."""
        with self._lock:
            now = monotonic()
            if now >= self._next_at or self._document is None:
                late = now > self._next_at + _STALE_S
                self._next_at = now + TICK_S * 0.9
                self._advance(late)
                document = self._about(self._shown)
                if document != self._document:
                    self._document = document
            return self._document

    def at(self, time_s: float) -> dict[str, Any]:
        """The picture at a time, with `next_s`, the time of the next event."""
        with self._lock:
            self._read_all()
            picture, next_s = self._timeline.at(time_s)
            return {**self._about(picture), "next_s": next_s}

    def curves_document(self) -> dict[str, Any]:
        """The run over time, as far as it is known (see `Curves.document`)."""
        cluster = self.cluster_document()
        with self._lock:
            return self._timeline.curves.document(sum(cluster["nodes"]), cluster["look"], cluster["zero_s"])

    def events_of(self, job_id: str) -> list[EventRecord]:
        """The events of one job so far, at most 2,000."""
        with self._lock:
            self._read_all()
            end = self._timeline.offset
        job_events: list[EventRecord] = []
        offset = 0
        while offset < end and len(job_events) < _MOST_EVENTS:
            events, offset = self._following.block(offset)
            job_events += [event for event in events if event.job_id == job_id]
        return job_events[:_MOST_EVENTS]

    def _advance(self, late: bool) -> None:
        """Show more; all that there is after a time in which no browser watched."""
        status = self._following.status  # first: what is written before the end is then read
        self._waiting += self._timeline.grow()
        self._status = status
        if late or status != "running":
            self._read_all()
        count = len(self._waiting) if late else -(-len(self._waiting) // _SHARE)
        self._shown.apply(self._waiting.popleft() for _ in range(count))

    def _read_all(self) -> None:
        while events := self._timeline.grow():
            self._waiting += events

    def _about(self, picture: RunPicture) -> dict[str, Any]:
        return {
            **picture.document(self._requested() if picture.queue else {}),
            "status": self.status,
            "begin_s": self._timeline.begin_s,
            "end_s": self._timeline.last.time_s,
        }
