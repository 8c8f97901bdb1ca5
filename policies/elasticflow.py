"""ElasticFlow: deadlines instead of GPU counts, elastic allocation, admission control.

Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
2023.

    admit     shorten every reservation to what its job still needs; fill the new job into what is free up
    to its deadline; failing that, fill
              it ahead of all jobs with later deadlines and fill those anew; failing that, decline it and
              let the stored reservations stand
    schedule  every admitted job gets what it has reserved for now; what is left goes, one step at a time,
    to the job whose GPU time grows least per
              GPU added (the best marginal return; section 4.2)

Differences to the published artifact: arrivals of one instant are judged one by one, not declined together;
the marginal return is the smallest increase of GPU time, not the largest; a restart is charged in every
reservation, so that a promise holds under overheads; a job on spare GPUs is moved only where that finishes
it earlier.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .reservations import Demand, FreeGpus, Piece, fill, shorten, yield_of

__all__ = ["ElasticFlow"]

_LEAD_RESTARTS = 3  # a reservation begins soon when it does so within this many restarts of its job


class ElasticFlow(Scheduler):
    """Admission by minimum satisfactory share, spare GPUs by marginal return; jobs scale by data
    parallelism only.

    Jobs without a deadline are always admitted and live on spare GPUs. Each reservation holds `guard_s`
    seconds more work than the job needs. Work is the stated iterations; for jobs that state none it comes
    from the oracle.
    """

    planner = "data-parallel"

    def __init__(self, guard_s: float = 1.0):
        if not 0 <= guard_s < inf:
            raise ValueError(f"guard_s={guard_s!r}: must be a finite number of seconds, at least 0")
        self.guard_s = guard_s
        self._free: FreeGpus | None = None
        self._demands: dict[JobView, Demand] = {}  # of every admitted job
        self._promised: dict[JobView, list[Piece]] = {}  # reservations of those with a deadline
        self._widened: dict[JobView, None] = {}  # whose reservation has taken in spare GPUs

    # Admission

    def admit(self, job: JobView, state: State) -> bool:
        demand = Demand.of(job, self.guard_s, state.cluster.gpus_per_node)
        if demand.deadline_s == inf:
            self._demands[job] = demand
            return True
        self._forget_finished(state)  # what ends at this instant is free for what arrives at it
        free = self._calendar(state)
        if max(demand.rates.values()) * (demand.deadline_s - state.now) < demand.work:
            return False
        self._shorten_all(state.now)
        pieces = fill(free, demand, state.now)
        if pieces is None:
            return self._admit_jointly(demand, state)
        free.reserve(pieces)
        self._promised[job], self._demands[job] = pieces, demand
        return True

    def _admit_jointly(self, new: Demand, state: State) -> bool:
        """Fill `new`, all jobs with later deadlines and those that were widened anew, by deadline.

        The result is adopted only if every one of them still finishes in time.
        """
        again = [
            demand
            for job in self._promised
            if (demand := self._demands[job]).deadline_s >= new.deadline_s or job in self._widened
        ]
        if not again or not self._may_fit(new, state):
            return False
        free = self._calendar(state).copy()
        for demand in again:
            free.give_back(self._promised[demand.job])
        free.advance(state.now)
        filled: dict[JobView, list[Piece]] = {}
        for demand in sorted((new, *again), key=lambda d: (d.deadline_s, d.job.order)):
            pieces = fill(free, demand, state.now)
            if pieces is None:
                return False
            free.reserve(pieces)
            filled[demand.job] = pieces
        self._free = free
        self._promised.update(filled)
        self._widened.clear()
        self._demands[new.job] = new
        return True

    def _may_fit(self, new: Demand, state: State) -> bool:
        """A quick necessary condition: up to every deadline, the least GPU time of the jobs due by then is
        there at all.
        """
        due = sorted([self._demands[job] for job in self._promised] + [new], key=lambda d: d.deadline_s)
        needed = 0.0
        for demand in due:
            needed += demand.least_gpu_seconds()
            there = state.cluster.gpus * (demand.deadline_s - state.now)
            if demand.deadline_s >= new.deadline_s and needed > there:
                return False
        return True

    def _calendar(self, state: State) -> FreeGpus:
        if self._free is None:
            self._free = FreeGpus(state.now, state.cluster.gpus)
        return self._free

    def _shorten_all(self, now: float) -> None:
        assert self._free is not None
        for job, pieces in self._promised.items():
            demand = self._demands[job]
            demand.refresh()
            kept = shorten(pieces, demand, now)
            if kept != pieces:
                self._free.give_back(pieces)
                self._free.reserve(kept)
                self._promised[job] = kept
        self._free.advance(now)

    # Allocation

    def schedule(self, state: State) -> Proposal:
        self._forget_finished(state)
        now = state.now
        due: dict[JobView, int] = {}
        soon: list[tuple[float, int, JobView, int]] = []
        wake_at = inf
        for job, pieces in self._promised.items():
            while pieces and pieces[0][1] <= now:
                del pieces[0]
            if not pieces:
                continue
            start, end, gpus = pieces[0]
            if start <= now:
                due[job] = gpus
                wake_at = min(wake_at, end)
                continue
            wake_at = min(wake_at, start)
            if start - now <= _LEAD_RESTARTS * self._demands[job].restarts[gpus]:
                soon.append((start, job.order, job, gpus))
        target = self._share_out(state, due, soon)
        self._widen(state, due, target)
        proposal = self._propose(state, due, target)
        if wake_at < inf:
            proposal.wake_at = wake_at
        return proposal

    def _forget_finished(self, state: State) -> None:
        for event in state.events:
            if event.kind == "submitted":
                break  # those that finished come first
            if event.kind == "finished" and event.job is not None:
                self._demands.pop(event.job, None)
                self._widened.pop(event.job, None)
                pieces = self._promised.pop(event.job, None)
                if pieces and self._free is not None:
                    self._free.give_back(pieces)
        if self._free is not None:
            self._free.advance(state.now)

    def _share_out(
        self, state: State, due: dict[JobView, int], soon: list[tuple[float, int, JobView, int]]
    ) -> dict[JobView, int]:
        """GPUs by job: what is due, and the spare GPUs one step at a time to the best marginal return.

        Reservations that begin soon come first if the GPUs are free already, else GPUs are held back for
        them: a job that starts on GPUs that are taken away before its restart has paid off only does harm.
        """
        target = dict(due)
        held_back = self._begin_early(state, target, soon)
        spare = state.cluster.gpus - sum(target.values())
        # (growth of GPU time per GPU, whether it is a change, deadline, order, size, job)
        steps: list[tuple[float, bool, float, int, int, Demand]] = []

        def push(demand: Demand, held: int) -> None:
            room = (spare, spare - held_back)
            pieces = self._promised.get(demand.job, [])
            size, growth = _next_step(demand, held, room, due.get(demand.job, 0), pieces, state.now)
            if size:
                change = size != demand.gpus
                heappush(steps, (growth, change, demand.deadline_s, demand.job.order, size, demand))

        for job in state.running:
            self._demands[job].refresh()
            push(self._demands[job], target.get(job, 0))
        waiting = iter(state.pending_by(_urgency))

        def push_next_waiting() -> None:
            # From nothing all jobs grow at the same price, so that one of them at a time is enough.
            for job in waiting:
                demand = self._demands[job]
                if job not in target and demand.sizes[0] <= spare - held_back:
                    demand.refresh()
                    push(demand, 0)
                    return

        push_next_waiting()
        while steps and spare:
            *_, size, demand = heappop(steps)
            held = target.get(demand.job, 0)
            if size - held <= (spare if size <= demand.gpus else spare - held_back):
                target[demand.job] = size
                spare -= size - held
                push(demand, size)
            else:
                push(demand, held)
            if not held and not demand.gpus:
                push_next_waiting()
        return target

    def _begin_early(
        self, state: State, target: dict[JobView, int], soon: list[tuple[float, int, JobView, int]]
    ) -> int:
        """Add to `target` the reservations of `soon` for which GPUs are free; returns the GPUs that the
        others still lack.
        """
        free = state.cluster.gpus - sum(target.values())  # beyond what is due
        others = sum(max(0, job.gpus - target.get(job, 0)) for job in state.running)
        idle = free - others
        lacking = 0
        for _, _, job, gpus in sorted(soon):
            extra = gpus - job.gpus
            if gpus > free or extra > idle:
                lacking += max(0, extra)
                continue
            target[job] = gpus
            free -= gpus
            idle -= max(0, extra)
        return lacking

    def _widen(self, state: State, due: dict[JobView, int], target: dict[JobView, int]) -> None:
        """Let jobs that are tied to their reservation reserve the GPUs that are left over until they finish.

        Such a job cannot afford to grow on spare GPUs that may be gone at the next event; reserved they stay.
        """
        assert self._free is not None or not due
        spare = state.cluster.gpus - sum(target.values())
        for job in sorted(due, key=_urgency):
            demand, own = self._demands[job], self._promised[job]
            if target[job] != job.gpus or spare <= 0 or self._free is None:
                continue
            finish_s = state.now + demand.paying_s + demand.work / demand.rates[job.gpus]
            for size in reversed(demand.sizes):
                end = state.now + demand.restarts[size] + demand.work / demand.rates[size]
                if size <= job.gpus or size - job.gpus > spare or end > min(demand.deadline_s, finish_s):
                    continue
                self._free.give_back(own)
                if self._free.least(state.now, end) >= size:
                    self._promised[job] = [(state.now, end, size)]
                    self._free.reserve(self._promised[job])
                    self._widened[job] = None
                    spare -= size - job.gpus
                    due[job] = target[job] = size
                    break
                self._free.reserve(own)

    def _propose(self, state: State, due: dict[JobView, int], target: dict[JobView, int]) -> Proposal:
        """Shrink first, then place what grows, largest first.

        For what is reserved, small jobs move together if that is what it takes.
        """
        proposal = state.proposal()
        for job in state.running:
            gpus = target.get(job, 0)
            if not gpus:
                proposal.stop(job)
            elif gpus < job.gpus:
                proposal.resize(job, gpus)
        growing = sorted(
            (job for job in target if target[job] > proposal.gpus(job)),
            key=lambda job: (-target[job], job.order),
        )
        unplaced = [job for job in growing if not _put(proposal, job, target[job])]
        if any(due.get(job, 0) > proposal.gpus(job) for job in unplaced):
            wanted = sorted(due, key=lambda job: (self._slack_s(job, state.now), job.order))
            proposal.compact({job: max(due[job], proposal.gpus(job)) for job in wanted})
        return proposal

    def _slack_s(self, job: JobView, now: float) -> float:
        """Seconds that a job's reservation has to spare."""
        demand = self._demands[job]
        slack = yield_of(self._promised[job], demand, now) - demand.work
        return slack / demand.rates[demand.sizes[0]]


def _urgency(job: JobView) -> float:
    return inf if job.deadline_s is None else job.deadline_s


def _put(proposal: Proposal, job: JobView, gpus: int) -> bool:
    grow = proposal.resize if proposal.gpus(job) else proposal.start
    return grow(job, gpus) is not None


def _next_step(
    demand: Demand, held: int, room: tuple[int, int], reserved: int, pieces: list[Piece], now: float
) -> tuple[int, float]:
    """The size above `held` whose GPU time grows least per GPU added, and that growth in seconds; (0, 0.0)
    if no step is worth while.

    `room`: spare GPUs up to what the job holds already, and beyond that. The GPU time of a size is what
    finishing there takes, restart included unless the job already has it; of no GPUs, what its smallest
    size takes later on.
    """
    work, rates, restarts, mine = demand.work, demand.rates, demand.restarts, demand.gpus
    first = held or demand.sizes[0]
    cost = first * (work / rates[first] + (0.0 if first == mine and held else restarts[first]))
    best_size, best_growth = 0, inf
    for size in demand.sizes:
        if size <= held:
            continue
        if size - held > (room[0] if size <= mine else room[1]):
            break
        if size == mine != reserved and not _may_stay(demand, reserved, pieces, now):
            continue
        if size not in (mine, reserved) and not _may_move(demand, size, reserved, pieces, now):
            continue
        price = size * (work / rates[size] + (0.0 if size == mine else restarts[size]))
        growth = (price - cost) / (size - held)
        if growth < best_growth:
            best_size, best_growth = size, growth
    return (best_size, best_growth) if best_size else (0, 0.0)


def _may_stay(demand: Demand, reserved: int, pieces: list[Piece], now: float) -> bool:
    """Whether a job may stay on more GPUs than it has reserved for now.

    While it works there it gains on its reservation. While it still pays for them it falls behind and must be
    able to afford what the reservation would do meanwhile, should they be gone at the next event.
    """
    if not reserved or not demand.paying_s:
        return True
    return yield_of(pieces, demand, now) - demand.work >= demand.paying_s * demand.rates[reserved]


def _may_move(demand: Demand, size: int, reserved: int, pieces: list[Piece], now: float) -> bool:
    """Whether a job may go to a `size` that it neither has nor has reserved for now.

    A running job grows only if that finishes it earlier. While it pays for the move it does no work, and
    since the spare GPUs may be gone at any event it must be able to afford the way back too: what its
    reservation would do meanwhile, and the restart back unless the reservation has charged that already.
    """
    work, rates, restarts, mine = demand.work, demand.rates, demand.restarts, demand.gpus
    if size > mine > 0 and restarts[size] + work / rates[size] >= demand.paying_s + work / rates[mine]:
        return False
    if not pieces or (not reserved and size <= pieces[0][2]):
        return True
    ready = now + restarts[size]
    missed = sum(
        rates[gpus] * (min(end, ready) - max(start, now)) for start, end, gpus in pieces if start < ready
    )
    if not missed:
        return True
    if reserved and reserved == mine:
        missed += rates[reserved] * restarts[reserved]
    return yield_of(pieces, demand, now) - work >= missed
