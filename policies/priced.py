"""A price for GPU-seconds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf

from clustersim.scheduler import JobView, Proposal, Ranking, Scheduler, State
from policies.pricing import Claim, Curve, Market, Prices, least_gpu_s
from policies.toolkit.parameters import number

__all__ = ["Priced"]

_Entry = tuple[float, int, Claim[JobView]]  # least GPU-seconds left, order of submission, the running job


class Priced(Scheduler):
    """Each job, the shortest first, holds as many GPUs as are worth it at a price that counts the jobs which
    wait for them.
    """

    one_gpu_type = True
    elastic = True

    def __init__(
        self, price: float = 3.0, floor: float = 0.0, harm: float = 1.0, rank: bool = True,
        leftover: bool = True,
    ):  # fmt: skip
        self.price, self.floor = number("price", price, 0.0), number("floor", floor, 0.0)
        self.harm, self.rank, self.leftover = number("harm", harm, 0.0), rank, leftover
        self._prices = Prices(self.price, self.floor, rank)
        self._curves: dict[JobView, dict[str, Curve]] = {}
        self._worth = {"": 1.0}
        self._keys: list[tuple[float, int]] = []  # of the waiting jobs, sorted

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._curves.pop(event.job, None)
        waiting = self._waiting(state)
        if not state.running and not self._keys:
            return state.proposal()
        running = self._running(state)
        next_s = min((claim.seconds_left() for _, _, claim in running), default=inf)
        market = Market(
            {"": state.in_service}, [claim for *_, claim in running], harm=self.harm, next_s=next_s
        )
        for claim in self._in_order(state, running, waiting, market.left):
            market.serve(claim)
            if not market.left[""]:
                break
        if self.leftover:
            market.give_rest()
        return _proposal(state, {job: share.gpus for job, share in market.shares.items()})

    def _waiting(self, state: State) -> Ranking[JobView]:
        """The waiting jobs by least GPU-seconds."""
        waiting = state.pending_by(self._key, elastic=True)
        departed, arrived = waiting.changes()
        for key, order, _ in departed:
            del self._keys[bisect_left(self._keys, (key, order))]
        for key, order, _ in arrived:
            insort(self._keys, (key, order))
        return waiting

    def _running(self, state: State) -> list[_Entry]:
        """The running jobs in the same order, with their prices."""
        running = [(self._key(job), job.order, self._claim(job)) for job in state.running]
        running.sort(key=lambda entry: entry[:2])
        jobs, gpus = len(running) + len(self._keys), state.cluster.gpus
        for at, (key, order, claim) in enumerate(running):
            claim.price = self._prices.of(at + bisect_left(self._keys, (key, order)), jobs, gpus)
        return running

    def _in_order(
        self, state: State, running: list[_Entry], waiting: Ranking[JobView], left: dict[str, int]
    ) -> Iterator[Claim[JobView]]:
        """All jobs in order, without the waiting ones that do not fit in what is left."""
        jobs, gpus = len(running) + len(self._keys), state.cluster.gpus
        pending = waiting.walk(lambda size: size <= left[""])
        head = next(pending, None)
        for before, (key, order, claim) in enumerate(running):
            while head is not None and (at := (self._key(head), head.order)) < (key, order):
                rank = before + bisect_left(self._keys, at)
                yield self._claim(head, self._prices.of(rank, jobs, gpus))
                head = next(pending, None)
            yield claim
        while head is not None:
            rank = len(running) + bisect_left(self._keys, (self._key(head), head.order))
            yield self._claim(head, self._prices.of(rank, jobs, gpus))
            head = next(pending, None)

    def _claim(self, job: JobView, price: float = 0.0) -> Claim[JobView]:
        return Claim(
            job, self._curve(job), self._work(job), price,
            held=job.gpus, paying_s=job.paying_s, fresh=not job.started,
        )  # fmt: skip

    def _key(self, job: JobView) -> float:
        return least_gpu_s(self._curve(job), self._work(job), self._worth)

    def _work(self, job: JobView) -> float:
        curve = self._curve(job)[""]
        return job.oracle_remaining(curve.sizes[0]) * curve.rates[0]

    def _curve(self, job: JobView) -> dict[str, Curve]:
        curves = self._curves.get(job)
        if curves is None:
            sizes = job.sizes
            rates = tuple(job.rate(size) for size in sizes)
            restarts = tuple(job.restart_s(size) for size in sizes)
            launches = restarts if job.started else tuple(job.start_cost_s(size) for size in sizes)
            curves = self._curves[job] = {"": Curve(sizes, rates, restarts, launches)}
        return curves


def _proposal(state: State, shares: dict[JobView, int]) -> Proposal:
    """A draft that runs the jobs of `shares`."""
    proposal = state.proposal()
    to_start = dict(shares)
    for job in state.running:
        if shares.get(job, 0) == job.gpus:
            del to_start[job]
        else:
            proposal.stop(job)
    ranked = sorted(to_start.items(), key=lambda entry: -entry[1])
    placed = [proposal.start(job, gpus) for job, gpus in ranked]
    if None in placed:
        proposal.compact({job: gpus for job, gpus in shares.items() if proposal.gpus(job) != gpus})
    for job, gpus in shares.items():
        if not proposal.free:
            break
        if proposal.placement(job) is None:
            fitting = [size for size in job.sizes if size <= gpus and proposal.fits(size)]
            if fitting:
                proposal.start(job, fitting[-1])
    return proposal
