"""Spare GPUs by marginal return.

ElasticFlow (ASPLOS 2023, section 4.2): one step at a time, to the job with the smallest growth of GPU time
per GPU added. A restart is part of the price of a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobView

from .filling import Demand
from .reservations import urgency
from .spare_gpus import SpareGpus

__all__ = ["by_marginal_return"]

_UNKNOWN = 0  # the size of a step that is not computed yet


def by_marginal_return(gpus: SpareGpus) -> None:
    """Share out spare GPUs step by step, by marginal return."""
    _Steps(gpus).share_out()


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


class _Steps:
    """The steps of one decision.

    `_prices`: by job, and for each of its options, the GPU time in which it finishes on each reservable size.
    They follow from the work left, so they are computed once a decision, when the job is first looked at.
    """

    def __init__(self, gpus: SpareGpus):
        self.gpus, self.state, self.reservations = gpus, gpus.state, gpus.reservations
        self._steps: list[_Step] = []
        self._prices: dict[JobView, list[list[float]]] = {}
        self._stuck: dict[JobView, None] = {}  # jobs without a step
        self._looked_at: dict[JobView, None] = {}  # jobs with a refreshed demand
        self._mixed = len(gpus.reservations.rooms) > 1

    def share_out(self) -> None:
        target, spare, steps = self.gpus.target, self.gpus.spare, self._steps
        if not any(spare.values()):
            return
        for job in self.state.running:
            self._push(job)
        self._waiting = iter(self.state.pending_by(urgency))
        self._push_next_waiting()
        while steps and any(spare.values()):
            *_, size, demand = heappop(steps)
            job, name = demand.job, demand.gpu_type
            if size == _UNKNOWN:
                self._push(job, at_once=True)
                continue
            held = target.get(job)
            more = size - (held.gpus if held and held.gpu_type == name else 0)
            if more <= self.gpus.limit(demand, size):
                self.gpus.give(demand, size)
                if held and held.gpu_type != name:
                    self._resume()
            self._push(job)
            if not held and not job.gpus:
                self._push_next_waiting()

    def _push(self, job: JobView, at_once: bool = False) -> None:
        """Add the next step of a job, if it has one. A step that may never be reached is only bounded, unless
        it is wanted `at_once`.
        """
        step = None
        if not self._is_full(job) and not self.gpus.is_tied(job):
            if not at_once and not self._mixed and job.gpus:
                step = self._quick_step(job)
            step = step or self._next_step(job)
        if step is None:
            self._stuck[job] = None
        else:
            heappush(self._steps, step)

    def _push_next_waiting(self) -> None:
        # The first step has the same price for all waiting jobs, so the heap needs only one of them.
        room = {name: self.gpus.spare[name] - self.gpus.held_back[name] for name in self.gpus.spare}
        if all(room[name] < self.reservations.least_size(name) for name in room):
            return
        for job in self._waiting:
            options = self.reservations.options[job]
            if job not in self.gpus.target and any(
                one.reservable[0] <= room[one.gpu_type] for one in options
            ):
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

    def _quick_step(self, job: JobView) -> _Step | None:
        """The step of a job to the GPUs that it holds now, if no other size can be its first one; if it is to
        keep those, a place in the order before its next step, which is computed when that is reached. None
        for all other jobs. Only on a cluster of one GPU type.

        There the growth of a step is the same throughout a decision, and spare GPUs only become fewer. The
        next step taken is thus the least of those with room, whenever they are computed.
        """
        option, held = self.reservations.options[job][0], self.gpus.target.get(job)
        if job not in self._looked_at:
            self._looked_at[job] = None
            option.refresh()
        size = option.gpus
        if size not in option.reservable:
            return None
        if held:
            if held.gpus != size:
                return None
            return _Step(option.least_growth(), False, -inf, job.order, _UNKNOWN, option)
        if size > self.gpus.spare[option.gpu_type] or option.counts_on_launch or not option.holds_its_first():
            return None
        least, least_rate, restart_s = option.table[0]
        work = option.work
        growth = (size * (work / option.rates[size]) - least * (work / least_rate + restart_s)) / size
        return _Step(growth, False, option.deadline_s, job.order, size, option)

    def _next_step(self, job: JobView) -> _Step | None:
        """The step to the size beyond the job's target with the smallest growth of GPU time per GPU added,
        of those that finish the job earlier; None if there is none.

        The GPU time of a size is that of finishing on it, with a restart unless the job runs on it already.
        Without GPUs it is that of finishing on the smallest size later on. GPUs and GPU time of a type count
        as much as the type is worth.
        """
        options, values, spare = self.reservations.options[job], self.reservations.values, self.gpus.spare
        prices = self._prices.get(job) or self._priced(job, options)
        held = self.gpus.target.get(job)
        base_s = inf  # to finish on the GPUs held
        if held:
            k = next(k for k, option in enumerate(options) if option.gpu_type == held.gpu_type)
            price, value = prices[k][options[k].reservable.index(held.gpus)], values[held.gpu_type]
            base_s = price / held.gpus
            gpus, cost = value * held.gpus, value * price
        else:
            gpus, cost = 0.0, self._least_cost(options)
        barred: list[tuple[Demand, int]] = []  # sizes that the job may not have
        while True:
            best, best_growth, best_size = None, inf, 0
            for option, price_of in zip(options, prices, strict=True):
                name, sizes = option.gpu_type, option.reservable
                value, here = values[name], held.gpus if held and held.gpu_type == name else 0
                kept, own = option.gpus, spare[name]
                room = own - self.gpus.held_back[name]
                for i in range(bisect_right(sizes, here), len(sizes)):
                    size = sizes[i]
                    if size - here > (room if size > kept else own):
                        break
                    if not here and value * size <= gpus:
                        continue  # of another type, and worth no more than the GPUs held
                    growth = (value * price_of[i] - cost) / (value * size - gpus)
                    if growth >= best_growth or price_of[i] / size >= base_s:
                        continue  # a restart that takes longer than the larger size saves is no gain
                    if not barred or (option, size) not in barred:
                        best, best_growth, best_size = option, growth, size
            if best is None:
                return None
            if self.gpus.may_have(best, best_size):
                changes = best_size != best.gpus
                return _Step(best_growth, changes, best.deadline_s, job.order, best_size, best)
            barred.append((best, best_size))

    def _is_full(self, job: JobView) -> bool:
        """Whether a job that is to keep its GPUs has no room for its next size."""
        options, held = self.reservations.options[job], self.gpus.target.get(job)
        if not held or job.gpus > held.gpus or len(options) > 1:
            return False
        name, sizes = held.gpu_type, options[0].reservable
        above = bisect_right(sizes, held.gpus)
        room = self.gpus.spare[name] - self.gpus.held_back[name]
        return above == len(sizes) or sizes[above] - held.gpus > room

    def _priced(self, job: JobView, options: Sequence[Demand]) -> list[list[float]]:
        """GPU-seconds in which a job finishes on each size, with a restart unless it runs on it already."""
        prices: list[list[float]] = []
        for option in options:
            option.refresh()
            work, kept = option.work, option.gpus
            prices.append(
                [size * (work / rate + (0.0 if size == kept else s)) for size, rate, s in option.table]
            )
        self._prices[job] = prices
        return prices

    def _least_cost(self, options: Sequence[Demand]) -> float:
        """The worth of the GPU time that a job takes on the smallest size of the type that suits it best, of
        those with room, with a restart.
        """
        costs = []
        for option in options:
            size, rate, restart_s = option.table[0]
            if size <= self.gpus.limit(option, size):
                value = self.reservations.values[option.gpu_type]
                costs.append(value * (size * (option.work / rate + restart_s)))
        return min(costs, default=0.0)
