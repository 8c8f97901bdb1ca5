"""What a deadline policy has promised: the reservations of its admitted jobs, and who may still be admitted.

admit: shorten every reservation to the latest part that still does the job's work;
       fill the new job into what is free up to its deadline;
       failing that, fill it and all jobs with later deadlines anew, by deadline;
       failing that, decline it and let the stored reservations stand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from clustersim.scheduler import Cluster, JobView, State

from .reservations import Demand, FreeGpus, Piece, fill, shorten, yield_of

__all__ = ["Agenda", "Promises", "urgency"]

_INSTANT_S = 1e-6  # boundaries of reservations this close are one: they differ by rounding
_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job


@dataclass(frozen=True)
class Agenda:
    """What reservations say about an instant.

    `due`: GPUs reserved for now, by job. `soon`: reservations that begin soon, as (start, order of
    submission, job, GPUs). `growing`: GPUs by which jobs on reserved GPUs grow soon. `wake_at`: when this
    changes, if nothing happens before.
    """

    due: dict[JobView, int]
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
        self._free = FreeGpus(now, cluster.gpus)

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

    def admit(self, job: JobView, now: float) -> bool:
        """Reserve for `job` if it can finish in time and nobody else is made late by that; say whether."""
        demand = Demand.of(job, self.guard_s, self.cluster.gpus_per_node)
        if demand.deadline_s == inf:
            self._keep(demand)
            return True
        if max(demand.rates.values()) * (demand.deadline_s - now) < demand.work:
            return False
        self._shorten_all(now)
        pieces = fill(self._free, demand, now)
        if pieces is None:
            return self._admit_jointly(demand, now)
        self._free.reserve(pieces, demand.blocks)
        self._pieces[job] = pieces
        self._keep(demand)
        return True

    def take_without_promise(self, job: JobView) -> None:
        """Let a job in that has no reservation and lives on spare GPUs."""
        self._keep(Demand.of(job, self.guard_s, self.cluster.gpus_per_node))

    def _keep(self, demand: Demand) -> None:
        self.demands[demand.job] = demand
        self._smallest[demand.sizes[0]] += 1

    def _admit_jointly(self, new: Demand, now: float) -> bool:
        """Fill `new`, all jobs with later deadlines and those that were widened anew, by deadline.

        The result is adopted only if every one of them still finishes in time.
        """
        again = [
            demand
            for job in self._pieces
            if (demand := self.demands[job]).deadline_s >= new.deadline_s or job in self._widened
        ]
        if not again or not self._may_fit(new, now):
            return False
        free = self._free.copy()
        for demand in again:
            free.give_back(self._pieces[demand.job], demand.blocks)
        free.advance(now)
        filled: dict[JobView, list[Piece]] = {}
        for demand in sorted((new, *again), key=lambda d: (d.deadline_s, d.job.order)):
            pieces = fill(free, demand, now)
            if pieces is None:
                return False
            free.reserve(pieces, demand.blocks)
            filled[demand.job] = pieces
        self._free = free
        self._pieces.update(filled)
        self._widened.clear()
        self._keep(new)
        return True

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
                self._free.give_back(pieces, demand.blocks)
                self._free.reserve(kept, demand.blocks)
                self._pieces[job] = kept
        self._free.advance(now)

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
                    self._free.give_back(self._pieces.pop(event.job, []), demand.blocks)
        self._free.advance(state.now)

    def agenda(self, now: float) -> Agenda:
        """What is reserved for now and for soon; reservations that are over are dropped."""
        due: dict[JobView, int] = {}
        soon: list[tuple[float, int, JobView, int]] = []
        growing, wake_at = 0, inf
        for job, pieces in self._pieces.items():
            while pieces and pieces[0][1] <= now + _INSTANT_S:
                del pieces[0]
            if not pieces:
                continue
            start, end, gpus = pieces[0]
            if start > now + _INSTANT_S:
                wake_at = min(wake_at, start)
                if start - now <= self._lead_s(job, gpus):
                    soon.append((start, job.order, job, gpus))
                continue
            due[job] = gpus
            wake_at = min(wake_at, end)
            if len(pieces) > 1 and pieces[1][0] - now <= self._lead_s(job, pieces[1][2]):
                growing += max(0, pieces[1][2] - max(gpus, job.gpus))
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
            size = self._widest(job, job.gpus + spare, state.now)
            if size:
                spare -= size - job.gpus
                agenda.due[job] = target[job] = size

    def _widest(self, job: JobView, limit: int, now: float) -> int:
        """Reserve the largest size up to `limit` that finishes the job earlier than now; 0 if none."""
        demand, own = self.demands[job], self._pieces[job]
        finish_s = now + demand.paying_s + demand.work / demand.rates[job.gpus]
        for size in reversed(demand.sizes):
            end = now + demand.restarts[size] + demand.work / demand.rates[size]
            if not job.gpus < size <= limit or end > min(demand.deadline_s, finish_s):
                continue
            self._free.give_back(own, demand.blocks)
            if self._free.least(now, end) >= demand.blocks[size]:
                self._pieces[job] = [(now, end, size)]
                self._free.reserve(self._pieces[job], demand.blocks)
                self._widened[job] = None
                return size
            self._free.reserve(own, demand.blocks)
        return 0


def urgency(job: JobView) -> float:
    """The deadline; jobs without one come last."""
    return inf if job.deadline_s is None else job.deadline_s
