"""The reservations of all admitted jobs, and which further jobs may be admitted.

To admit a job:

    shorten every reservation to the latest part that still does the job's work;
    fill the new job into what is free before its deadline;
    failing that, fill it and all jobs with later deadlines anew, by deadline;
    failing that, decline it; the stored reservations stay as they are.

A reservation is on GPUs of one type. Where there are several, each type has a calendar of its own, and a job
is filled into the one where its reservation takes the least worth of GPU time (`gpu_types.Values`). Jobs are
filled anew first within one type, then over all types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from clustersim.scheduler import Cluster, JobView, State

from .calendar import WHOLE, Addresses, NodeCalendar, Slot
from .filling import Demand, shorten, yield_of
from .gpu_types import Share, Values, held_on, rooms_of
from .refilling import by_value, cheapest, refill

__all__ = ["Admission", "Agenda", "urgency"]

_INSTANT_S = 1e-6  # boundaries of reservations this close are one: they differ by rounding
_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job


@dataclass(frozen=True)
class Agenda:
    """What reservations say about an instant.

    `due`: the slot reserved for now, by job. `soon`: reservations that begin soon, as (start, order of
    submission, job, GPUs). `growing`: GPUs by which jobs on reserved GPUs grow soon, by GPU type. `wake_at`:
    when the agenda changes without any event.
    """

    due: dict[JobView, Slot]
    soon: list[tuple[float, int, JobView, int]]
    growing: Counter[str]
    wake_at: float


class Admission:
    """Demands of all admitted jobs, reservations of those with a deadline, and the GPUs that stay free.

    `options`: a job's demands on the GPU types that can run it. `demands`: the one of them on the type of its
    reservation; the first for a job without one.
    """

    def __init__(self, now: float, cluster: Cluster, guard_s: float):
        self.guard_s, self.rooms = guard_s, rooms_of(cluster)
        self.options: dict[JobView, tuple[Demand, ...]] = {}
        self.demands: dict[JobView, Demand] = {}
        self._values = Values(list(self.rooms))
        self._smallest: Counter[tuple[str, int]] = Counter()  # options by their type and smallest size
        self._slots: dict[JobView, list[Slot]] = {}  # in order of admission
        self._widened: dict[JobView, None] = {}  # jobs with spare GPUs added to their reservation
        self._calendars: dict[str, NodeCalendar] = {
            name: NodeCalendar(now, room.nodes, room.gpus_per_node) for name, room in self.rooms.items()
        }

    @property
    def values(self) -> Mapping[str, float]:
        """What a GPU of each type is worth, relative to the best type."""
        return self._values.of

    def slots(self, job: JobView) -> list[Slot]:
        """The rest of a job's reservation; empty for a job without one."""
        return self._slots.get(job, [])

    def reserved(self) -> list[JobView]:
        """The jobs with a reservation, in order of admission."""
        return list(self._slots)

    def slack_s(self, job: JobView, now: float) -> float:
        """Seconds of work, on the smallest size, that a job's reservation does beyond what the job needs."""
        demand = self.demands[job]
        slack = yield_of(self._slots[job], demand, now) - demand.work
        return slack / demand.rates[demand.sizes[0]]

    def least_size(self, gpu_type: str) -> int:
        """The fewest GPUs of a type that any admitted job can use."""
        sizes = (size for (name, size), count in self._smallest.items() if count and name == gpu_type)
        return min(sizes, default=0)

    # Admission

    def admit(self, job: JobView, state: State) -> bool:
        """Reserve for `job` if it can finish in time without making another admitted job late. Returns
        whether it is admitted.
        """
        options, now = self._options(job), state.now
        self._values.note({option.gpu_type: option.speed_per_gpu() for option in options})
        span_s = options[0].deadline_s - now
        if span_s == inf:
            self._keep(options[0], options)
            return True
        if all(max(option.rates.values()) * span_s < option.work for option in options):
            return False
        self._shorten_all(now)
        if self._reserve(options, state):
            return True
        for option in options:
            option.counts_on_launch = not job.started
        if any(option.launch_is_cheaper() for option in options) and self._reserve(options, state):
            self._begin_at_once(self.demands[job], now)
            return True
        return False

    def _options(self, job: JobView) -> tuple[Demand, ...]:
        """The job's demand on each GPU type that can run it, the best type first."""
        names = job.gpu_types if len(self.rooms) > 1 else ("",)
        return tuple(Demand.of(job, self.guard_s, self.rooms[name].gpus_per_node, name) for name in names)

    def _reserve(self, options: tuple[Demand, ...], state: State) -> bool:
        """Reserve for a new job, if necessary by moving the reservations of later deadlines: of those on one
        GPU type, the least valuable first, then of those on all types.
        """
        found = cheapest(options, self._calendars, self.values, state.now)
        if found is not None:
            demand, slots = found
            self._calendars[demand.gpu_type].reserve(slots)
            self._slots[demand.job] = slots
            self._keep(demand, options)
            return True
        for option in by_value(options, self.values):
            if self._admit_jointly((option,), {option.gpu_type}, options, state):
                return True
        return len(self.rooms) > 1 and self._admit_jointly(options, self.rooms, options, state)

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
            calendar.reserve(slots[:1])

    def admit_without_reservation(self, job: JobView) -> None:
        """Admit a job that has no reservation and runs on spare GPUs only."""
        options = self._options(job)
        self._keep(options[0], options)

    def _keep(self, demand: Demand, options: tuple[Demand, ...]) -> None:
        self.demands[demand.job], self.options[demand.job] = demand, options
        self._smallest.update((option.gpu_type, option.sizes[0]) for option in options)

    def _admit_jointly(
        self, new: tuple[Demand, ...], types: Collection[str], options: tuple[Demand, ...], state: State
    ) -> bool:
        """Fill anew, by deadline: the `new` job, and of the jobs with a reservation on the GPU `types`, those
        with later deadlines and those that were widened. They keep their type if `types` is a single one,
        else they may change it. The new job has these `options` in all.

        The result is adopted only if every one of them still finishes in time.
        """
        deadline_s = new[0].deadline_s
        again = [
            demand
            for job in self._slots
            if (demand := self.demands[job]).gpu_type in types
            and (demand.deadline_s >= deadline_s or job in self._widened)
        ]
        if not again:
            return False
        choices = {demand.job: self._choices(demand, types) for demand in again}
        if not self._may_fit(new, types, choices, state.now):
            return False
        calendars = {name: self._calendars[name].copy() for name in types}
        for demand in again:
            calendars[demand.gpu_type].give_back(self._slots[demand.job])
        for calendar in calendars.values():
            calendar.advance(state.now)
        by_deadline = sorted(
            [new, *choices.values()], key=lambda options: (options[0].deadline_s, options[0].job.order)
        )
        addresses, former = self._addresses({options[0].job for options in by_deadline}, state)
        refilled = refill(by_deadline, calendars, self.values, addresses, former, state)
        if refilled is None:
            return False
        for demand in again:
            demand.in_place = False
            self.demands[demand.job] = refilled.demands[demand.job]
        for job in refilled.in_place:
            refilled.demands[job].in_place = True
        self._calendars |= calendars
        self._slots.update(refilled.slots)
        for job in choices:
            self._widened.pop(job, None)
        self._keep(refilled.demands[new[0].job], options)
        return True

    def _choices(self, demand: Demand, types: Collection[str]) -> tuple[Demand, ...]:
        """The demands among which an admitted job may choose when it is filled anew, as of now."""
        if len(types) == 1:
            return (demand,)
        options = tuple(option for option in self.options[demand.job] if option.gpu_type in types)
        for option in options:
            option.counts_on_launch = demand.counts_on_launch
            option.refresh()
        return options

    def _addresses(
        self, refilled: Collection[JobView], state: State
    ) -> tuple[dict[str, Addresses], dict[int, int]]:
        """The addresses that nodes of each GPU type serve for jobs in place other than `refilled`; and by
        node, the virtual node that it serves for any job in place.
        """
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
        there = [demand for job in self._slots if (demand := self.demands[job]).gpu_type in types]
        due = [choices.get(demand.job, (demand,)) for demand in there] + [new]
        due.sort(key=lambda options: options[0].deadline_s)
        worth = sum(self.values[name] * self.rooms[name].gpus for name in types)
        needed = 0.0
        for options in due:
            needed += min(self.values[one.gpu_type] * one.least_gpu_seconds() for one in options)
            available = worth * (options[0].deadline_s - now)
            if options[0].deadline_s >= new[0].deadline_s and needed > available:
                return False
        return True

    def _shorten_all(self, now: float) -> None:
        for job, slots in self._slots.items():
            demand = self.demands[job]
            demand.refresh()
            kept = shorten(slots, demand, now)
            if kept != slots:
                if not kept or kept[0].start > now or kept[0].end != slots[0].end:
                    demand.in_place = False
                self._calendars[demand.gpu_type].give_back(slots)
                self._calendars[demand.gpu_type].reserve(kept)
                self._slots[job] = kept
        for calendar in self._calendars.values():
            calendar.advance(now)

    # Between admissions

    def release_finished(self, state: State) -> None:
        """Free the reservations of the jobs that have finished since the last call."""
        for event in state.events:
            if event.kind == "submitted":
                break  # events of finished jobs come first
            if event.kind == "finished" and event.job is not None:
                demand = self.demands.pop(event.job, None)
                self._widened.pop(event.job, None)
                if demand is not None:
                    for option in self.options.pop(event.job):
                        self._smallest[option.gpu_type, option.sizes[0]] -= 1
                    self._calendars[demand.gpu_type].give_back(self._slots.pop(event.job, []))

    def agenda(self, now: float) -> Agenda:
        """What is reserved for now and for soon. Slots that are over are dropped."""
        due: dict[JobView, Slot] = {}
        soon: list[tuple[float, int, JobView, int]] = []
        growing, wake_at = Counter[str](), inf
        for job, slots in self._slots.items():
            demand = self.demands[job]
            while slots and slots[0].end <= now + _INSTANT_S:
                del slots[0]
                demand.in_place = False
            if not slots:
                continue
            start, end, gpus, _ = slots[0]
            if start > now + _INSTANT_S:
                wake_at = min(wake_at, start)
                if start - now <= self._lead_s(job, gpus):
                    soon.append((start, job.order, job, gpus))
                continue
            due[job] = slots[0]
            wake_at = min(wake_at, end)
            held = held_on(job, demand.gpu_type)
            if held != gpus:
                demand.in_place = False  # it has lost its GPUs to a failure
            if len(slots) > 1 and slots[1].start - now <= self._lead_s(job, slots[1].gpus):
                growing[demand.gpu_type] += max(0, slots[1].gpus - max(gpus, held))
        return Agenda(due, sorted(soon), growing, wake_at)

    def _lead_s(self, job: JobView, gpus: int) -> float:
        return _LEAD_RESTARTS * self.demands[job].restarts[gpus]

    def widen(
        self, agenda: Agenda, target: dict[JobView, Share], in_service: Mapping[str, int], now: float
    ) -> None:
        """Let jobs that must follow their reservation reserve remaining GPUs until they finish.

        Such a job cannot afford to grow on spare GPUs, which may be gone at the next event; reserved GPUs
        stay. `target` and `agenda.due` are updated. `in_service`: free and held GPUs by type.
        """
        spare = Counter(in_service)
        for share in target.values():
            spare[share.gpu_type] -= share.gpus
        for job in sorted(agenda.due, key=urgency):
            name = self.demands[job].gpu_type
            held = held_on(job, name)
            if target[job] != (held, name) or spare[name] <= 0:
                continue
            slot = self._widest(job, held + spare[name], now)
            if slot:
                spare[name] -= slot.gpus - held
                agenda.due[job], target[job] = slot, Share(slot.gpus, name)

    def _widest(self, job: JobView, limit: int, now: float) -> Slot | None:
        """Reserve the largest size up to `limit` on which the job finishes earlier than on its present GPUs,
        if there is one.
        """
        demand, own = self.demands[job], self._slots[job]
        calendar = self._calendars[demand.gpu_type]
        finish_s = now + demand.paying_s + demand.work / demand.rates[job.gpus]
        for size in reversed(demand.sizes):
            end = now + demand.restarts[size] + demand.work / demand.rates[size]
            if not job.gpus < size <= limit or end > min(demand.deadline_s, finish_s):
                continue
            calendar.give_back(own)
            node, since = calendar.address_before(size, end, now, own[0].node)
            if since <= now:
                slot = Slot(now, end, size, node)
                calendar.reserve([slot])
                self._slots[job], self._widened[job], demand.in_place = [slot], None, False
                return slot
            calendar.reserve(own)
        return None

    def note_seated(self, due: Mapping[JobView, Slot], seated: Mapping[JobView, None]) -> None:
        """Note which of the jobs that are `due` now run at their reserved address."""
        for job in due:
            self.demands[job].in_place = job in seated


def urgency(job: JobView) -> float:
    """The deadline; jobs without one come last."""
    return inf if job.deadline_s is None else job.deadline_s
