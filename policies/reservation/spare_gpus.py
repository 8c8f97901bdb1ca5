"""Spare GPUs, those that no job has reserved for now, by marginal return.

ElasticFlow (ASPLOS 2023, section 4.2): one step at a time, to the job with the smallest growth of GPU time
per GPU added. A move costs a restart, and spare GPUs may be gone at the next event; both enter the price of a
step.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView, State

from .admission import Admission, Agenda, urgency
from .calendar import Slot
from .filling import Demand, yield_of

__all__ = ["may_stay", "share_out"]


def share_out(state: State, admission: Admission, agenda: Agenda) -> dict[JobView, int]:
    """GPUs by job: the reserved ones that are due, and the spare ones, step by step, by marginal return.

    Reservations that begin soon come first: they begin early if enough GPUs are free, else GPUs are held back
    for them. GPUs are also held back for jobs that grow soon. To start another job on them would only do
    harm: they would be taken away before its restart has paid off.
    """
    target = {job: slot.gpus for job, slot in agenda.due.items()}
    held_back = _begin_early(state, admission, target, agenda) + agenda.growing
    spare = max(0, state.in_service - sum(target.values()))
    # (growth of GPU time per GPU, whether the size changes, deadline, order of submission, size, demand)
    steps: list[tuple[float, bool, float, int, int, Demand]] = []

    def push(demand: Demand, held: int) -> None:
        limits = (spare, spare - held_back)
        slots = admission.slots(demand.job)
        reserved = slots[0].gpus if demand.job in agenda.due else 0
        size, growth = _next_step(demand, held, limits, reserved, slots, state.now)
        if size:
            change = size != demand.gpus
            heappush(steps, (growth, change, demand.deadline_s, demand.job.order, size, demand))

    for job in state.running:
        admission.demands[job].refresh()
        push(admission.demands[job], target.get(job, 0))
    waiting = iter(state.pending_by(urgency))

    def push_next_waiting() -> None:
        # The first step has the same price for all waiting jobs, so the heap needs only one of them.
        if spare - held_back < admission.least_size():
            return
        for job in waiting:
            demand = admission.demands[job]
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


def _begin_early(state: State, admission: Admission, target: dict[JobView, int], agenda: Agenda) -> int:
    """Add to `target` the reservations that begin soon and for which GPUs are free. Returns the GPUs that the
    other ones lack.
    """
    free = max(0, state.in_service - sum(target.values()))  # beyond those that are due
    idle = free - sum(max(0, job.gpus - target.get(job, 0)) for job in state.running)
    lacking = 0
    for _, _, job, gpus in agenda.soon:
        extra = gpus - job.gpus
        if gpus > free or extra > idle or admission.demands[job].counts_on_launch:
            lacking += max(0, extra)
            continue
        target[job] = gpus
        free -= gpus
        idle -= max(0, extra)
    return lacking


def _next_step(
    demand: Demand, held: int, limits: tuple[int, int], reserved: int, slots: list[Slot], now: float
) -> tuple[int, float]:
    """The size above `held` with the smallest growth of GPU time per GPU added, and that growth in seconds;
    (0, 0.0) if no step finishes the job earlier.

    `limits`: spare GPUs for a size up to the one the job runs on, and for a larger size. The GPU time of a
    size is that of finishing on it, with a restart unless the job runs on it already. Without GPUs it is that
    of finishing on the smallest size later on.
    """
    work, rates, restarts, mine = demand.work, demand.rates, demand.restarts, demand.gpus
    first = held or demand.sizes[0]
    cost = first * (work / rates[first] + (0.0 if first == mine and held else restarts[first]))
    best_size, best_growth = 0, inf
    for size in demand.sizes[bisect_right(demand.sizes, held) :]:
        if size - held > (limits[0] if size <= mine else limits[1]):
            break
        price = size * (work / rates[size] + (0.0 if size == mine else restarts[size]))
        growth = (price - cost) / (size - held)
        if growth >= best_growth or (held and price / size >= cost / held):
            continue  # a restart that takes longer than the larger size saves is no gain
        if size == reserved or _may_have(demand, size, reserved, slots, now):
            best_size, best_growth = size, growth
    return (best_size, best_growth) if best_size else (0, 0.0)


def _may_have(demand: Demand, size: int, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job may stay on, or move to, a `size` that it has not reserved for now."""
    if demand.counts_on_launch:
        return False  # its reservation would then begin with a restart
    if size == demand.gpus:
        return may_stay(demand, reserved, slots, now)
    return _may_move(demand, size, reserved, slots, now)


def may_stay(demand: Demand, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job may stay on more GPUs than it has reserved for now, or on as many elsewhere.

    While it works there, it gains on its reservation. While it still pays for its restart there, it falls
    behind, and the GPUs may be gone at the next event. So it needs slack for the work that the reservation
    would do meanwhile.
    """
    if not reserved or not demand.paying_s:
        return True
    return yield_of(slots, demand, now) - demand.work >= demand.paying_s * demand.rates[reserved]


def _may_move(demand: Demand, size: int, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job may move to a `size` that it neither holds nor has reserved for now.

    A running job grows only if it then finishes earlier. It does no work while it pays for the move, and the
    spare GPUs may be gone at any event. So it needs slack for the work that its reservation would do
    meanwhile, and for the restart back unless the reservation is charged for that already.
    """
    work, rates, restarts, mine = demand.work, demand.rates, demand.restarts, demand.gpus
    if size > mine > 0 and restarts[size] + work / rates[size] >= demand.paying_s + work / rates[mine]:
        return False
    if not slots or (not reserved and size <= slots[0].gpus):
        return True
    ready = now + restarts[size]
    if ready <= now or slots[0].start >= ready:
        return True  # no reserved work is missed meanwhile
    missed = sum(
        rates[gpus] * (min(end, ready) - max(start, now)) for start, end, gpus, _ in slots if start < ready
    )
    if demand.in_place:
        missed += rates[reserved] * restarts[reserved]
    return yield_of(slots, demand, now) - work >= missed
