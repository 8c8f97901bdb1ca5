"""Spare GPUs, those that no job has reserved for now, by marginal return.

ElasticFlow (ASPLOS 2023, section 4.2): one step at a time, to the job with the smallest growth of GPU time
per GPU added. A move costs a restart, and spare GPUs may be gone at the next event; both enter the price of a
step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobView, State

from .admission import Admission, Agenda, urgency
from .calendar import Slot
from .filling import Demand, yield_of
from .gpu_types import Share, held_on

__all__ = ["may_stay", "share_out"]


def share_out(
    state: State, admission: Admission, agenda: Agenda, in_service: Mapping[str, int]
) -> dict[JobView, Share]:
    """GPUs by job: the reserved ones that are due, and the spare ones, step by step, by marginal return.
    `in_service`: free and held GPUs by type.

    Reservations that begin soon come first: they begin early if enough GPUs are free, else GPUs are held back
    for them. GPUs are also held back for jobs that grow soon. To start another job on them would only do
    harm: they would be taken away before its restart has paid off.
    """
    return _Sharing(state, admission, agenda, in_service).share_out()


class _Step(NamedTuple):
    """A job's next step. Steps are taken in ascending order: the least `growth` of GPU time per GPU added
    (seconds, on the most valuable type) first, then steps that change nothing, then the earliest deadline.
    """

    growth: float
    changes: bool
    deadline_s: float
    order: int
    size: int
    demand: Demand


class _Sharing:
    """The shares of one decision. `target` grows from the reserved GPUs that are due, `spare` shrinks."""

    def __init__(self, state: State, admission: Admission, agenda: Agenda, in_service: Mapping[str, int]):
        self.state, self.admission, self.agenda = state, admission, agenda
        self.target = {
            job: Share(slot.gpus, admission.demands[job].gpu_type) for job, slot in agenda.due.items()
        }
        lacking = self._begin_early(in_service)
        self.held_back = {name: lacking[name] + agenda.growing[name] for name in in_service}
        self.spare = self._unshared(in_service)
        self._steps: list[_Step] = []
        self._stuck: dict[JobView, None] = {}  # jobs without a step

    def share_out(self) -> dict[JobView, Share]:
        admission, target, spare, steps = self.admission, self.target, self.spare, self._steps
        for job in self.state.running:
            for option in admission.options[job]:
                option.refresh()
            self._push(job)
        self._waiting = iter(self.state.pending_by(urgency))
        self._push_next_waiting()
        while steps and any(spare.values()):
            *_, size, demand = heappop(steps)
            job, name = demand.job, demand.gpu_type
            held = target.get(job)
            more = size - (held.gpus if held and held.gpu_type == name else 0)
            if more <= (spare[name] if size <= demand.gpus else spare[name] - self.held_back[name]):
                target[job] = Share(size, name)
                spare[name] -= more
                if held and held.gpu_type != name:
                    spare[held.gpu_type] += held.gpus
                    self._resume()
            self._push(job)
            if not held and not job.gpus:
                self._push_next_waiting()
        return target

    def _push(self, job: JobView) -> None:
        """Add the next step of a job, if it has one."""
        step = self._next_step(job)
        if step is None:
            self._stuck[job] = None
            return
        size, growth, demand = step
        heappush(self._steps, _Step(growth, size != demand.gpus, demand.deadline_s, job.order, size, demand))

    def _push_next_waiting(self) -> None:
        # The first step has the same price for all waiting jobs, so the heap needs only one of them.
        room = {name: self.spare[name] - self.held_back[name] for name in self.spare}
        if all(room[name] < self.admission.least_size(name) for name in room):
            return
        for job in self._waiting:
            options = self.admission.options[job]
            if job not in self.target and any(one.sizes[0] <= room[one.gpu_type] for one in options):
                for option in options:
                    option.refresh()
                self._push(job)
                return

    def _resume(self) -> None:
        """Go on with the jobs that had no step: a job has left its GPUs for others of another type."""
        stuck, self._stuck = self._stuck, {}
        for job in stuck:
            self._push(job)
        queued = {step.demand.job for step in self._steps}
        self._waiting = iter([job for job in self.state.pending_by(urgency) if job not in queued])
        self._push_next_waiting()

    def _unshared(self, in_service: Mapping[str, int]) -> dict[str, int]:
        """GPUs by type that no job has in `target`."""
        left = dict(in_service)
        for share in self.target.values():
            left[share.gpu_type] -= share.gpus
        return {name: max(0, gpus) for name, gpus in left.items()}

    def _begin_early(self, in_service: Mapping[str, int]) -> Counter[str]:
        """Add to `target` the reservations that begin soon and for which GPUs are free. Returns the GPUs by
        type that the other ones lack.
        """
        target, lacking = self.target, Counter[str]()
        free = self._unshared(in_service)  # beyond those that are due
        idle = dict(free)
        for job in self.state.running:
            for option in self.admission.options[job]:
                name = option.gpu_type
                if held := held_on(job, name):
                    due = target.get(job)
                    idle[name] -= max(0, held - (due.gpus if due and due.gpu_type == name else 0))
        for _, _, job, gpus in self.agenda.soon:
            demand = self.admission.demands[job]
            name = demand.gpu_type
            extra = gpus - held_on(job, name)
            if gpus > free[name] or extra > idle[name] or demand.counts_on_launch:
                lacking[name] += max(0, extra)
                continue
            target[job] = Share(gpus, name)
            free[name] -= gpus
            idle[name] -= max(0, extra)
        return lacking

    def _next_step(self, job: JobView) -> tuple[int, float, Demand] | None:
        """The size beyond the job's target with the smallest growth of GPU time per GPU added, that growth in
        seconds, and the demand on the type of that size; None if no step finishes the job earlier.

        The GPU time of a size is that of finishing on it, with a restart unless the job runs on it already.
        Without GPUs it is that of finishing on the smallest size later on. GPUs and GPU time of a type count
        as much as the type is worth.
        """
        options, values = self.admission.options[job], self.admission.values
        held = self.target.get(job)
        base_s = inf  # to finish on the GPUs held
        if held:
            at = next(option for option in options if option.gpu_type == held.gpu_type)
            base_s = _gpu_time(at, held.gpus) / held.gpus
            gpus = values[at.gpu_type] * held.gpus
            cost = values[at.gpu_type] * _gpu_time(at, held.gpus)
        else:
            gpus, cost = 0.0, self._least_cost(options)
        best, best_growth = None, inf
        for option in options:
            value = values[option.gpu_type]
            here = held.gpus if held and held.gpu_type == option.gpu_type else 0
            for size in option.sizes[bisect_right(option.sizes, here) :]:
                if size - here > self._limit(option, size):
                    break
                if value * size <= gpus:
                    continue
                price = _gpu_time(option, size)
                growth = (value * price - cost) / (value * size - gpus)
                if growth >= best_growth or price / size >= base_s:
                    continue  # a restart that takes longer than the larger size saves is no gain
                if self._may_have(option, size):
                    best, best_growth = (size, growth, option), growth
        return best

    def _least_cost(self, options: Sequence[Demand]) -> float:
        """The worth of the GPU time that a job takes on the smallest size of the type that suits it best, of
        those with room.
        """
        values = self.admission.values
        costs = [
            values[one.gpu_type]
            * (one.sizes[0] * (one.work / one.rates[one.sizes[0]] + one.restarts[one.sizes[0]]))
            for one in options
            if one.sizes[0] <= self._limit(one, one.sizes[0])
        ]
        return min(costs, default=0.0)

    def _limit(self, demand: Demand, size: int) -> int:
        """The spare GPUs for a size: those held back are for sizes up to the one that the job runs on."""
        name = demand.gpu_type
        return self.spare[name] if size <= demand.gpus else self.spare[name] - self.held_back[name]

    def _may_have(self, option: Demand, size: int) -> bool:
        """Whether a job may stay on, or move to, a `size` that it need not have reserved for now."""
        job, admission, now = option.job, self.admission, self.state.now
        home, slots = admission.demands[job], admission.slots(job)
        reserved = self.agenda.due[job].gpus if job in self.agenda.due else 0
        if option is home and size == reserved:
            return True
        if home.counts_on_launch:
            return False  # its reservation would then begin with a restart
        if reserved and option is not home and option.rates[size] < home.rates[reserved]:
            return False  # it would fall behind its reservation
        if size == option.gpus:
            return may_stay(home, reserved, slots, now)
        return self._gains(option, size) and _may_move(option, size, home, reserved, slots, now)

    def _gains(self, option: Demand, size: int) -> bool:
        """Whether a running job finishes earlier on a larger size, or on another type than the one it could
        stay on.
        """
        at = next((one for one in self.admission.options[option.job] if one.gpus), None)
        if at is None or (at is option and size < at.gpus):
            return True
        if at is not option:
            held = self.target.get(option.job)
            kept = held.gpus if held and held.gpu_type == at.gpu_type else 0
            if at.gpus - kept > self.spare[at.gpu_type]:
                return True
        return (
            option.restarts[size] + option.work / option.rates[size]
            < at.paying_s + at.work / at.rates[at.gpus]
        )


def _gpu_time(demand: Demand, size: int) -> float:
    """GPU-seconds in which a job finishes on a size, with a restart unless it runs on it already."""
    return size * (demand.work / demand.rates[size] + (0.0 if size == demand.gpus else demand.restarts[size]))


def may_stay(demand: Demand, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job may stay on more GPUs than it has reserved for now, or on as many elsewhere.

    While it works there, it gains on its reservation. While it still pays for its restart there, it falls
    behind, and the GPUs may be gone at the next event. So it needs slack for the work that the reservation
    would do meanwhile.
    """
    if not reserved or not demand.paying_s:
        return True
    return yield_of(slots, demand, now) - demand.work >= demand.paying_s * demand.rates[reserved]


def _may_move(option: Demand, size: int, home: Demand, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job with `slots` on the type of `home` may move to a `size` that it neither holds nor has
    reserved for now.

    It does no work while it pays for the move, and the spare GPUs may be gone at any event. So it needs slack
    for the work that its reservation would do meanwhile, and for the restart back unless the reservation is
    charged for that already.
    """
    if not slots or (option is home and not reserved and size <= slots[0].gpus):
        return True
    ready = now + option.restarts[size]
    if ready <= now or slots[0].start >= ready:
        return True  # no reserved work is missed meanwhile
    rates, restarts = home.rates, home.restarts
    missed = sum(
        rates[gpus] * (min(end, ready) - max(start, now)) for start, end, gpus, _ in slots if start < ready
    )
    if home.in_place:
        missed += rates[reserved] * restarts[reserved]
    return yield_of(slots, home, now) - home.work >= missed
