"""A price for GPU-seconds."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.pricing import Line, Market, Prices, Share
from policies.toolkit.parameters import number

__all__ = ["Priced"]


class Priced(Scheduler):
    """Each job, the shortest first, holds as many GPUs as are worth it at a price that counts the jobs which
    wait for them.
    """

    elastic = True

    def __init__(
        self, price: float = 3.0, floor: float = 0.0, harm: float = 1.0, patience: float = 1e9,
        rank: bool = True, leftover: bool = True,
    ):  # fmt: skip
        self.price, self.floor = number("price", price, 0.0), number("floor", floor, 0.0)
        self.harm, self.rank, self.leftover = number("harm", harm, 0.0), rank, leftover
        self.patience = number("patience", patience, 1e-6)
        self._line = Line(Prices(self.price, self.floor, rank), self.patience)

    def schedule(self, state: State) -> Proposal:
        line = self._line
        line.update(state)
        if not len(line) or not any(line.gpus.values()):
            return state.proposal()
        market = Market(line.gpus, line.running, harm=self.harm, next_s=line.next_end_s(), worth=line.worth)
        for claim in line.walk(market.left):
            market.serve(claim)
            if not any(market.left.values()):
                break
        if self.leftover:
            market.give_rest()
        return _proposal(state, market.shares)


def _proposal(state: State, shares: dict[JobView, Share]) -> Proposal:
    """A draft that runs the jobs of `shares`."""
    mixed = state.cluster.mixed
    proposal = state.proposal()
    to_start = dict(shares)
    for job in state.running:
        share = shares.get(job)
        if share is not None and share.gpus == job.gpus and (not mixed or share.gpu_type == job.gpu_type):
            del to_start[job]
        else:
            proposal.stop(job)
    ranked = sorted(to_start.items(), key=lambda entry: -entry[1].gpus)
    placed = [proposal.start(job, gpus, gpu_type=gpu_type or None) for job, (gpus, gpu_type) in ranked]
    if None in placed and not mixed:
        proposal.compact(
            {job: share.gpus for job, share in shares.items() if proposal.gpus(job) != share.gpus}
        )
    for job, (gpus, gpu_type) in shares.items():
        if not proposal.free:
            break
        if proposal.placement(job) is None:
            sizes = job.sizes_on(gpu_type) if gpu_type else job.sizes
            fitting = [size for size in sizes if size <= gpus and proposal.fits(size, gpu_type or None)]
            if fitting:
                proposal.start(job, fitting[-1], gpu_type=gpu_type or None)
    return proposal
