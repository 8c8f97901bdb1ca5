"""What the events of one job add up to, to be held against its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .records import EventRecord

__all__ = ["GIVES", "Sums"]

GIVES = ("start", "restart", "resize", "migrate")
"""The events that give GPUs to a job."""


@dataclass
class Sums:
    """GPU-seconds, seconds and units of work. `work` is None where the speed of some of it is unknown;
    `*_error` are what the rounding of times can make of the sums; `closed`: the end of the last allocation
    or wait is known.
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

    @classmethod
    def of(
        cls, log: Sequence[EventRecord], unit_s: Mapping[int, float], end_s: float | None, error: float
    ) -> Sums:
        """`log`: the events of one job. `unit_s`: seconds per unit of work by GPUs, where known. `end_s`:
        when the run ended, None if unknown. `error`: of a difference of two times of the log.
        """
        sums = cls()
        for before, event in pairwise(log):
            sums._add(before, event.time_s, unit_s, error)
        if log and log[-1].event not in ("finish", "reject"):
            sums.closed = end_s is not None
            if end_s is not None:
                sums._add(log[-1], end_s, unit_s, error)
        sums.start_s = next((e.time_s for e in log if e.event == "start"), None)
        sums.finish_s = next((e.time_s for e in log if e.event == "finish"), None)
        return sums

    def _add(self, given: EventRecord, until_s: float, unit_s: Mapping[int, float], error: float) -> None:
        spent = until_s - given.time_s
        self.seconds_error += error
        if given.event not in GIVES:
            self.wait_s += spent
            return
        paid = min(spent, given.overhead_s)
        self.gpu_seconds += spent * given.gpus
        self.overhead_gpu_s += paid * given.gpus
        self.lost_s += paid
        self.gpu_error += error * abs(given.gpus)
        unit = unit_s.get(given.gpus)
        if unit is None or self.work is None:
            self.work = None
        else:
            self.work += (spent - paid) / unit
            self.work_error += 2 * error / unit
