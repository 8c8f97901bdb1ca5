"""Which jobs may reserve GPUs before their deadline.

To admit a job:

    shorten every reservation to the latest part that still does the job's work;
    fill the new job into what is free before its deadline;
    failing that, fill it and all jobs with later deadlines anew, by deadline;
    failing that, refuse it; the stored reservations stay as they are.

A reservation is on GPUs of one type. Where there are several, each type has a calendar of its own, and a job
is filled into the one where its reservation takes the least worth of GPU time (`gpu_types.Values`). Jobs are
filled anew first within one type, then over all types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from clustersim.scheduler import Cluster, JobView, State

from .calendar import WHOLE, Addresses, NodeCalendar, Slot
from .demand import Demand
from .refilling import Claims, Joint, Refilled, by_value, cheapest, refill
from .reservations import Reservations

__all__ = ["Admission"]


class Admission(Reservations):
    """Reservations, and the test of which further jobs fit beside them.

    `short_s`: the deadline of the job for which too little was left when the last job was refused; of several
    ways to admit it, the latest one. Only reservations with deadlines up to then were in its way.
    """

    def __init__(self, now: float, cluster: Cluster, guard_s: float):
        super().__init__(now, cluster, guard_s)
        self.short_s = -inf
        self._joints: dict[tuple[str, ...], Joint | None] = {}  # of the job looked at, by GPU types

    def try_admit(self, job: JobView, state: State) -> bool:
        """Reserve for a job if it can finish in time without making a job with a reservation late. Returns
        whether the job is admitted. A job without a deadline is admitted without a reservation.

        If not, everything is as before: the job stays best effort, or unknown if it was not entered. Other
        reservations are only cut to what their jobs still need.
        """
        entered = job in self.options
        if not entered:
            self.enter(job)
        if self.demands[job].deadline_s == inf or self._fits(job, state):
            return True
        if not entered:
            self.leave(job)
        return False

    def try_replace(self, other: JobView, job: JobView, state: State) -> bool:
        """Drop the reservation of `other` if the best-effort job `job` then gets one. Returns whether it
        does. If not, everything is as before, as in `try_admit`.
        """
        self.shorten_all(state)
        kept = self.taken_out(other)
        if self._fits(job, state):
            return True
        self.put_back(kept)
        return False

    def _fits(self, job: JobView, state: State) -> bool:
        """Reserve for a best-effort job, if that is possible."""
        options, now = self.options[job], state.now
        self.short_s = -inf
        self._joints.clear()
        for option in options:
            option.refresh()
        span_s = options[0].deadline_s - now
        if all(option.fastest() * span_s < option.work for option in options):
            return False
        self.shorten_all(state)
        if self._reserve(options, state):
            return True
        for option in options:
            option.counts_on_launch = not job.started
        if any(option.launch_is_cheaper() for option in options) and self._reserve(options, state):
            self._begin_at_once(self.demands[job], now)
            return True
        for option in options:
            option.counts_on_launch = False
        return False

    def _reserve(self, options: tuple[Demand, ...], state: State) -> bool:
        """Reserve for a new job, if necessary by moving the reservations of later deadlines: of those on one
        GPU type, the least valuable first, then of those on all types.
        """
        found = cheapest(options, self._calendars, self.values, state.now)
        if found is not None:
            demand, slots = found
            self._calendars[demand.gpu_type].reserve(slots)
            self.demands[demand.job] = demand
            self._hold(demand.job, slots)
            return True
        for option in by_value(options, self.values):
            if self._fits_jointly((option,), {option.gpu_type}, state):
                return True
        return len(self.rooms) > 1 and self._fits_jointly(options, self.rooms, state)

    def _begin_at_once(self, demand: Demand, now: float) -> None:
        """Let a reservation that begins soon begin now if its GPUs are free: a job that counts on a launch
        may not begin early on spare GPUs.
        """
        slots, calendar = self._slots[demand.job], self._calendars[demand.gpu_type]
        start, end, gpus, node = slots[0]
        if start - now <= demand.restarts[gpus]:
            calendar.give_back(slots[:1])
            node, since = calendar.address_before(gpus, end, now, node)
            if since <= now:
                slots[0] = Slot(now, end, gpus, node)
                self._hold(demand.job, slots)
            calendar.reserve(slots[:1])

    def _fits_jointly(self, new: tuple[Demand, ...], types: Collection[str], state: State) -> bool:
        """Fill anew, by deadline: the `new` job, and of the jobs with a reservation on the GPU `types`, those
        with later deadlines and those that were widened. They keep their type if `types` is a single one,
        else they may change it.

        The result is adopted only if every one of them still finishes in time.
        """
        key = tuple(types)
        if key not in self._joints:
            self._joints[key] = self._joint(new, types, state.now)
        joint = self._joints[key]
        if joint is None:
            return False
        jobs = {options[0].job for options in joint.by_deadline}
        refilled = refill(joint, new[0].job, self.values, lambda: self._addresses(jobs, state), state)
        if not isinstance(refilled, Refilled):
            self.short_s = max(self.short_s, refilled)
            return False
        for demand in joint.again:
            demand.in_place = False
            self.demands[demand.job] = refilled.demands[demand.job]
        for job in refilled.in_place:
            refilled.demands[job].in_place = True
        self._calendars |= refilled.calendars
        for job, slots in refilled.slots.items():
            self._hold(job, slots)
        for demand in joint.again:
            self._widened.pop(demand.job, None)
        self.demands[new[0].job] = refilled.demands[new[0].job]
        return True

    def _joint(self, new: tuple[Demand, ...], types: Collection[str], now: float) -> Joint | None:
        """The jobs to fill anew; None if they cannot fit."""
        for demand in self._passed_over:
            demand.refresh()
        self._passed_over.clear()
        deadline_s = new[0].deadline_s
        again = [
            demand
            for job in self._slots
            if (demand := self.demands[job]).gpu_type in types
            and (demand.deadline_s >= deadline_s or job in self._widened)
        ]
        if not again:
            self.short_s = max(self.short_s, deadline_s)
            return None
        choices = {demand.job: self._choices(demand, types) for demand in again}
        if not self._may_fit(new, types, choices, now):
            return None
        by_deadline = sorted(
            [new, *choices.values()], key=lambda options: (options[0].deadline_s, options[0].job.order)
        )
        return Joint(again, by_deadline, self._calendars_without(choices, types, now))

    def _calendars_without(
        self, jobs: Collection[JobView], types: Collection[str], now: float
    ) -> dict[str, NodeCalendar]:
        """The calendars of the GPU `types` with the reservations of all jobs but these."""
        kept: dict[str, list[Slot]] = {name: [] for name in types}
        for job, slots in self._slots.items():
            name = self.demands[job].gpu_type
            if name in kept and job not in jobs:
                kept[name] += slots
        rooms = self.rooms
        return {
            name: NodeCalendar.beside(now, rooms[name].nodes, rooms[name].gpus_per_node, slots)
            for name, slots in kept.items()
        }

    def _choices(self, demand: Demand, types: Collection[str]) -> tuple[Demand, ...]:
        """The demands among which an admitted job may choose when it is filled anew, as of now."""
        if len(types) == 1:
            return (demand,)
        options = tuple(option for option in self.options[demand.job] if option.gpu_type in types)
        for option in options:
            option.counts_on_launch = demand.counts_on_launch
            option.refresh()
        return options

    def _addresses(self, refilled: Collection[JobView], state: State) -> Claims:
        """The claims of jobs in place other than `refilled`, and the virtual nodes of all jobs in place."""
        addresses = {name: Addresses(room.gpus_per_node) for name, room in self.rooms.items()}
        former: dict[int, int] = {}
        draft = state.proposal()
        for job, slots in self._slots.items():
            demand = self.demands[job]
            placement = draft.placement(job) if demand.in_place else None
            if placement:
                if job not in refilled:
                    addresses[demand.gpu_type].add(placement, slots[0].node)
                if slots[0].node != WHOLE:
                    former[placement[0][0]] = slots[0].node
        return addresses, former

    def _may_fit(
        self, new: tuple[Demand, ...], types: Collection[str], choices: Mapping[JobView, tuple[Demand, ...]],
        now: float,
    ) -> bool:  # fmt: skip
        """A quick necessary condition: the jobs due by each deadline need no more worth of GPU time than
        there is on the GPU `types`. `choices`: the demands of the jobs that may change their type.
        """
        values = self.values
        due = [
            choices.get(job, (demand,))
            for job in self._slots
            if (demand := self.demands[job]).gpu_type in types
        ]
        due.append(new)
        due.sort(key=lambda options: options[0].deadline_s)
        worth = sum(values[name] * self.rooms[name].gpus for name in types)
        needed = 0.0
        for options in due:
            deadline_s = options[0].deadline_s
            needed += min([values[one.gpu_type] * one.least_gpu_seconds() for one in options])
            if deadline_s >= new[0].deadline_s and needed > worth * (deadline_s - now):
                self.short_s = max(self.short_s, deadline_s)
                return False
        return True
