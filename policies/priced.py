"""A price for GPU-seconds."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.pricing import Claim, Line, Market, Prices
from policies.toolkit.parameters import number

__all__ = ["Priced"]


class Priced(Scheduler):
    """Each job, the shortest first, holds as many GPUs as are worth it at a price that counts the jobs which
    wait for them.
    """

    elastic = True

    def __init__(
        self, price: float = 3.0, floor: float = 0.0, harm: float = 1.0, patience: float = 2000.0,
        rank: bool = True, leftover: bool = True,
    ):  # fmt: skip
        self.price, self.floor = number("price", price, 0.0), number("floor", floor, 0.0)
        self.harm, self.rank, self.leftover = number("harm", harm, 0.0), rank, leftover
        self.patience = number("patience", patience, 1e-6)
        self._line = Line(Prices(self.price, self.floor, rank), self.patience)
        self._waits: dict[JobView, float] = {}  # since when jobs have waited as the first in order

    def schedule(self, state: State) -> Proposal:
        line = self._line
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._waits.pop(event.job, None)
        line.update(state)
        if not len(line) or not any(line.gpus.values()):
            return state.proposal()
        market = Market(line.gpus, line.running, harm=self.harm, next_s=line.next_end_s(), worth=line.worth)
        claims = line.walk(market.left)
        first = next(claims, None)
        if first is not None:
            self._serve_first(first, market, state.now)
        for claim in claims:
            if not any(market.left.values()):
                break
            market.serve(claim)
        if self.leftover:
            market.give_rest()
        proposal = state.proposal()
        if market.shares:
            proposal.run({job: (gpus, gpu_type or None) for job, (gpus, gpu_type) in market.shares.items()})
        return proposal

    def _serve_first(self, claim: Claim[JobView], market: Market[JobView], now: float) -> None:
        """Serve the first job in order, such that it is done in bounded time.

        It changes its GPUs only after it has worked there for as long as a restart takes, and waits for the
        GPUs of jobs that end no longer than it would run on its smallest size.
        """
        job = claim.job
        if claim.held and job.productive_s < max(claim.curves[claim.gpu_type].restarts):
            market.keep(claim)
            return
        longest_s = max([claim.work * curve.unit_s[0] for curve in claim.curves.values()])
        share = market.serve(claim, longest_s - (now - self._waits.get(job, now)))
        if not share.gpus:
            self._waits.setdefault(job, now)
