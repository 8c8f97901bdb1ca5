"""A price for GPU-seconds; the reasoning and the proofs are in docs/policies/priced.md."""

from __future__ import annotations

from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.pricing import Claim, Line, Market, Prices
from policies.toolkit.parameters import number, switch, whole

__all__ = ["Priced"]


class Priced(Scheduler):
    """Each job, the shortest first, gets as many GPUs as are worth it at a price of GPU-seconds that counts
    the jobs which could use them; at every event.

    Jobs are ordered by the least GPU-seconds that they still need. Before them stand up to `overdue` jobs
    that have been in the system for `patience` times the seconds that they would need alone, so that no
    job waits for ever. The i-th of m (from 0) pays (`price` (m - 1 - i) + `floor`) / GPUs seconds for a
    GPU-second. `harm` weighs what jobs lose when others take their GPUs. The defaults are for the
    mean completion time; `price` 6 with `patience` 5 is for the 99th percentile, and `price` with `floor`
    1000 for the makespan; on several GPU types `longest` with `price` 0 and `floor` 1000. `rank` off: all
    jobs pay (`price` m + `floor`) / GPUs. `leftover` off: GPUs that no job takes at its price stay free.
    `longest`: the job that needs the most GPU-seconds stands first, not last. Work is the stated iterations;
    for jobs that state none it comes from the oracle.
    """

    elastic = True

    def __init__(
        self, price: float = 3.0, floor: float = 0.0, harm: float = 1.0, patience: float = 100.0,
        overdue: int = 4, rank: bool = True, leftover: bool = True, longest: bool = False,
    ):  # fmt: skip
        self.price, self.floor = number("price", price, 0.0, 1e9), number("floor", floor, 0.0, 1e9)
        self.harm, self.patience = number("harm", harm, 0.0, 1e9), number("patience", patience, 0.0, 1e9)
        self.overdue = whole("overdue", overdue, 1, 1000)
        self.rank, self.leftover = switch("rank", rank), switch("leftover", leftover)
        self.longest = switch("longest", longest)
        self.line = Line(Prices(self.price, self.floor, self.rank), self.patience, self.overdue, self.longest)
        self._waits: dict[JobView, float] = {}  # since when jobs have waited as the first in order

    def schedule(self, state: State) -> Proposal:
        line, proposal = self.line, state.proposal()
        line.update(state)
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._waits.pop(event.job, None)
        market = self.market()
        claims = line.walk(market.fits)
        head = next(claims, None)
        if head is None:
            return proposal
        wake_at = self._serve_first(head, market, state.now)
        for claim in claims:
            if not market.fits(1):
                break
            market.serve(claim)
        if self.leftover:
            market.give_rest()
        requests = {job: (gpus, gpu_type or None) for job, (gpus, gpu_type) in market.shares.items()}
        if not all(proposal.run(requests).values()):
            self._fill(proposal)
        wake_at = min(line.next_due_s, wake_at if wake_at > state.now else inf)
        if wake_at < inf:
            proposal.wake_at = wake_at
        return proposal

    def market(self) -> Market[JobView]:
        """The division of a decision, before any job is served."""
        return Market(self.line.gpus, self.line.running, harm=self.harm, worth=self.line.worth)

    def _serve_first(self, claim: Claim[JobView], market: Market[JobView], now: float) -> float:
        """Serve the first job in order, such that it is done in bounded time. Returns when it stops waiting,
        0 if it does not wait.

        It changes its GPUs only after it has worked on them for as long as a restart takes. It waits for
        GPUs of jobs that end no longer, in all, than it would run on its smallest size.
        """
        job = claim.job
        if claim.held and job.productive_s < max(claim.curves[claim.gpu_type].restarts):
            market.keep(claim)
            return 0.0
        until = self._waits.get(job, now) + max([claim.work * c.unit_s[0] for c in claim.curves.values()])
        if market.serve(claim, until - now).gpus:
            return 0.0
        self._waits.setdefault(job, now)
        return until

    def _fill(self, proposal: Proposal) -> None:
        """Start jobs in order where jobs before them found no place: after the loss of nodes, enough free
        GPUs need not be a place.
        """
        for claim in self.line.walk(proposal.fits):
            job = claim.job
            if not proposal.gpus(job):
                fitting = [size for size in job.sizes if proposal.fits(size)]
                if fitting:
                    proposal.start(job, fitting[-1])
