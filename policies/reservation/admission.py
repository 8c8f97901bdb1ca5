"""What a deadline policy has promised: the reservations of its admitted jobs, and who may still be admitted.

admit: shorten every reservation to the latest part that still does the job's work;
       fill the new job into what is free up to its deadline;
       failing that, fill it and all jobs with later deadlines anew, by deadline;
       failing that, decline it and let the stored reservations stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from clustersim.scheduler import Cluster, JobView, State

from .calendar import WHOLE, Claims, Piece, Room
from .filling import Demand, fill, shorten, yield_of

__all__ = ["Agenda", "Promises", "urgency"]

_INSTANT_S = 1e-6  # boundaries of reservations this close are one: they differ by rounding
_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job


@dataclass(frozen=True)
class Agenda:
    """What reservations say about an instant.

    `due`: what is reserved for now, by job. `soon`: reservations that begin soon, as (start, order of
    submission, job, GPUs). `growing`: GPUs by which jobs on reserved GPUs grow soon. `wake_at`: when this
    changes, if nothing happens before.
    """

    due: dict[JobView, Piece]
    soon: list[tuple[float, int, JobView, int]]
    growing: int
    wake_at: float


class Promises:
    """Demands of all admitted jobs, reservations of those with a deadline, and the GPUs left free."""

    def __init__(self, now: float, cluster: Cluster, guard_s: float):
        self.guard_s, self.cluster = guard_s, cluster
        self.demands: dict[JobView, Demand] = {}
        self._smallest: Counter[int] = Counter()  # how many demands have this smallest size
        self._pieces: dict[JobView, list[Piece]] = {}  # in order of admission
        self._widened: dict[JobView, None] = {}  # whose reservation has taken in spare GPUs
        self._room = Room(now, cluster.nodes, cluster.gpus_per_node)

    def pieces(self, job: JobView) -> list[Piece]:
        """The rest of a job's reservation; empty for a job without a deadline."""
        return self._pieces.get(job, [])

    def slack_s(self, job: JobView, now: float) -> float:
        """Seconds that a job's reservation has to spare."""
        demand = self.demands[job]
        slack = yield_of(self._pieces[job], demand, now) - demand.work
        return slack / demand.rates[demand.sizes[0]]

    def least_size(self) -> int:
        """The fewest GPUs that any admitted job can use."""
        return min((size for size, jobs in self._smallest.items() if jobs), default=0)

    # Admission

    def admit(self, job: JobView, state: State) -> bool:
        """Reserve for `job` if it can finish in time and nobody else is made late by that; say whether."""
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
        if demand.dearer_restarts() and self._reserve(demand, state):
            self._begin_at_once(demand, now)
            return True
        return False

    def _reserve(self, demand: Demand, state: State) -> bool:
        """Keep room for a job that is new, if need be by moving the reservations of later deadlines."""
        pieces = fill(self._room, demand, state.now)
        if pieces is None:
            return self._admit_jointly(demand, state)
        self._room.reserve(pieces)
        self._pieces[demand.job] = pieces
        self._keep(demand)
        return True

    def _begin_at_once(self, demand: Demand, now: float) -> None:
        """Let a reservation that begins soon begin now if there is room: a job that counts on a launch may
        not begin early on spare GPUs.
        """
        pieces = self._pieces[demand.job]
        start, end, gpus, node = pieces[0]
        if start - now <= demand.restarts[gpus]:
            self._room.give_back(pieces[:1])
            node, since = self._room.stay(gpus, end, now, node)
            if since <= now:
                pieces[0] = Piece(now, end, gpus, node)
            self._room.reserve(pieces[:1])

    def take_without_promise(self, job: JobView) -> None:
        """Let a job in that has no reservation and lives on spare GPUs."""
        self._keep(Demand.of(job, self.guard_s, self.cluster.gpus_per_node))

    def _keep(self, demand: Demand) -> None:
        self.demands[demand.job] = demand
        self._smallest[demand.sizes[0]] += 1

    def _admit_jointly(self, new: Demand, state: State) -> bool:
        """Fill `new`, all jobs with later deadlines and those that were widened anew, by deadline.

        The result is adopted only if every one of them still finishes in time.
        """
        again = [
            demand
            for job in self._pieces
            if (demand := self.demands[job]).deadline_s >= new.deadline_s or job in self._widened
        ]
        if not again or not self._may_fit(new, state.now):
            return False
        room = self._room.copy()
        for demand in again:
            room.give_back(self._pieces[demand.job])
        room.advance(state.now)
        draft, claims, former = state.proposal(), *self._claims(again, state)
        filled: dict[JobView, list[Piece]] = {}
        in_place: dict[JobView, None] = {}
        for demand in sorted((new, *again), key=lambda d: (d.deadline_s, d.job.order)):
            place = draft.placement(demand.job)
            pieces = fill(room, demand, state.now, claims.home(place, former) if place else None)
            if pieces is None:
                return False
            room.reserve(pieces)
            filled[demand.job] = pieces
            start, _, gpus, node = pieces[0]
            if place and start <= state.now and claims.fits(place, gpus, node):
                claims.add(place, node)
                in_place[demand.job] = None
        for demand in again:
            demand.in_place = demand.job in in_place
        self._room = room
        self._pieces.update(filled)
        self._widened.clear()
        self._keep(new)
        return True

    def _claims(self, again: list[Demand], state: State) -> tuple[Claims, dict[int, int]]:
        """What jobs in place claim, except those that are filled `again`; and the virtual nodes that nodes of
        the cluster serve if nobody is.
        """
        claims, former, draft = Claims(self.cluster), {}, state.proposal()
        refilled = {demand.job for demand in again}
        for job, pieces in self._pieces.items():
            place = draft.placement(job) if self.demands[job].in_place else None
            if place:
                if job not in refilled:
                    claims.add(place, pieces[0].node)
                if pieces[0].node != WHOLE:
                    former[place[0][0]] = pieces[0].node
        return claims, former

    def _may_fit(self, new: Demand, now: float) -> bool:
        """A quick necessary condition: up to every deadline there is the least GPU time of what is due."""
        due = sorted([self.demands[job] for job in self._pieces] + [new], key=lambda d: d.deadline_s)
        needed = 0.0
        for demand in due:
            needed += demand.least_gpu_seconds()
            there = self.cluster.gpus * (demand.deadline_s - now)
            if demand.deadline_s >= new.deadline_s and needed > there:
                return False
        return True

    def _shorten_all(self, now: float) -> None:
        for job, pieces in self._pieces.items():
            demand = self.demands[job]
            demand.refresh()
            kept = shorten(pieces, demand, now)
            if kept != pieces:
                if not kept or kept[0].start > now or kept[0].end != pieces[0].end:
                    demand.in_place = False
                self._room.give_back(pieces)
                self._room.reserve(kept)
                self._pieces[job] = kept
        self._room.advance(now)

    # As time goes on

    def forget_finished(self, state: State) -> None:
        """Free what jobs that have finished since the last call had reserved."""
        for event in state.events:
            if event.kind == "submitted":
                break  # those that finished come first
            if event.kind == "finished" and event.job is not None:
                demand = self.demands.pop(event.job, None)
                self._widened.pop(event.job, None)
                if demand is not None:
                    self._smallest[demand.sizes[0]] -= 1
                    self._room.give_back(self._pieces.pop(event.job, []))

    def agenda(self, now: float) -> Agenda:
        """What is reserved for now and for soon; reservations that are over are dropped."""
        due: dict[JobView, Piece] = {}
        soon: list[tuple[float, int, JobView, int]] = []
        growing, wake_at = 0, inf
        for job, pieces in self._pieces.items():
            demand = self.demands[job]
            while pieces and pieces[0].end <= now + _INSTANT_S:
                del pieces[0]
                demand.in_place = False
            if not pieces:
                continue
            start, end, gpus, _ = pieces[0]
            if start > now + _INSTANT_S:
                wake_at = min(wake_at, start)
                if start - now <= self._lead_s(job, gpus):
                    soon.append((start, job.order, job, gpus))
                continue
            due[job] = pieces[0]
            wake_at = min(wake_at, end)
            if job.gpus != gpus:
                demand.in_place = False  # it has lost them to a failure
            if len(pieces) > 1 and pieces[1].start - now <= self._lead_s(job, pieces[1].gpus):
                growing += max(0, pieces[1].gpus - max(gpus, job.gpus))
        return Agenda(due, sorted(soon), growing, wake_at)

    def _lead_s(self, job: JobView, gpus: int) -> float:
        return _LEAD_RESTARTS * self.demands[job].restarts[gpus]

    def widen(self, agenda: Agenda, target: dict[JobView, int], state: State) -> None:
        """Let jobs that are tied to their reservation reserve the GPUs that are left over until they finish.

        Such a job cannot afford to grow on spare GPUs that may be gone at the next event; reserved they
        stay. Changes `target` and `agenda.due` along.
        """
        spare = state.in_service - sum(target.values())
        for job in sorted(agenda.due, key=urgency):
            if target[job] != job.gpus or spare <= 0:
                continue
            piece = self._widest(job, job.gpus + spare, state.now)
            if piece:
                spare -= piece.gpus - job.gpus
                agenda.due[job], target[job] = piece, piece.gpus

    def _widest(self, job: JobView, limit: int, now: float) -> Piece | None:
        """Reserve the largest size up to `limit` that finishes the job earlier than now, if any does."""
        demand, own = self.demands[job], self._pieces[job]
        finish_s = now + demand.paying_s + demand.work / demand.rates[job.gpus]
        for size in reversed(demand.sizes):
            end = now + demand.restarts[size] + demand.work / demand.rates[size]
            if not job.gpus < size <= limit or end > min(demand.deadline_s, finish_s):
                continue
            self._room.give_back(own)
            node, since = self._room.stay(size, end, now, own[0].node)
            if since <= now:
                piece = Piece(now, end, size, node)
                self._room.reserve([piece])
                self._pieces[job], self._widened[job], demand.in_place = [piece], None, False
                return piece
            self._room.reserve(own)
        return None

    def note_seats(self, due: Mapping[JobView, Piece], seated: Mapping[JobView, None]) -> None:
        """Who of those who are due holds its GPUs where they are reserved from now on."""
        for job in due:
            self.demands[job].in_place = job in seated


def urgency(job: JobView) -> float:
    """The deadline; jobs without one come last."""
    return inf if job.deadline_s is None else job.deadline_s
