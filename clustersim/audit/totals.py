"""The sums over the events of one job, for comparison with its record."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from clustersim.cluster import SharedPlacement, gpus_held
from clustersim.overheads import Cycle
from clustersim.records import (
    ALLOCATES,
    ELIGIBLE,
    ENDS,
    FINISH,
    HOLD,
    INTERRUPT,
    LOADED,
    RATE,
    REPLAN,
    REQUEUE,
    SERVED,
    START,
    EventRecord,
)

__all__ = ["PLAIN", "ChargeTerms", "JobTotals"]

_NEVER_SAVES = Cycle()


class ChargeTerms(NamedTuple):
    """What an allocation costs a job.

    - `cycle`: its checkpoint cycle.
    - `loads`: whether the job first loads a checkpoint from shared storage. The log states the duration of
      such a load only when the load is done.
    - `due_s`: the overhead due, without such a load; None if the size of the checkpoint is unknown.
    - `save_due`: the share of a save in it, which is paid first; `save_s`: seconds of a whole save.
    """

    cycle: Cycle = _NEVER_SAVES
    loads: bool = False
    due_s: float | None = None
    save_due: float = 0.0
    save_s: float = 0.0


PLAIN = ChargeTerms()


@dataclass(slots=True)
class JobTotals:
    """GPU-seconds, seconds and units of work of one job. For each event, in order of time, `advance` to it,
    then `add` it.

    Sums:
    - `work`: None if the log states no speed for some of it.
    - `*_error`: the largest error of a sum that comes from the rounding of times.
    - `closed`: whether the end of the last allocation or wait is known.
    - `lost_work_s`, `lost_work_gpu_s`: work undone by failures and requeues; `lost_s` includes it.
    - `run_s`: seconds with GPUs. `held_s`: seconds in which the job was not to be run, which `wait_s` leaves
      out; None if there are none. `eligible_s`: their end before the first start; None if there is none.
    - `cost_usd`: US dollars for the GPUs held; None while the job has paid no price.

    The state after the last event, at `since_s`:
    - `gpus`, `unit_s`: the GPUs that the job holds (None without GPUs; a part as that part), and its seconds
      per unit.
    - `owed_s`: overhead still to be paid, infinite during a load.
    - `save_due`: the share, to within `save_error`, of a save still to be paid, of `save_s` seconds here.
    - `offset_s`: seconds since the checkpoint cycle `cycle` began.
    - `saved_work`: units of work in the last checkpoint; `unsaved_s`: seconds of work since then.
    - `usd_per_gpu_h`: the price of a GPU-hour.
    - `interrupted`: a failure or a requeue took the GPUs; `crash_s` seconds of work were lost.
    - `held`: the job is not to be run.
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
    lost_work_s: float = 0.0
    lost_work_gpu_s: float = 0.0
    cost_usd: float | None = None
    cost_error: float = 0.0
    run_s: float = 0.0
    held_s: float | None = None
    eligible_s: float | None = None

    since_s: float = 0.0
    gpus: float | None = None
    unit_s: float = 0.0
    owed_s: float = 0.0
    cycle: Cycle = _NEVER_SAVES
    offset_s: float = 0.0
    saved_work: float = 0.0
    unsaved_s: float = 0.0
    save_due: float = 0.0
    save_error: float = 0.0
    save_s: float = 0.0
    usd_per_gpu_h: float = 0.0
    interrupted: bool = False
    crash_s: float = 0.0
    held: bool = False

    def pay(self, usd_per_gpu_h: float) -> None:
        """From the last `advance` on a GPU-hour costs this."""
        self.usd_per_gpu_h, self.cost_usd = usd_per_gpu_h, self.cost_usd or 0.0

    def add(self, event: EventRecord, terms: ChargeTerms = PLAIN) -> None:
        """Apply an event at the time of the last `advance`. `terms`: those of the allocation, if the event
        makes one.
        """
        kind = event.event
        self.since_s, self.closed = event.time_s, kind in ENDS
        if kind in (RATE, REPLAN):
            self.unit_s = event.unit_s
        elif kind in ALLOCATES:
            self._allocate(event, terms)
        elif kind == LOADED:
            self.owed_s = 0.0
        else:
            if kind == INTERRUPT:
                self._crash()
            elif kind == REQUEUE:
                self._begin_anew()
            elif kind == ELIGIBLE and self.start_s is None:
                self.eligible_s = event.time_s
            self.gpus, self.held = None, kind == HOLD
        if kind == START and self.start_s is None:
            self.start_s = event.time_s
        elif kind in (FINISH, SERVED) and self.finish_s is None:
            self.finish_s = event.time_s

    def end(self, end_s: float | None, error: float) -> None:
        """End the run at `end_s`; None if the end is unknown."""
        if not self.closed and end_s is not None:
            self.advance(end_s, error)
            self.closed = True

    def _allocate(self, event: EventRecord, terms: ChargeTerms) -> None:
        shares = event.placement.__class__ is SharedPlacement
        self.gpus, self.unit_s = gpus_held(event.placement) if shares else event.gpus, event.unit_s
        self.owed_s = inf if terms.loads else event.overhead_s
        self.cycle, self.offset_s = terms.cycle, 0.0
        self.saved_work, self.unsaved_s = self.work or 0.0, 0.0
        self.save_due, self.save_s = terms.save_due, terms.save_s
        if self.save_due in (0.0, 1.0):
            self.save_error = 0.0
        self.interrupted = False

    def advance(self, now: float, error: float) -> None:
        """Add the time since the last event. `error`: the error of a difference of two times of the log."""
        elapsed_s, self.since_s = now - self.since_s, now
        self.seconds_error += error
        if self.gpus is None:
            if self.held:
                self.held_s = (self.held_s or 0.0) + elapsed_s or None
            else:
                self.wait_s += elapsed_s
            return
        self.run_s += elapsed_s
        paid_s = min(elapsed_s, self.owed_s)
        self.owed_s -= paid_s
        if self.save_due:
            self.save_due = max(0.0, self.save_due - paid_s / self.save_s)
            self.save_error = min(1.0, self.save_error + error / self.save_s)
        self.gpu_seconds += elapsed_s * self.gpus
        if self.cost_usd is not None:
            self.cost_usd += elapsed_s * self.gpus * self.usd_per_gpu_h / 3600
            self.cost_error += error * abs(self.gpus) * self.usd_per_gpu_h / 3600
        ran_s = elapsed_s - paid_s
        worked_s, unsaved_s = self._run_cycles(ran_s)
        paid_s += ran_s - worked_s  # the seconds spent on saving checkpoints
        self.overhead_gpu_s += paid_s * self.gpus
        self.lost_s += paid_s
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
            self.saved_work = max(0.0, self.work - unsaved_s / self.unit_s)

    def _run_cycles(self, ran_s: float) -> tuple[float, float | None]:
        """Run for `ran_s` seconds. Returns the seconds of work, and the seconds of work since the last
        checkpoint completed in this time (None if none was completed).
        """
        cycle = self.cycle
        if cycle.interval_s == inf:
            return ran_s, None
        if not cycle.interval_s:
            return ran_s, 0.0 if ran_s > 0 else None
        end_s = self.offset_s + ran_s
        saved_s, total_s = cycle.saved_s(end_s), cycle.worked_s(end_s)
        worked_s = total_s - cycle.worked_s(self.offset_s)
        self.offset_s = cycle.offset_s(end_s)
        return worked_s, total_s - saved_s if saved_s > 0 else None

    def _crash(self) -> None:
        """Lose the work that no checkpoint holds."""
        self.interrupted, self.crash_s, self.unsaved_s = True, self.unsaved_s, 0.0
        self.lost_s += self.crash_s
        self.lost_work_s += self.crash_s
        self.lost_work_gpu_s += self.crash_s * (self.gpus or 0)
        if self.work is not None:
            self.work = self.saved_work

    def _begin_anew(self) -> None:
        """Lose all work, saved or not."""
        self.interrupted, self.crash_s, self.unsaved_s = True, max(0.0, self.run_s - self.lost_s), 0.0
        self.lost_s += self.crash_s
        self.lost_work_s += self.crash_s
        self.lost_work_gpu_s += max(0.0, self.gpu_seconds - self.overhead_gpu_s - self.lost_work_gpu_s)
        self.work, self.saved_work, self.save_due = 0.0, 0.0, 0.0
