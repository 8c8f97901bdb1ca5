"""What reservations say about an instant: which jobs are due, and which begin soon.

Between two decisions little of that changes, so it is kept up to date. A job is looked at only when its
reservation has changed, or when the time has come at which something about it changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobView

from .calendar import Slot
from .demand import Demand
from .gpu_types import Share, held_on

__all__ = ["Agenda", "Timetable"]

_INSTANT_S = 1e-6  # boundaries of reservations this close are one: they differ by rounding
_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job
_EARLY_S = 1e-3  # jobs are looked at this much too early, more than times differ by rounding


class Agenda(NamedTuple):
    """What reservations say about an instant.

    `due`: the slot reserved for now, by job; `shares`: the GPUs of these slots.
    `soon`: reservations that begin soon, as (start, order of submission, job, GPUs). `growing`: GPUs by which
    jobs on reserved GPUs grow soon, by GPU type. `wake_at`: when the agenda changes without any event.
    """

    due: dict[JobView, Slot]
    shares: dict[JobView, Share]
    soon: list[tuple[float, int, JobView, int]]
    growing: Mapping[str, int]
    wake_at: float


class Timetable:
    """The agenda, kept up to date. `demands` and `slots` are those of `Reservations`, and change in place.

    `order`: numbers of the jobs with a reservation, in the order of admission.

    A job has one *boundary*: the start of its next slot, or the end of the one that is due. It is looked at
    when that has come, and when something begins to be soon. A look too many changes nothing.
    """

    def __init__(self, demands: Mapping[JobView, Demand], slots: Mapping[JobView, list[Slot]]):
        self.order: dict[JobView, int] = {}
        self._count = 0  # reservations numbered so far
        self._changed: dict[JobView, None] = {}  # jobs to look at whatever the time
        self._demands, self._slots = demands, slots
        self._looks: dict[JobView, float] = {}  # when to look at a job
        self._boundaries: dict[JobView, float] = {}
        self._due: dict[JobView, Slot] = {}
        self._shares: dict[JobView, Share] = {}
        self._soon: dict[JobView, tuple[float, int, JobView, int]] = {}
        self._growing: dict[JobView, int] = {}  # by job that is due, the GPUs of its next slot

    def note_change(self, job: JobView, number: int | None = None) -> None:
        """The reservation of a job is new or has changed. `number`: in the order of admission, if not the one
        that the job has, or the next one.
        """
        self._changed[job] = None
        if job not in self.order:
            self.order[job] = self._count if number is None else number
            self._count += 1

    def note_later_start(self, job: JobView, start: float) -> None:
        """The first slot of a job, which is not due yet, begins later than before. It is looked at as early
        as it would have been without that.
        """
        if job in self._boundaries and job not in self._due and job not in self._soon:
            self._boundaries[job] = start
        else:
            self.note_change(job)

    def note_removal(self, job: JobView) -> None:
        """The reservation of a job is gone."""
        self._changed.pop(job, None)
        self._forget(job)
        self.order.pop(job, None)

    def agenda(self, now: float) -> Agenda:
        """What is reserved for now and for soon. Slots that are over are dropped."""
        again, self._changed = self._changed, {}
        if self._looks and min(self._looks.values()) <= now:
            again.update(dict.fromkeys([job for job, time in self._looks.items() if time <= now]))
        for job in again:
            self._enter(job, now)
        growing: dict[str, int] = defaultdict(int)
        for job, more in self._growing.items():
            name = self._demands[job].gpu_type
            growing[name] += max(0, more - max(self._due[job].gpus, held_on(job, name)))
        wake_at = min(self._boundaries.values(), default=inf)
        return Agenda(self._due, self._shares, sorted(self._soon.values()), growing, wake_at)

    def _forget(self, job: JobView) -> None:
        """Take a job out."""
        self._due.pop(job, None)
        self._shares.pop(job, None)
        self._soon.pop(job, None)
        self._growing.pop(job, None)
        self._looks.pop(job, None)
        self._boundaries.pop(job, None)

    def _enter(self, job: JobView, now: float) -> None:
        """Enter a job anew, or take it out if it has no reservation."""
        slots, begun = self._slots.get(job), now + _INSTANT_S
        while slots and slots[0].end <= begun:
            del slots[0]
            self._demands[job].in_place = False
        if not slots:
            self._forget(job)
            if slots is not None:
                self._demands[job].counts_on_launch = False  # it is too late, and goes on with spare GPUs
            return
        demand = self._demands[job]
        start, end, gpus, _ = slots[0]
        is_due = start <= begun
        boundary = look = end if is_due else start
        if is_due:
            self._due[job], self._shares[job] = slots[0], Share(gpus, demand.gpu_type)
        elif job in self._due:
            del self._due[job], self._shares[job]
        self._soon.pop(job, None)
        self._growing.pop(job, None)
        if not is_due or len(slots) > 1:
            begins, _, more, _ = slots[1 if is_due else 0]
            lead_s = _LEAD_RESTARTS * demand.restarts[more]
            if begins - now > lead_s:
                look = min(look, begins - lead_s)
            elif is_due:
                self._growing[job] = more
            else:
                self._soon[job] = start, job.order, job, gpus
        self._looks[job], self._boundaries[job] = look - _EARLY_S, boundary
