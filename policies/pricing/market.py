"""Each job in order takes the size that is best for it and for those that it delays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, NamedTuple

from .claims import Claim, J

__all__ = ["Market", "PricedShare"]


class PricedShare(NamedTuple):
    """The GPUs that a job is to have, all of one type ("" on a cluster of one type)."""

    gpus: int
    gpu_type: str = ""


_NONE = PricedShare(0)


class Market(Generic[J]):
    """One division of GPUs among jobs. Call `serve` for the jobs in order, then `give_rest`.

    `gpus`: those that can be given out, by type. `running`: the jobs that hold GPUs, in the order in which
    they will be served. `worth`: what a GPU of each type counts, 1 for the best. `harm`: the weight of what
    jobs lose from which GPUs are taken. `floors`: shares that jobs have in any case; `serve` only adds to
    them, on their type.

    | field | |
    |---|---|
    | `shares` | GPUs by job |
    | `left` | GPUs that are not given out yet, by type |
    """

    def __init__(
        self, gpus: Mapping[str, int], running: Sequence[Claim[J]], *, harm: float = 1.0,
        worth: Mapping[str, float] | None = None, floors: Mapping[J, PricedShare] | None = None,
    ):  # fmt: skip
        self.left = dict(gpus)
        self._floors = floors or {}
        self.shares: dict[J, PricedShare] = dict(self._floors)
        for share in self.shares.values():
            self.left[share.gpu_type] -= share.gpus
        self._growing: list[Claim[J]] = []  # the served jobs whose shares may grow
        self._holders: dict[str, _Holders[J]] = {
            name: _Holders(1.0 if worth is None else worth[name], harm) for name in gpus
        }
        for claim in running:
            self._holders[claim.gpu_type].add(claim, self._extra(claim) if floors else claim.held)

    def fits(self, gpus: float) -> bool:
        """Whether so many GPUs of one type are left."""
        if len(self.left) == 1:
            (free_gpus,) = self.left.values()
            return gpus <= free_gpus
        return gpus <= max(self.left.values())

    def serve(self, claim: Claim[J], wait_s: float = inf) -> PricedShare:
        """Give a job the size that minimises

            (1 + lam n) T(n) + harm(n),   T(n) = overhead(n) + work / rate(n)

        lam is its price times the worth of a GPU of the type. harm(n): for each running job v that has to
        give up GPUs, the last first, (1 + lam_v n_v) times what a new start costs it more than it still has
        to pay. A waiting job may also wait for jobs to end: with t(n) the time until n GPUs are free so,
        beyond those that jobs before it wait for, it gets none if the least t(n) + (1 + lam n) T(n) is less,
        and this t(n) is less than `wait_s`.

        Returns its share, 0 GPUs if it gets none.
        """
        held = claim.held
        if held:
            self._holders[claim.gpu_type].behind -= self._extra(claim) if self.shares else held
        floor = self.shares.get(claim.job, _NONE) if self.shares else _NONE
        best = alone = inf
        size, gpu_type = 0, floor.gpu_type
        for name in (gpu_type,) if floor.gpus else claim.curves:
            available = self.left[name] + floor.gpus
            cost, without_harm, at_best = self._best_size(claim, name, available)
            if without_harm < alone:
                alone = without_harm
            if cost < best:
                best, size, gpu_type = cost, at_best, name
        if best > alone and not held and self._waits(claim, best, wait_s):
            size = 0
        if size > floor.gpus:
            self.left[gpu_type] -= size - floor.gpus
            floor = self.shares[claim.job] = PricedShare(size, gpu_type)
        if floor.gpus:
            self._growing.append(claim)
        return floor

    def keep(self, claim: Claim[J]) -> None:
        """Serve a running job by leaving it what it holds."""
        self._holders[claim.gpu_type].behind -= self._extra(claim)
        self.left[claim.gpu_type] -= self._extra(claim)
        self.shares[claim.job] = PricedShare(claim.held, claim.gpu_type)

    def give_rest(self) -> None:
        """Give the GPUs that are left to jobs that were served.

        Step by step, the job with the most time left goes from its share to the next size on which it is done
        earlier, overheads included; where there is none, to the least of another type. So a running job only
        grows, or moves, where that pays its restart.
        """
        if not self.fits(1):
            return
        longest = [
            (-claim.seconds(gpu_type, claim.curves[gpu_type].at(gpus)), number)
            for number, claim in enumerate(self._growing)
            for gpus, gpu_type in [self.shares[claim.job]]
        ]
        heapify(longest)
        stuck: list[tuple[float, int]] = []  # jobs that cannot grow until others leave a type
        while longest:
            seconds, number = heappop(longest)
            claim = self._growing[number]
            gpus, gpu_type = self.shares[claim.job]
            step = self._next_step(claim, gpus, gpu_type, -seconds)
            if step is None:
                stuck.append((seconds, number))
                continue
            self.left[gpu_type] += gpus
            self.left[step.gpu_type] -= step.gpus
            self.shares[claim.job] = step
            seconds = claim.seconds(step.gpu_type, claim.curves[step.gpu_type].at(step.gpus))
            heappush(longest, (-seconds, number))
            if step.gpu_type != gpu_type:
                for entry in stuck:
                    heappush(longest, entry)
                stuck.clear()

    def _next_step(self, claim: Claim[J], gpus: int, gpu_type: str, seconds: float) -> PricedShare | None:
        """The next size of a job with a share on which it is done in less than `seconds`, of those for which
        enough GPUs are left; None if there is none. Jobs with a floor keep their type.
        """
        names = [gpu_type]
        if claim.job not in self._floors:
            names += [name for name in claim.curves if name != gpu_type]
        for name in names:
            curve, has = claim.curves[name], gpus if name == gpu_type else 0
            for size_index in range(curve.at(gpus) + 1 if has else 0, len(curve.sizes)):
                if curve.sizes[size_index] - has > self.left[name]:
                    break
                if claim.seconds(name, size_index) < seconds:
                    return PricedShare(curve.sizes[size_index], name)
        return None

    def _waits(self, claim: Claim[J], cost: float, wait_s: float) -> bool:
        """Whether a waiting job does better by waiting for GPUs than at `cost`; they are then reserved."""
        best, best_share = cost, _NONE
        for name, curve in claim.curves.items():
            holders = self._holders[name]
            free = self.left[name] - holders.behind - holders.reserved
            price = claim.price * holders.worth
            ends, end_index, end_s = holders.ends(), 0, 0.0
            for size, overhead_s, unit_s in curve.first if claim.fresh else curve.later:
                while free < size and end_index < len(ends):
                    end_s, gpus = ends[end_index]
                    free += gpus
                    end_index += 1
                if free < size or end_s >= wait_s:
                    break
                cost = end_s + (1.0 + price * size) * (overhead_s + claim.work * unit_s)
                if cost < best:
                    best, best_share = cost, PricedShare(size, name)
        if best_share.gpus:
            self._holders[best_share.gpu_type].reserved += best_share.gpus
        return best_share.gpus > 0

    def _extra(self, claim: Claim[J]) -> int:
        """The GPUs that a running job holds beyond its floor, which others may take."""
        floor = self.shares.get(claim.job) if self.shares else None
        if floor is None or floor.gpu_type != claim.gpu_type:
            return claim.held
        return max(0, claim.held - floor.gpus)

    def _best_size(self, claim: Claim[J], gpu_type: str, available: int) -> tuple[float, float, int]:
        """On up to `available` GPUs of a type: the least cost, the least without harm, and the size of the
        former; 0 if there is none.
        """
        curve, holders, work = claim.curves[gpu_type], self._holders[gpu_type], claim.work
        free = available - holders.behind
        held = claim.held if claim.gpu_type == gpu_type else 0
        price = claim.price * holders.worth
        least_s = work * curve.unit_s[-1]
        harm_before = -1.0  # harm that jobs before it do already
        best = alone = inf
        best_size = 0
        for size, overhead_s, unit_s in curve.first if claim.fresh else curve.later:
            weight = 1.0 + price * size
            if size > available or weight * least_s >= best:
                break
            cost = weight * ((overhead_s if size != held else claim.paying_s) + work * unit_s)
            if cost < alone:
                alone = cost
            if size > free and cost < best:
                if harm_before < 0.0:
                    harm_before = holders.harm(-free) if free < 0 else 0.0
                cost += holders.harm(size - free) - harm_before
            if cost < best:
                best, best_size = cost, size
        return best, alone, best_size


class _Holders(Generic[J]):
    """The running jobs on one GPU type, in order, and what it costs to take GPUs from the last of them.

    `behind`: the GPUs that may be taken from those that are not served yet. `reserved`: those for which jobs
    wait.
    """

    __slots__ = ("_ends", "_gpus", "_harms", "_held", "_weight", "behind", "reserved", "worth")

    def __init__(self, worth: float, weight: float):
        self.worth, self._weight = worth, weight
        self.behind = self.reserved = 0
        self._ends: list[tuple[float, int]] | None = None
        self._held: list[tuple[int, Claim[J]]] = []  # jobs, each with the GPUs that may be taken from it
        self._gpus: list[int] = []  # of the last one, two, ... jobs together
        self._harms: list[float] = []  # of taking them

    def add(self, claim: Claim[J], gpus: int) -> None:
        """Append a job, from which `gpus` GPUs may be taken."""
        self._held.append((gpus, claim))
        self.behind += gpus

    def ends(self) -> list[tuple[float, int]]:
        """When each of the jobs ends if nothing changes, in seconds from now, with its GPUs; sorted."""
        if self._ends is None:
            self._ends = sorted([(claim.seconds_left(), claim.held) for _, claim in self._held])
        return self._ends

    def harm(self, gpus: int) -> float:
        """The harm of taking `gpus` GPUs from the last jobs, in seconds; at most that of taking all."""
        cumulative_gpus, harms = self._gpus, self._harms
        while not cumulative_gpus or cumulative_gpus[-1] < gpus:
            if len(cumulative_gpus) == len(self._held):
                return harms[-1] if harms else 0.0
            self._count_next()
        return harms[bisect_left(cumulative_gpus, gpus)]

    def _count_next(self) -> None:
        """Add the harm of taking all GPUs of the last job that is not counted yet."""
        gpus, claim = self._held[-1 - len(self._gpus)]
        more_s = claim.again_s() - claim.paying_s
        harm = self._weight * (1.0 + claim.price * self.worth * claim.held) * more_s
        if not gpus or harm < 0.0:
            harm = 0.0
        self._gpus.append(gpus + (self._gpus[-1] if self._gpus else 0))
        self._harms.append(harm + (self._harms[-1] if self._harms else 0.0))
