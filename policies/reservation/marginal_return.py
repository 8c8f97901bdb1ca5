"""Spare GPUs by marginal return.

ElasticFlow (ASPLOS 2023, section 4.2): one step at a time, to the job with the smallest growth of GPU time
per GPU added. A restart is part of the price of a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView

from .demand import Demand
from .reservations import urgency
from .spare_gpus import SpareGpus

__all__ = ["by_marginal_return"]

_UNKNOWN = 0  # the size of a step that is not computed yet


def by_marginal_return(gpus: SpareGpus) -> None:
    """Share out spare GPUs step by step, by marginal return."""
    steps = _Steps if len(gpus.reservations.rooms) > 1 else _StepsOnOneType
    steps(gpus).share_out()


_Step = tuple[float, bool, float, int, int, Demand]
"""A job's next step: growth, changes, deadline, order of submission, size, demand.

Steps are taken in ascending order: the least growth of GPU time per GPU added (seconds, on the most valuable
type) first, then steps that change nothing, then the earliest deadline. Each decision makes many of them, so
they are plain tuples.
"""


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

    def share_out(self) -> None:
        target, spare, steps = self.gpus.target, self.gpus.spare, self._steps
        if not any(spare.values()):
            return
        self._waiting = iter(self.state.pending_by(urgency))
        self._push_next_waiting()
        self._push_running()
        while steps and any(spare.values()):
            _, _, _, _, size, demand = heappop(steps)
            job, name = demand.job, demand.gpu_type
            if size == _UNKNOWN:
                self._push(job)
                continue
            held = target.get(job)
            more = size - (held.gpus if held and held.gpu_type == name else 0)
            if more <= self.gpus.limit(demand, size):
                self.gpus.give(demand, size)
                if held and held.gpu_type != name:
                    self._resume()
            self._go_on(job)
            if not held and not job.gpus:
                self._push_next_waiting()

    def _push_running(self) -> None:
        """Add the next steps of the running jobs."""
        for job in self.state.running:
            self._push(job)

    def _go_on(self, job: JobView) -> None:
        """Add the next step of a job that has taken one, or had no room for it."""
        self._push(job)

    def _push(self, job: JobView) -> None:
        """Add the next step of a job, if it has one."""
        step = None
        if not self._is_full(job) and not self.gpus.is_tied(job):
            step = self._next_step(job)
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
        queued = {demand.job for *_, demand in self._steps}
        self._waiting = iter([job for job in self.state.pending_by(urgency) if job not in queued])
        self._push_next_waiting()

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
                return best_growth, changes, best.deadline_s, best.order, best_size, best
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


class _StepsOnOneType(_Steps):
    """The same on a cluster of one GPU type, without looking at every step.

    There the growth of a step is the same throughout a decision, and spare GPUs only become fewer. So the
    next step taken is the least of those with room, whenever they are computed:

    - Jobs stay on the GPUs that they hold before any other step is looked at, if the growth of none is as
      small.
    - The step of a job beyond the GPUs that it keeps is only bounded from below, and computed when that
      bound is reached.

    Both follow from bounds that hold for a while (`Demand.outlook`), so most jobs are not asked for their
    work.
    """

    def __init__(self, gpus: SpareGpus):
        super().__init__(gpus)
        self._asked: dict[JobView, None] = {}  # jobs that were asked for their work in this decision

    def _push_running(self) -> None:
        gpus, target, demands, now = self.gpus, self.gpus.target, self.reservations.demands, self.gpus.now
        due, tied, room = gpus.agenda.due, self.reservations.tied, self._room()
        staying: list[Demand] = []  # jobs for which to stay is a step, and the first one
        kept: list[Demand] = []  # jobs that have in `target` what they hold
        lowest = inf  # a bound of the growth of all steps to other GPUs
        for job, size in gpus.held.items():
            share, demand = target.get(job), demands[job]
            if share is not None and demand.in_place and (slot := tied.get(job)) and slot is due.get(job):
                continue
            outlook = demand.outlook
            if outlook is None or outlook.share.gpus != size or outlook.until_s <= now:
                outlook = demand.look_ahead(size, now)
            if share is None and outlook.most_to_stay < inf:
                staying.append(demand)
            elif share is not None and share.gpus == size:
                if outlook.needs > room or gpus.is_tied(job):
                    continue
                kept.append(demand)
            else:
                self._push(job)
                continue
            if outlook.least_to_grow < lowest:
                lowest = outlook.least_to_grow
        if self._steps:
            lowest = min(lowest, self._steps[0][0])
        self._let_stay(staying, kept, lowest)

    def _push_next_waiting(self) -> None:
        room = self._room()
        if room < self.reservations.least_size(""):
            return
        target, demands = self.gpus.target, self.reservations.demands
        for job in self._waiting:
            if job not in target and demands[job].reservable[0] <= room:
                self._push(job)
                return

    def _let_stay(self, staying: list[Demand], kept: list[Demand], lowest: float) -> None:
        """Let the jobs stay that have a growth below all others, in order of growth as long as there is room.
        Add the steps of the others, and those beyond the GPUs that jobs keep.
        """
        first = {d.job: d.outlook.share for d in staying if d.outlook and d.outlook.most_to_stay < lowest}
        spare, held = self.gpus.spare[""], self.gpus.held
        if sum([held[demand.job] for demand in staying]) <= spare:  # their order does not matter
            steps = [self._stay(demand) for demand in staying if demand.job not in first]
        else:
            steps, taken = sorted(self._stay(demand) for demand in staying), 0
            while steps[taken][-1].job in first and steps[taken][-2] <= spare:
                spare -= steps[taken][-2]
                taken += 1
            first = {demand.job: first[demand.job] for *_, demand in steps[:taken]}
            del steps[:taken]
        self.gpus.keep(first)
        if not self.gpus.spare[""]:
            return
        for step in steps:
            heappush(self._steps, step)
        room = self._room()
        for demand in [*(self.reservations.demands[job] for job in first), *kept]:
            self._push_bound(demand, room)

    def _stay(self, demand: Demand) -> _Step:
        """The step of staying."""
        size = self.gpus.held[demand.job]
        growth = demand.growth_of_staying(size, demand.refresh_work())
        return growth, False, demand.deadline_s, demand.order, size, demand

    def _go_on(self, job: JobView) -> None:
        demand, share = self.reservations.demands[job], self.gpus.target.get(job)
        if demand.outlook is None or share != demand.outlook.share or share.gpus != job.gpus:
            self._push(job)
        else:
            self._push_bound(demand, self._room())

    def _push(self, job: JobView) -> None:
        gpus, demand = self.gpus, self.reservations.demands[job]
        share = gpus.target.get(job)
        if share is not None:
            holding = demand.kind.holding(share.gpus)
            assert holding is not None
            if (holding.needs > self._room() and job.gpus <= share.gpus) or gpus.is_tied(job):
                return
        step = self._next_step(job)
        if step is not None:
            heappush(self._steps, step)

    def _push_bound(self, demand: Demand, room: int) -> None:
        """Add a place before the next step of a job that keeps its GPUs, if there is room for one."""
        outlook = demand.outlook
        if outlook is not None and outlook.needs <= room:
            heappush(self._steps, (outlook.least_to_grow, False, -inf, demand.order, _UNKNOWN, demand))

    def _room(self) -> int:
        """The spare GPUs for jobs that grow."""
        return self.gpus.spare[""] - self.gpus.held_back[""]

    def _next_step(self, job: JobView) -> _Step | None:
        gpus, demand = self.gpus, self.reservations.demands[job]
        if job not in self._asked:
            self._asked[job] = None
            demand.refresh()
        work, kept, share, spare = demand.work, demand.gpus, gpus.target.get(job), gpus.spare[""]
        room = spare - gpus.held_back[""]
        if share is None:
            here, base_s = 0, inf
            least, rate, restart_s = demand.table[0]
            cost = least * (work / rate + restart_s) if least <= gpus.limit(demand, least) else 0.0
        else:
            here = share.gpus
            cost = here * (work / demand.rates[here] + (0.0 if here == kept else demand.restarts[here]))
            base_s = cost / here
        barred: list[int] = []  # sizes that the job may not have
        while True:
            best, best_growth = 0, inf
            for size, rate, restart_s in demand.table:
                if size <= here:
                    continue
                if size - here > (room if size > kept else spare):
                    break
                price = size * (work / rate + (0.0 if size == kept else restart_s))
                growth = (price - cost) / (size - here)
                if growth < best_growth and price / size < base_s and size not in barred:
                    best, best_growth = size, growth
            if not best:
                return None
            if gpus.may_have(demand, best):
                return best_growth, best != kept, demand.deadline_s, demand.order, best, demand
            barred.append(best)
