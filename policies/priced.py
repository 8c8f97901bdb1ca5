"""A price for GPU-seconds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf

from clustersim.scheduler import JobCurve, JobView, Proposal, Ranking, Scheduler, State
from policies.pricing import Claim, Curve, Market, Prices
from policies.toolkit.parameters import number

__all__ = ["Priced"]


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
        self._curves: dict[JobCurve, dict[str, Curve]] = {}
        self._claims: dict[JobView, Claim[JobView]] = {}
        self._keys: list[tuple[float, int]] = []  # of the waiting jobs, sorted

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._claims.pop(event.job, None)
        waiting = self._waiting(state)
        if not state.running and not self._keys:
            return state.proposal()
        running = self._running(state)
        next_s = min([claim.seconds_left() for claim in running], default=inf)
        market = Market({"": state.in_service}, running, harm=self.harm, next_s=next_s)
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

    def _running(self, state: State) -> list[Claim[JobView]]:
        """The running jobs in the same order, with their prices."""
        running = [(self._key(job), job.order, self._claims[job]) for job in state.running]
        running.sort()
        keys, of = self._keys, self._prices.of
        jobs, gpus = len(running) + len(keys), state.cluster.gpus
        for at, (key, order, claim) in enumerate(running):
            claim.price = of(at + bisect_left(keys, (key, order)), jobs, gpus)
        return [entry[2] for entry in running]

    def _in_order(
        self, state: State, running: list[Claim[JobView]], waiting: Ranking[JobView], left: dict[str, int]
    ) -> Iterator[Claim[JobView]]:
        """All jobs in order, without the waiting ones that do not fit in what is left."""
        jobs, gpus = len(running) + len(self._keys), state.cluster.gpus
        number, count = 0, len(running)
        for job in waiting.walk(lambda size: size <= left[""]):
            claim, order = self._claims[job], job.order
            key = claim.key
            while number < count and (running[number].key, running[number].job.order) < (key, order):
                yield running[number]
                number += 1
            claim.price = self._prices.of(number + bisect_left(self._keys, (key, order)), jobs, gpus)
            yield claim
        yield from running[number:]

    def _key(self, job: JobView) -> float:
        """The fewest GPU-seconds that the job needs. Brings its claim up to date."""
        work = job.oracle_work_left
        claim = self._claims.get(job)
        if claim is None:
            claim = self._claims[job] = Claim(job, self._curves_of(job), work)
        claim.work, claim.held, claim.paying_s = work, job.gpus, job.paying_s
        claim.fresh = not job.started
        claim.key = claim.curves[""].least_gpu_s(work)
        return claim.key

    def _curves_of(self, job: JobView) -> dict[str, Curve]:
        """The job's curve, shared by all jobs of its kind."""
        known = job.curve
        curves = self._curves.get(known)
        if curves is None:
            curve = Curve(known.sizes, known.rates, known.restarts, known.launches)
            curves = self._curves[known] = {"": curve}
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
