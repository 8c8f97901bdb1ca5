"""What the events of one job add up to, to be held against its record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .records import EventRecord

__all__ = ["GIVES", "Sums"]

GIVES = ("start", "restart", "resize", "migrate")
"""The events that give GPUs to a job."""


@dataclass(slots=True)
class Sums:
    """GPU-seconds, seconds and units of work of one job, as its events are added in order of time.

    `work` is None where the log states no speed for some of it; `*_error` are what the rounding of times
    can make of the sums; `closed`: the end of the last allocation or wait is known. `gpus`, `unit_s` and
    `owed_s` are as of the last event, at `since_s`: what the job holds, how fast it is, and the overhead that
    it has yet to pay.
    """

    gpu_seconds: float = 0.0
    overhead_gpu_s: float = 0.0
    lost_s: float = 0.0
    wait_s: float = 0.0
    work: float | None = 0.0
    start_s: float | None = None
    finish_s: float | None = None
    seconds_error: float = 0.0
    gpu_error: float = 0.0
    work_error: float = 0.0
    closed: bool = True
    since_s: float = 0.0
    gpus: int | None = None
    unit_s: float = 0.0
    owed_s: float = 0.0

    @classmethod
    def of(cls, log: Iterable[EventRecord], end_s: float | None, error: float) -> Sums:
        """`log`: the events of one job. `end_s`: when the run ended, None if unknown. `error`: of a
        difference of two times of the log.
        """
        sums = cls()
        for event in log:
            sums.add(event, error)
        sums.end(end_s, error)
        return sums

    def add(self, event: EventRecord, error: float) -> None:
        """Count what lies between the last event and this one, then apply this one."""
        kind = event.event
        if kind != "submit":
            self._advance(event.time_s, error)
        self.since_s, self.closed = event.time_s, kind in ("finish", "reject")
        if kind in GIVES:
            self.gpus, self.unit_s, self.owed_s = event.gpus, event.unit_s, event.overhead_s
        elif kind == "rate":
            self.unit_s = event.unit_s
        else:
            self.gpus = None
        if kind == "start" and self.start_s is None:
            self.start_s = event.time_s
        elif kind == "finish" and self.finish_s is None:
            self.finish_s = event.time_s

    def end(self, end_s: float | None, error: float) -> None:
        """The run ended at `end_s`, if that is known."""
        if not self.closed and end_s is not None:
            self._advance(end_s, error)
            self.closed = True

    def _advance(self, now: float, error: float) -> None:
        spent = now - self.since_s
        self.seconds_error += error
        if self.gpus is None:
            self.wait_s += spent
            return
        paid = min(spent, self.owed_s)
        self.owed_s -= paid
        self.gpu_seconds += spent * self.gpus
        self.overhead_gpu_s += paid * self.gpus
        self.lost_s += paid
        self.gpu_error += error * abs(self.gpus)
        if self.unit_s <= 0 or self.work is None:
            self.work = None
        else:
            self.work += (spent - paid) / self.unit_s
            self.work_error += 2 * error / self.unit_s
