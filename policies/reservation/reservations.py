"""The reservations of jobs with a deadline, and what they say about an instant.

Which jobs may reserve is decided in `admission.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from clustersim.scheduler import Cluster, JobView, State

from .agenda import Agenda, Timetable
from .calendar import NodeCalendar, Slot
from .demand import Demand, Kinds
from .filling import shorten, yield_of
from .gpu_types import Share, Values, held_on, rooms_of

__all__ = ["Reservations", "TakenOut", "urgency"]

_LOST = ("interrupted", "stopped")  # events of jobs that have lost their GPUs


class TakenOut(NamedTuple):
    """A reservation that was taken out and can be put back. `order`: all reservations before; `number`:
    its number in the order of admission.
    """

    demand: Demand
    in_place: bool
    counts_on_launch: bool
    widened: bool
    order: dict[JobView, list[Slot]]
    number: int


class Reservations:
    """The jobs that entered, with their demands, the reservations of some of them, and what those leave free.

    A job that entered has a reservation, or is *best effort*: it runs on spare GPUs only. `options`: a job's
    demands on the GPU types that can run it, the best type first. `demands`: the one of them on the type of
    its reservation; the first for a best-effort job. `tied`, `loose`: the slot in which a job is known to be
    unable to afford a move, or able to (`SpareGpus.is_tied`).
    """

    def __init__(self, now: float, cluster: Cluster, guard_s: float):
        self.guard_s, self.rooms = guard_s, rooms_of(cluster)
        self.options: dict[JobView, tuple[Demand, ...]] = {}
        self.demands: dict[JobView, Demand] = {}
        self.tied: dict[JobView, Slot] = {}
        self.loose: dict[JobView, Slot] = {}
        self._kinds = Kinds(self.rooms)
        self._values = Values(list(self.rooms))
        self._smallest: Counter[tuple[str, int]] = Counter()  # options by their type and smallest size
        self._least_sizes: dict[str, int] = {}  # the fewest GPUs that any option can use, as far as looked up
        self._slots: dict[JobView, list[Slot]] = {}  # in order of admission
        self._widened: dict[JobView, None] = {}  # jobs with spare GPUs added to their reservation
        self._timetable = Timetable(self.demands, self._slots)
        self._to_shorten: dict[JobView, None] = {}  # jobs that may need less than their reservation does
        self._shortened_at = -inf  # when `shorten_all` last looked at the running jobs
        self._passed_over: list[Demand] = []  # of jobs that it did not refresh, as they still need it all
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
        return slack / demand.rates[demand.reservable[0]]

    def least_size(self, gpu_type: str) -> int:
        """The fewest GPUs of a type that any job can use."""
        if gpu_type not in self._least_sizes:
            sizes = (size for (name, size), count in self._smallest.items() if count and name == gpu_type)
            self._least_sizes[gpu_type] = min(sizes, default=0)
        return self._least_sizes[gpu_type]

    def free_gpu_s(self, now: float, until: float) -> float:
        """GPU-seconds that are not reserved from `now` until then, by worth, with all nodes in service."""
        free = 0.0
        for name, room in self.rooms.items():
            free += self.values[name] * room.gpus * (until - now)
        for job, slots in self._slots.items():
            taken = sum(gpus * max(0.0, min(end, until) - max(start, now)) for start, end, gpus, _ in slots)
            free -= self.values[self.demands[job].gpu_type] * taken
        return free

    # Entering and leaving

    def enter(self, job: JobView) -> None:
        """Take in a job as best effort."""
        names = job.gpu_types if len(self.rooms) > 1 else ("",)
        options = tuple(Demand.of(job, self._kinds.of(job, name), self.guard_s) for name in names)
        self._values.note({option.gpu_type: option.speed_per_gpu() for option in options})
        self.options[job], self.demands[job] = options, options[0]
        self._smallest.update((option.gpu_type, option.reservable[0]) for option in options)
        self._least_sizes.clear()

    def leave(self, job: JobView) -> None:
        """Forget a job, and free its reservation."""
        demand = self.demands.pop(job)
        for option in self.options.pop(job):
            self._smallest[option.gpu_type, option.reservable[0]] -= 1
        self._least_sizes.clear()
        self._calendars[demand.gpu_type].give_back(self._slots.pop(job, []))
        self._timetable.note_removal(job)
        self._widened.pop(job, None)
        self.tied.pop(job, None)
        self.loose.pop(job, None)

    def release_finished(self, state: State) -> None:
        """Let the jobs leave that have finished since the last call."""
        for event in state.events:
            if event.kind == "submitted":
                break  # events of finished jobs come first
            if event.kind == "finished" and event.job is not None and event.job in self.demands:
                self.leave(event.job)

    def drop(self, job: JobView) -> None:
        """Free the reservation of a job, which stays as best effort. KeyError if it has none."""
        self.taken_out(job)

    def taken_out(self, job: JobView) -> TakenOut:
        """As `drop`; `put_back` undoes it if nothing else has been reserved since."""
        demand, options = self.demands[job], self.options[job]
        kept = TakenOut(
            demand, demand.in_place, demand.counts_on_launch, job in self._widened, dict(self._slots),
            self._timetable.order[job],
        )  # fmt: skip
        self._calendars[demand.gpu_type].give_back(self._slots.pop(job))
        self._timetable.note_removal(job)
        self._widened.pop(job, None)
        for option in options:
            option.in_place = option.counts_on_launch = False
        self.demands[job] = options[0]
        return kept

    def put_back(self, kept: TakenOut) -> None:
        """Undo `taken_out`."""
        demand, job = kept.demand, kept.demand.job
        demand.in_place, demand.counts_on_launch = kept.in_place, kept.counts_on_launch
        self.demands[job] = demand
        self._calendars[demand.gpu_type].reserve(kept.order[job])
        slots = {other: self._slots.get(other, slots) for other, slots in kept.order.items()}
        self._slots.clear()
        self._slots.update(slots)
        self._to_shorten[job] = None
        self._timetable.note_change(job, kept.number)
        if kept.widened:
            self._widened[job] = None

    def _hold(self, job: JobView, slots: list[Slot]) -> None:
        """Note a job's new reservation, made in a calendar."""
        self._slots[job] = slots
        self._to_shorten[job] = None
        self._timetable.note_change(job)

    def shorten_all(self, state: State) -> None:
        """Cut every reservation to the latest part that still does its job's work.

        What is over by now stays: nothing looks at it. So a reservation is looked at only if it is new, or if
        its job may have worked since the last time: if it runs now, may have been stopped by a decision, or
        has lost its GPUs.

        A tied job (`SpareGpus.is_tied`) with a single slot has no slack to give back while it follows its
        reservation. It is passed over: its demand is as of an earlier time.
        """
        now, demands, looked_at = state.now, self.demands, self._to_shorten
        self._to_shorten = {}
        if now != self._shortened_at:
            looked_at.update(dict.fromkeys(state.running))
            looked_at.update(dict.fromkeys(self._losers(state)))
            self._passed_over.clear()
            self._shortened_at = now
        for job in looked_at:
            slots = self._slots.get(job)
            if slots is None:
                continue
            demand = demands[job]
            if demand.in_place and len(slots) == 1 and self.tied.get(job) is slots[0] and now < slots[0].end:
                self._passed_over.append(demand)
                continue
            demand.refresh()
            kept = shorten(slots, demand, now)
            if kept is slots:
                continue
            calendar = self._calendars[demand.gpu_type]
            self._slots[job] = kept
            if kept and len(kept) == len(slots):  # its first slot begins later
                (start, _, gpus, node), later = slots[0], kept[0].start
                if later > now:
                    demand.in_place = False
                calendar.give_back((Slot(start, later, gpus, node),))
                self._timetable.note_later_start(job, later)
            else:
                demand.in_place = False
                calendar.give_back(_cut_off(slots, kept))
                self._timetable.note_change(job)
        for calendar in self._calendars.values():
            calendar.advance(now)

    def _losers(self, state: State) -> list[JobView]:
        """The jobs that have lost their GPUs since the last decision, other than by that decision."""
        return [
            event.job
            for event in state.events
            if event.kind in _LOST and event.job is not None and event.job in self.demands
        ]

    # Following

    def agenda(self, state: State) -> Agenda:
        """What is reserved for now and for soon. Slots that are over are dropped."""
        for job in self._losers(state):
            self.demands[job].in_place, self.demands[job].outlook = False, None
            self._to_shorten[job] = None
        self._shortened_at = -inf  # at this instant, too, jobs may hold other GPUs after the decision
        agenda = self._timetable.agenda(state.now)
        for job in [job for job in self._widened if not self._slots[job]]:
            del self._widened[job]
        return agenda

    def widen(self, agenda: Agenda, target: dict[JobView, Share], spare: dict[str, int], now: float) -> None:
        """Let jobs that must follow their reservation reserve remaining GPUs until they finish.

        Such a job cannot afford to grow on spare GPUs, which may be gone at the next event; reserved GPUs
        stay. `target`, `agenda.due` and `spare`, the GPUs by type that no job has in `target`, are updated.
        """
        if not any(spare.values()):
            return
        order = self._timetable.order
        for job in sorted(agenda.due, key=lambda job: (urgency(job), order[job])):
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
        demand.refresh()  # first: a job that has started counts on a launch no more
        larger = [size for size in demand.reservable if job.gpus < size <= limit]
        if not larger:
            return None
        calendar = self._calendars[demand.gpu_type]
        finish_s = now + demand.paying_s + demand.work / demand.rates[job.gpus]
        most = max(-(-slot.gpus // calendar.gpus_per_node) for slot in own)
        for size in reversed(larger):
            end = now + demand.restarts[size] + demand.work / demand.rates[size]
            if end > min(demand.deadline_s, finish_s):
                continue
            nodes = -(-size // calendar.gpus_per_node)
            if nodes - calendar.whole.least(now, end) > most:
                continue  # too few nodes are free, whatever the job gives back
            calendar.give_back(own)
            node, since = calendar.address_before(size, end, now, own[0].node)
            if since <= now:
                slot = Slot(now, end, size, node)
                calendar.reserve([slot])
                self._hold(job, [slot])
                self._widened[job], demand.in_place = None, False
                return slot
            calendar.reserve(own)
        return None

    def note_seated(self, due: Mapping[JobView, Slot], seated: Mapping[JobView, None]) -> None:
        """Note which of the jobs that are `due` now run at their reserved address."""
        for job in due:
            self.demands[job].in_place = job in seated

    def note_stops(self, running: Iterable[JobView]) -> None:
        """Note the jobs that ran until now, where some of them may stop."""
        self._to_shorten.update(dict.fromkeys(running))


def _cut_off(slots: list[Slot], kept: list[Slot]) -> list[Slot]:
    """The part of a reservation before the part that is kept."""
    if not kept:
        return slots
    over = len(slots) - len(kept)
    start, _, gpus, node = slots[over]
    return [*slots[:over], Slot(start, kept[0].start, gpus, node)]


def urgency(job: JobView) -> float:
    """The deadline; jobs without one come last."""
    return inf if job.deadline_s is None else job.deadline_s
