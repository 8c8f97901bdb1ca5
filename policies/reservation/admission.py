"""The reservations of all admitted jobs, and which further jobs may be admitted.

To admit a job:

    shorten every reservation to the latest part that still does the job's work;
    fill the new job into what is free before its deadline;
    failing that, fill it and all jobs with later deadlines anew, by deadline;
    failing that, decline it; the stored reservations stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from clustersim.scheduler import Cluster, JobView, State

from .calendar import WHOLE, Addresses, NodeCalendar, Slot
from .filling import Demand, fill, shorten, yield_of

__all__ = ["Admission", "Agenda", "urgency"]

_INSTANT_S = 1e-6  # boundaries of reservations this close are one: they differ by rounding
_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job


@dataclass(frozen=True)
class Agenda:
    """What reservations say about an instant.

    `due`: the slot reserved for now, by job. `soon`: reservations that begin soon, as (start, order of
    submission, job, GPUs). `growing`: GPUs by which jobs on reserved GPUs grow soon. `wake_at`: when the
    agenda changes without any event.
    """

    due: dict[JobView, Slot]
    soon: list[tuple[float, int, JobView, int]]
    growing: int
    wake_at: float


class _Refilled(NamedTuple):
    """New reservations, and the jobs of which the first slot is where they run."""

    slots: dict[JobView, list[Slot]]
    in_place: set[JobView]


class Admission:
    """Demands of all admitted jobs, reservations of those with a deadline, and the GPUs that stay free."""

    def __init__(self, now: float, cluster: Cluster, guard_s: float):
        self.guard_s, self.cluster = guard_s, cluster
        self.demands: dict[JobView, Demand] = {}
        self._smallest: Counter[int] = Counter()  # number of demands by their smallest size
        self._slots: dict[JobView, list[Slot]] = {}  # in order of admission
        self._widened: dict[JobView, None] = {}  # jobs with spare GPUs added to their reservation
        self._calendar = NodeCalendar(now, cluster.nodes, cluster.gpus_per_node)

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

    def least_size(self) -> int:
        """The fewest GPUs that any admitted job can use."""
        return min((size for size, count in self._smallest.items() if count), default=0)

    # Admission

    def admit(self, job: JobView, state: State) -> bool:
        """Reserve for `job` if it can finish in time without making another admitted job late. Returns
        whether it is admitted.
        """
        demand, now = Demand.of(job, self.guard_s, self.cluster.gpus_per_node), state.now
        if demand.deadline_s == inf:
            self._keep(demand)
            return True
        if max(demand.rates.values()) * (demand.deadline_s - now) < demand.work:
            return False
        self._shorten_all(now)
        if self._reserve(demand, state):
            return True
        demand.counts_on_launch = not job.started
        if demand.launch_is_cheaper() and self._reserve(demand, state):
            self._begin_at_once(demand, now)
            return True
        return False

    def _reserve(self, demand: Demand, state: State) -> bool:
        """Reserve for a new job, if necessary by moving the reservations of later deadlines."""
        slots = fill(self._calendar, demand, state.now)
        if slots is None:
            return self._admit_jointly(demand, state)
        self._calendar.reserve(slots)
        self._slots[demand.job] = slots
        self._keep(demand)
        return True

    def _begin_at_once(self, demand: Demand, now: float) -> None:
        """Let a reservation that begins soon begin now if its GPUs are free: a job that counts on a launch
        may not begin early on spare GPUs.
        """
        slots = self._slots[demand.job]
        start, end, gpus, node = slots[0]
        if start - now <= demand.restarts[gpus]:
            self._calendar.give_back(slots[:1])
            node, since = self._calendar.address_before(gpus, end, now, node)
            if since <= now:
                slots[0] = Slot(now, end, gpus, node)
            self._calendar.reserve(slots[:1])

    def admit_without_reservation(self, job: JobView) -> None:
        """Admit a job that has no reservation and runs on spare GPUs only."""
        self._keep(Demand.of(job, self.guard_s, self.cluster.gpus_per_node))

    def _keep(self, demand: Demand) -> None:
        self.demands[demand.job] = demand
        self._smallest[demand.sizes[0]] += 1

    def _admit_jointly(self, new: Demand, state: State) -> bool:
        """Fill anew, by deadline: `new`, the jobs with later deadlines, and the jobs that were widened.

        The result is adopted only if every one of them still finishes in time.
        """
        again = [
            demand
            for job in self._slots
            if (demand := self.demands[job]).deadline_s >= new.deadline_s or job in self._widened
        ]
        if not again or not self._may_fit(new, state.now):
            return False
        calendar = self._calendar.copy()
        for demand in again:
            calendar.give_back(self._slots[demand.job])
        calendar.advance(state.now)
        by_deadline = sorted((new, *again), key=lambda demand: (demand.deadline_s, demand.job.order))
        refilled = self._refill(by_deadline, calendar, state)
        if refilled is None:
            return False
        for demand in again:
            demand.in_place = demand.job in refilled.in_place
        self._calendar = calendar
        self._slots.update(refilled.slots)
        self._widened.clear()
        self._keep(new)
        return True

    def _refill(self, demands: Sequence[Demand], calendar: NodeCalendar, state: State) -> _Refilled | None:
        """Fill `demands` into `calendar`, in their order; None if one of them cannot finish in time.

        A job that goes on where it runs, from now on, claims its nodes, so that no later one claims them too.
        """
        draft = state.proposal()
        addresses, former = self._addresses({demand.job for demand in demands}, state)
        refilled = _Refilled({}, set())
        for demand in demands:
            placement = draft.placement(demand.job)
            home = addresses.home(placement, former) if placement else None
            slots = fill(calendar, demand, state.now, home)
            if slots is None:
                return None
            calendar.reserve(slots)
            refilled.slots[demand.job] = slots
            start, _, gpus, node = slots[0]
            if placement and start <= state.now and addresses.fits(placement, gpus, node):
                addresses.add(placement, node)
                refilled.in_place.add(demand.job)
        return refilled

    def _addresses(self, refilled: Collection[JobView], state: State) -> tuple[Addresses, dict[int, int]]:
        """The addresses that nodes serve for jobs in place other than `refilled`; and by node, the virtual
        node that it serves for any job in place.
        """
        addresses, former, draft = Addresses(self.cluster), {}, state.proposal()
        for job, slots in self._slots.items():
            placement = draft.placement(job) if self.demands[job].in_place else None
            if placement:
                if job not in refilled:
                    addresses.add(placement, slots[0].node)
                if slots[0].node != WHOLE:
                    former[placement[0][0]] = slots[0].node
        return addresses, former

    def _may_fit(self, new: Demand, now: float) -> bool:
        """A quick necessary condition: the jobs due by each deadline need no more GPU time than there is."""
        due = sorted([self.demands[job] for job in self._slots] + [new], key=lambda d: d.deadline_s)
        needed = 0.0
        for demand in due:
            needed += demand.least_gpu_seconds()
            available = self.cluster.gpus * (demand.deadline_s - now)
            if demand.deadline_s >= new.deadline_s and needed > available:
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
                self._calendar.give_back(slots)
                self._calendar.reserve(kept)
                self._slots[job] = kept
        self._calendar.advance(now)

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
                    self._smallest[demand.sizes[0]] -= 1
                    self._calendar.give_back(self._slots.pop(event.job, []))

    def agenda(self, now: float) -> Agenda:
        """What is reserved for now and for soon. Slots that are over are dropped."""
        due: dict[JobView, Slot] = {}
        soon: list[tuple[float, int, JobView, int]] = []
        growing, wake_at = 0, inf
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
            if job.gpus != gpus:
                demand.in_place = False  # it has lost its GPUs to a failure
            if len(slots) > 1 and slots[1].start - now <= self._lead_s(job, slots[1].gpus):
                growing += max(0, slots[1].gpus - max(gpus, job.gpus))
        return Agenda(due, sorted(soon), growing, wake_at)

    def _lead_s(self, job: JobView, gpus: int) -> float:
        return _LEAD_RESTARTS * self.demands[job].restarts[gpus]

    def widen(self, agenda: Agenda, target: dict[JobView, int], state: State) -> None:
        """Let jobs that must follow their reservation reserve remaining GPUs until they finish.

        Such a job cannot afford to grow on spare GPUs, which may be gone at the next event; reserved GPUs
        stay. `target` and `agenda.due` are updated.
        """
        spare = state.in_service - sum(target.values())
        for job in sorted(agenda.due, key=urgency):
            if target[job] != job.gpus or spare <= 0:
                continue
            slot = self._widest(job, job.gpus + spare, state.now)
            if slot:
                spare -= slot.gpus - job.gpus
                agenda.due[job], target[job] = slot, slot.gpus

    def _widest(self, job: JobView, limit: int, now: float) -> Slot | None:
        """Reserve the largest size up to `limit` on which the job finishes earlier than on its present GPUs,
        if there is one.
        """
        demand, own = self.demands[job], self._slots[job]
        finish_s = now + demand.paying_s + demand.work / demand.rates[job.gpus]
        for size in reversed(demand.sizes):
            end = now + demand.restarts[size] + demand.work / demand.rates[size]
            if not job.gpus < size <= limit or end > min(demand.deadline_s, finish_s):
                continue
            self._calendar.give_back(own)
            node, since = self._calendar.address_before(size, end, now, own[0].node)
            if since <= now:
                slot = Slot(now, end, size, node)
                self._calendar.reserve([slot])
                self._slots[job], self._widened[job], demand.in_place = [slot], None, False
                return slot
            self._calendar.reserve(own)
        return None

    def note_seated(self, due: Mapping[JobView, Slot], seated: Mapping[JobView, None]) -> None:
        """Note which of the jobs that are `due` now run at their reserved address."""
        for job in due:
            self.demands[job].in_place = job in seated


def urgency(job: JobView) -> float:
    """The deadline; jobs without one come last."""
    return inf if job.deadline_s is None else job.deadline_s
