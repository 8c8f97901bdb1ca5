"""Each job in order takes the size that is best for it and for those that it delays."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, NamedTuple

from .claims import Claim, J

__all__ = ["Market", "Share"]


class Share(NamedTuple):
    """The GPUs that a job is to have, all of one type ("" on a cluster of one type)."""

    gpus: int
    gpu_type: str = ""


_Step = tuple[float, int, int, int]  # seconds lost per GPU added; number of the claim; GPUs after, before


class Market(Generic[J]):
    """One division of GPUs among jobs. Call `serve` for the jobs in order, then `give_rest`.

    `gpus`: those that can be given out, by type. `running`: the jobs that hold GPUs, in the order in which
    they will be served. `worth`: what a GPU of each type counts, 1 for the best. `harm`: the weight of the
    restarts of jobs that lose GPUs. `next_s`: seconds until a running job ends if nothing changes. `floors`:
    shares that jobs have in any case; `serve` only adds to them, on their type.

    | field | |
    |---|---|
    | `shares` | GPUs by job |
    | `left` | GPUs that are not given out yet, by type |
    """

    def __init__(
        self, gpus: Mapping[str, int], running: Sequence[Claim[J]], *, harm: float = 1.0, next_s: float = inf,
        worth: Mapping[str, float] | None = None, floors: Mapping[J, Share] | None = None,
    ):  # fmt: skip
        self.left = dict(gpus)
        self.shares: dict[J, Share] = dict(floors or {})
        for share in self.shares.values():
            self.left[share.gpu_type] -= share.gpus
        self._worth = worth or dict.fromkeys(gpus, 1.0)
        self._next_s = next_s
        self._served: list[Claim[J]] = []
        by_type: dict[str, list[tuple[int, Claim[J]]]] = {name: [] for name in gpus}
        self._behind = dict.fromkeys(gpus, 0)
        for claim in running:
            extra = self._extra(claim)
            by_type[claim.gpu_type].append((extra, claim))
            self._behind[claim.gpu_type] += extra
        self._victims = {name: _Victims(held, self._worth[name], harm) for name, held in by_type.items()}

    def serve(self, claim: Claim[J]) -> Share | None:
        """Give a job the size that minimises

            (1 + lam n) T(n) + harm(n),   T(n) = overhead(n) + work / rate(n)

        lam is its price times the worth of a GPU of the type. harm(n): for each running job v that has to
        give up GPUs, the last first, (1 + lam_v n_v) times its restart. A waiting job gets none if it does
        better by waiting for the next job to end than by taking GPUs from others.
        """
        if claim.held:
            self._behind[claim.gpu_type] -= self._extra(claim)
        floor = self.shares.get(claim.job)
        best = alone = inf
        chosen: Share | None = None
        for name in claim.curves if floor is None else (floor.gpu_type,):
            reserved = floor.gpus if floor is not None else 0
            cost, free_cost, size = self._best_size(claim, name, self.left[name] + reserved)
            alone = min(alone, free_cost)
            if size and cost < best:
                best, chosen = cost, Share(size, name)
        if not claim.held and best > alone and self._next_s + alone < best:
            chosen = None
        if chosen is not None and (floor is None or chosen.gpus > floor.gpus):
            self.left[chosen.gpu_type] -= chosen.gpus - (floor.gpus if floor is not None else 0)
            self.shares[claim.job] = chosen
        if claim.job in self.shares:
            self._served.append(claim)
        return self.shares.get(claim.job)

    def give_rest(self) -> None:
        """Give the GPUs that are left to jobs that were served.

        Step by step, the job with the largest (T(held) - T(n)) / (n - held) > 0 goes from its share to n
        GPUs. T counts overheads, so a running job only grows where that pays its restart.
        """
        numbers = range(len(self._served))
        steps = [step for number in numbers if (step := self._best_step(number)) is not None]
        heapify(steps)
        while steps:
            _, number, size, held = heappop(steps)
            job, gpu_type = self._served[number].job, self.shares[self._served[number].job].gpu_type
            if size - held <= self.left[gpu_type]:
                self.shares[job] = Share(size, gpu_type)
                self.left[gpu_type] -= size - held
            step = self._best_step(number)
            if step is not None:
                heappush(steps, step)

    def _extra(self, claim: Claim[J]) -> int:
        """The GPUs that a running job holds beyond its floor, which others may take."""
        floor = self.shares.get(claim.job) if self.shares else None
        if floor is None or floor.gpu_type != claim.gpu_type:
            return claim.held
        return max(0, claim.held - floor.gpus)

    def _best_size(self, claim: Claim, gpu_type: str, most: int) -> tuple[float, float, int]:
        """On up to `most` GPUs of a type: the least cost, the least without harm, and the size of the
        former; 0 if there is none.
        """
        curve, victims, work = claim.curves[gpu_type], self._victims[gpu_type], claim.work
        free = most - self._behind[gpu_type]
        held = claim.held if claim.gpu_type == gpu_type else 0
        price = claim.price * self._worth[gpu_type]
        overheads = curve.launches if claim.fresh else curve.restarts
        least_s = work / curve.rates[-1]
        known = victims.harm(-free) if free < 0 else 0.0
        best = alone = inf
        chosen = 0
        for at, size in enumerate(curve.sizes):
            weight = 1.0 + price * size
            if size > most or weight * least_s >= best:
                break
            overhead_s = overheads[at] if size != held else claim.paying_s
            cost = weight * (overhead_s + work / curve.rates[at])
            if cost < alone:
                alone = cost
            if size > free:
                cost += victims.harm(size - free) - known
            if cost < best:
                best, chosen = cost, size
        return best, alone, chosen

    def _best_step(self, number: int) -> _Step | None:
        """The best step of a served job from its share to at most the GPUs left; None if none gains."""
        claim = self._served[number]
        held, gpu_type = self.shares[claim.job]
        sizes = claim.curves[gpu_type].sizes
        at, end = bisect_left(sizes, held), bisect_right(sizes, held + self.left[gpu_type])
        if at + 1 >= end:
            return None
        held_s = claim.seconds(gpu_type, at)
        best, size = 0.0, 0
        for after in range(at + 1, end):
            lost = (claim.seconds(gpu_type, after) - held_s) / (sizes[after] - held)
            if lost < best:
                best, size = lost, sizes[after]
        return (best, number, size, held) if size else None


class _Victims(Generic[J]):
    """What it costs to take GPUs of one type from running jobs, the last first."""

    __slots__ = ("_gpus", "_harms", "_held", "_weight", "_worth")

    def __init__(self, held: Sequence[tuple[int, Claim[J]]], worth: float, weight: float):
        """`held`: jobs with the GPUs that can be taken from them, in order."""
        self._held, self._worth, self._weight = held, worth, weight
        self._gpus: list[int] = []  # that the last one, two, ... jobs have
        self._harms: list[float] = []  # of taking them

    def harm(self, gpus: int) -> float:
        """Of taking `gpus` GPUs, in seconds; no more than that of taking all."""
        taken, harms = self._gpus, self._harms
        while not taken or taken[-1] < gpus:
            if len(taken) == len(self._held):
                return harms[-1] if harms else 0.0
            self._add()
        return harms[bisect_left(taken, gpus)]

    def _add(self) -> None:
        gpus, claim = self._held[-1 - len(self._gpus)]
        curve = claim.curves[claim.gpu_type]
        restart_s = curve.restarts[curve.sizes.index(claim.held)]
        harm = self._weight * (1.0 + claim.price * self._worth * claim.held) * restart_s if gpus else 0.0
        self._gpus.append(gpus + (self._gpus[-1] if self._gpus else 0))
        self._harms.append(harm + (self._harms[-1] if self._harms else 0.0))
