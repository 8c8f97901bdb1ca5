"""What the events of one job add up to, to be held against its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from .checkpoints import Cycle
from .records import ALLOCATES, ENDS, FINISH, INTERRUPT, LOADED, RATE, START, SUBMIT, EventRecord

__all__ = ["PLAIN", "Sums", "Terms"]


class Terms(NamedTuple):
    """On which terms a job gets GPUs: how it saves, and whether it first loads for an unknown time."""

    cycle: Cycle
    loads: bool


_NEVER = Cycle()
PLAIN = Terms(_NEVER, False)


@dataclass(slots=True)
class Sums:
    """GPU-seconds, seconds and units of work of one job, as its events are added in order of time.

    `work` is None where the log states no speed for some of it; `*_error` are what the rounding of times
    can make of the sums; `closed`: the end of the last allocation or wait is known. `gpus`, `unit_s` and
    `owed_s` are as of the last event, at `since_s`: what the job holds, how fast it is, and the overhead that
    it has yet to pay (infinite while it loads). It is `phase_s` seconds into `cycle`; a checkpoint holds
    `saved` units of its work, and what it has done since then took `unsaved_s` seconds. `crashed`: a failure
    took its GPUs, and `crash_s` seconds of work with them.
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
    cycle: Cycle = _NEVER
    phase_s: float = 0.0
    saved: float = 0.0
    unsaved_s: float = 0.0
    crashed: bool = False
    crash_s: float = 0.0
    lost_work_s: float = 0.0
    lost_work_gpu_s: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether some of its work has lasted."""
        return self.work is None or self.saved > self.work_error

    @classmethod
    def of(
        cls, log: Iterable[EventRecord], end_s: float | None, error: float,
        terms: Callable[[EventRecord, Sums], Terms] | None = None,
    ) -> Sums:  # fmt: skip
        """`log`: the events of one job. `end_s`: when the run ended, None if unknown. `error`: of a
        difference of two times of the log. `terms`: on which GPUs are given.
        """
        sums = cls()
        for event in log:
            sums.add(event, error, terms(event, sums) if terms is not None else PLAIN)
        sums.end(end_s, error)
        return sums

    def add(self, event: EventRecord, error: float, terms: Terms | None = None) -> None:
        """Count what lies between the last event and this one, then apply this one."""
        kind = event.event
        if kind != SUBMIT:
            self._advance(event.time_s, error)
        self.since_s, self.closed = event.time_s, kind in ENDS
        if kind in ALLOCATES:
            cycle, loads = terms or PLAIN
            self.gpus, self.unit_s = event.gpus, event.unit_s
            self.owed_s = inf if loads else event.overhead_s
            self.cycle, self.phase_s, self.saved, self.unsaved_s = cycle, 0.0, self.work or 0.0, 0.0
            self.crashed = False
        elif kind == RATE:
            self.unit_s = event.unit_s
        elif kind == LOADED:
            self.owed_s = 0.0
        else:
            if kind == INTERRUPT:
                self._crash()
            self.gpus = None
        if kind == START and self.start_s is None:
            self.start_s = event.time_s
        elif kind == FINISH and self.finish_s is None:
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
        ran_s = spent - paid
        worked_s, unsaved_s = self._cycles(ran_s)
        paid += ran_s - worked_s  # what the saves take
        self.overhead_gpu_s += paid * self.gpus
        self.lost_s += paid
        self.gpu_error += error * abs(self.gpus)
        if self.unit_s <= 0 or self.work is None:
            self.work = None
            return
        self.work += worked_s / self.unit_s
        self.work_error += 2 * error / self.unit_s
        if unsaved_s is None:
            self.unsaved_s += worked_s
        else:
            self.unsaved_s = unsaved_s
            self.saved = max(0.0, self.work - unsaved_s / self.unit_s)

    def _cycles(self, ran_s: float) -> tuple[float, float | None]:
        """Seconds of work in the next `ran_s`, and those since the last save that was completed meanwhile
        (None: none was).
        """
        cycle = self.cycle
        if cycle.interval_s == inf:
            return ran_s, None
        if not cycle.interval_s:
            return ran_s, 0.0 if ran_s > 0 else None
        end_s = self.phase_s + ran_s
        saved_s, total_s = cycle.saved_s(end_s), cycle.worked_s(end_s)
        worked_s = total_s - cycle.worked_s(self.phase_s)
        self.phase_s = cycle.phase_s(end_s)
        return worked_s, total_s - saved_s if saved_s > 0 else None

    def _crash(self) -> None:
        """Lose what no checkpoint holds."""
        self.crashed, self.crash_s = True, self.unsaved_s
        self.lost_s += self.crash_s
        self.lost_work_s += self.crash_s
        self.lost_work_gpu_s += self.crash_s * (self.gpus or 0)
        if self.work is not None:
            self.work = self.saved
