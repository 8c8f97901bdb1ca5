"""Spare GPUs by marginal return: who grows, by how much, on GPUs that nobody has reserved.

ElasticFlow (ASPLOS 2023, section 4.2): one step at a time to the job whose GPU time grows least per GPU
added. Moving costs a restart, and spare GPUs may be gone at the next event; both enter the price of a step.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView, State

from .admission import Agenda, Promises, urgency
from .calendar import Piece
from .filling import Demand, yield_of

__all__ = ["may_stay", "share_out"]


def share_out(state: State, promises: Promises, agenda: Agenda) -> dict[JobView, int]:
    """GPUs by job: what is due, and the spare GPUs one step at a time to the best marginal return.

    Reservations that begin soon come first if the GPUs are free already, else GPUs are held back for them,
    as for jobs that are to grow soon: a job that starts on GPUs that are taken away before its restart has
    paid off only does harm.
    """
    target = {job: piece.gpus for job, piece in agenda.due.items()}
    held_back = _begin_early(state, promises, target, agenda) + agenda.growing
    spare = max(0, state.in_service - sum(target.values()))
    # (growth of GPU time per GPU, whether it is a change, deadline, order, size, job)
    steps: list[tuple[float, bool, float, int, int, Demand]] = []

    def push(demand: Demand, held: int) -> None:
        room = (spare, spare - held_back)
        pieces = promises.pieces(demand.job)
        reserved = pieces[0].gpus if demand.job in agenda.due else 0
        size, growth = _next_step(demand, held, room, reserved, pieces, state.now)
        if size:
            change = size != demand.gpus
            heappush(steps, (growth, change, demand.deadline_s, demand.job.order, size, demand))

    for job in state.running:
        promises.demands[job].refresh()
        push(promises.demands[job], target.get(job, 0))
    waiting = iter(state.pending_by(urgency))

    def push_next_waiting() -> None:
        # From nothing all jobs grow at the same price, so that one of them at a time is enough.
        if spare - held_back < promises.least_size():
            return
        for job in waiting:
            demand = promises.demands[job]
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


def _begin_early(state: State, promises: Promises, target: dict[JobView, int], agenda: Agenda) -> int:
    """Add to `target` the reservations that begin soon and for which GPUs are free.

    Returns the GPUs that the others of them still lack.
    """
    free = max(0, state.in_service - sum(target.values()))  # beyond what is due
    idle = free - sum(max(0, job.gpus - target.get(job, 0)) for job in state.running)
    lacking = 0
    for _, _, job, gpus in agenda.soon:
        extra = gpus - job.gpus
        if gpus > free or extra > idle or promises.demands[job].counts_on_launch:
            lacking += max(0, extra)
            continue
        target[job] = gpus
        free -= gpus
        idle -= max(0, extra)
    return lacking


def _next_step(
    demand: Demand, held: int, room: tuple[int, int], reserved: int, pieces: list[Piece], now: float
) -> tuple[int, float]:
    """The size above `held` whose GPU time grows least per GPU added, and that growth in seconds; (0, 0.0)
    if no step finishes it earlier.

    `room`: spare GPUs up to what the job holds already, and beyond that. The GPU time of a size is what
    finishing there takes, restart included unless the job already has it; of no GPUs, what its smallest
    size takes later on.
    """
    work, rates, restarts, mine = demand.work, demand.rates, demand.restarts, demand.gpus
    first = held or demand.sizes[0]
    cost = first * (work / rates[first] + (0.0 if first == mine and held else restarts[first]))
    best_size, best_growth = 0, inf
    for size in demand.sizes[bisect_right(demand.sizes, held) :]:
        if size - held > (room[0] if size <= mine else room[1]):
            break
        price = size * (work / rates[size] + (0.0 if size == mine else restarts[size]))
        growth = (price - cost) / (size - held)
        if growth >= best_growth or (held and price / size >= cost / held):
            continue  # GPUs that take longer to start on than they save are no gain
        if size == reserved or _may_have(demand, size, reserved, pieces, now):
            best_size, best_growth = size, growth
    return (best_size, best_growth) if best_size else (0, 0.0)


def _may_have(demand: Demand, size: int, reserved: int, pieces: list[Piece], now: float) -> bool:
    """Whether a job may stay on, or go to, a `size` that it has not reserved for now."""
    if demand.counts_on_launch:
        return False  # it would come from there to its reservation with a restart
    if size == demand.gpus:
        return may_stay(demand, reserved, pieces, now)
    return _may_move(demand, size, reserved, pieces, now)


def may_stay(demand: Demand, reserved: int, pieces: list[Piece], now: float) -> bool:
    """Whether a job may stay on more GPUs than it has reserved for now, or on as many elsewhere.

    While it works there it gains on its reservation; while it still pays for them it falls behind, and must
    be able to afford what the reservation would do meanwhile, should they be gone at the next event.
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
    if not pieces or (not reserved and size <= pieces[0].gpus):
        return True
    ready = now + restarts[size]
    if ready <= now or pieces[0].start >= ready:
        return True  # nothing is missed meanwhile
    missed = sum(
        rates[gpus] * (min(end, ready) - max(start, now)) for start, end, gpus, _ in pieces if start < ready
    )
    if demand.in_place:
        missed += rates[reserved] * restarts[reserved]
    return yield_of(pieces, demand, now) - work >= missed
