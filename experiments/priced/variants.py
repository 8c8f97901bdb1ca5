"""`priced` without parts that no parameter switches off, for the study of its parts."""

from __future__ import annotations

from clustersim.scheduler import JobCurve, JobView
from policies.priced import Priced
from policies.pricing import Claim, ClaimCurve, Line, Market, PricedShare, Prices

__all__ = ["Blind", "NoWaiting"]


class NoWaiting(Priced):
    """No job waits for others to end if it can take their GPUs."""

    def market(self) -> Market[JobView]:
        return _Impatient(self.line.gpus, self.line.running, harm=self.harm, worth=self.line.worth)


class _Impatient(Market[JobView]):
    def serve(self, claim: Claim[JobView], wait_s: float = 0.0) -> PricedShare:
        return super().serve(claim, 0.0)


class Blind(Priced):
    """The same rule, if starts and restarts cost nothing."""

    def __init__(self, price: float = 3.0):
        super().__init__(price, harm=0.0)
        self.line = _FreeRestarts(Prices(self.price), self.patience, self.overdue)


class _FreeRestarts(Line):
    def curve(self, known: JobCurve) -> ClaimCurve:
        nothing = [0.0] * len(known.sizes)
        return ClaimCurve(known.sizes, known.rates, nothing, nothing)

    def key(self, job: JobView) -> float:
        key = super().key(job)
        self.claims[job].paying_s = 0.0
        return key
