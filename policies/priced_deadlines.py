"""Promised deadlines by triage, and spare GPUs at a price."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.pricing import Claim, ClaimCurve, Line, Market, PricedShare, Prices, Promises
from policies.pricing.triage import Triage
from policies.reservation import follow
from policies.toolkit.parameters import number, switch, whole

__all__ = ["PricedDeadlines"]

_LEAST_GUARD_S = 1e-3  # as for `elasticflow`


class PricedDeadlines(Scheduler):
    """ElasticFlow's reservations for the deadlines of as many jobs as possible; `priced` for all other GPUs.

    No job is declined. A job that cannot be promised its deadline is best effort. A promise is kept, unless
    it is taken back for a job with less GPU time left (`give_up`); both are noted in the records. `share`: no
    promise for a job that needs more than this share of the GPU time that is free before its deadline.
    `guard_s`: seconds of work that a reservation holds beyond what the job needs. `reserve`: how many times
    the seconds that saves and failures are expected to take it holds on top; 0 foresees neither. `price`,
    `floor`, `harm`, `patience` and `overdue` are those of `priced`, for the GPUs that are not reserved.
    """

    equal_nodes = True
    elastic = True
    leaves_idle = False

    def __init__(
        self, price: float = 3.0, floor: float = 0.0, harm: float = 1.0, patience: float = 100.0,
        overdue: int = 4, guard_s: float = 1.0, give_up: bool = True, share: float = 1.0,
        reserve: float = 2.0,
    ):  # fmt: skip
        self.price, self.floor = number("price", price, 0.0, 1e9), number("floor", floor, 0.0, 1e9)
        self.harm, self.patience = number("harm", harm, 0.0, 1e9), number("patience", patience, 0.0, 1e9)
        self.overdue = whole("overdue", overdue, 1, 1000)
        self.guard_s, self.give_up = number("guard_s", guard_s, _LEAST_GUARD_S), switch("give_up", give_up)
        self.share, self.reserve = number("share", share, 0.0, 1.0), number("reserve", reserve, 0.0, 100.0)
        self._line = Line(Prices(self.price, self.floor), self.patience, self.overdue)
        self._triage: Triage | None = None

    def admit(self, job: JobView, state: State) -> bool:
        triage = self.triage(state)
        triage.reservations.update(state)
        triage.enter(job, state)
        return True

    def schedule(self, state: State) -> Proposal:
        triage = self.triage(state)
        triage.reservations.update(state)
        triage.try_again(state)
        proposal = follow(state, triage.reservations, partial(self._share_out, state, triage.reservations))
        for job, text in triage.take_notes().items():
            proposal.note(job, text)
        if self._line.next_due_s < inf:
            proposal.wake_at = min(proposal.wake_at or inf, self._line.next_due_s)
        return proposal

    def triage(self, state: State) -> Triage:
        """The promises."""
        if self._triage is None:
            reservations = Promises(state.cluster, self.guard_s, self.reserve)
            self._triage = Triage(reservations, self.give_up, self.share)
        return self._triage

    def _share_out(self, state: State, promises: Promises) -> None:
        """Share out spare GPUs as `priced` does, within what promises allow."""
        line, floors = self._line, promises.targets()
        line.update(state)
        if not len(line):
            return
        running = [_allowed(claim, promises, floors) for claim in line.running]
        market = Market(
            line.gpus,
            [claim for claim in running if claim.held],  # the others have to leave what they hold
            harm=self.harm, worth=line.worth, floors=floors,
        )  # fmt: skip
        running_claims = {claim.job: claim for claim in running}
        for claim in line.walk(market.fits):
            if not market.fits(1):
                break
            claim = running_claims.get(claim.job) or _allowed(claim, promises, floors)
            if claim.curves:
                market.serve(claim)
        market.give_rest()
        for job, share in market.shares.items():
            if share.gpus and floors.get(job) != share:
                promises.give(job, share.gpus, share.gpu_type)


def _allowed(
    claim: Claim[JobView], promises: Promises, floors: Mapping[JobView, PricedShare]
) -> Claim[JobView]:
    """The claim of a job, on the sizes alone that its promise allows."""
    job, floor = claim.job, floors.get(claim.job)
    if floor is None and not promises.has(job):
        return claim
    curves, held = {}, 0
    for name, curve in claim.curves.items():
        floor_gpus = floor.gpus if floor is not None and floor.gpu_type == name else 0
        indices = [
            i
            for i, size in enumerate(curve.sizes)
            if size == floor_gpus or promises.may_have(job, size, name)
        ]
        if indices:
            rates = [1 / curve.unit_s[i] for i in indices]
            curves[name] = ClaimCurve(
                [curve.sizes[i] for i in indices],
                rates,
                [curve.restarts[i] for i in indices],
                [curve.launches[i] for i in indices],
            )
            if name == claim.gpu_type and claim.held in curves[name].sizes:
                held = claim.held
    return Claim(
        job,
        curves,
        claim.work,
        claim.price,
        held=held,
        gpu_type=claim.gpu_type if held else "",
        paying_s=claim.paying_s,
        fresh=claim.fresh,
    )
