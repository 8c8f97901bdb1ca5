"""Slurm's multifactor priority, with backfilling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf, log

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.backfill import RunTimeEstimates, Shadow
from policies.toolkit.parameters import by_tenant, number

__all__ = ["Multifactor"]

_WEEK_S = 7 * 86400.0


class Multifactor(Scheduler):
    """The highest priority first, not preemptive; a later job may start earlier if it does not delay the
    first one, by estimated run times.

    Priority and fair share are those of Slurm's documentation (Multifactor Priority Plugin; Classic Fairshare
    Algorithm):

        priority = age_weight x age + fair_share_weight x fair share + size_weight x size
        age = min(1, wait / max_age_s)
        fair share = 2 ^ -(usage / share)
        size = GPUs of the job / GPUs in service

    `usage` is the tenant's part of all GPU-seconds so far, which decay with `half_life_s`; tenants have equal
    shares. Jobs of a tenant that would hold more than `tenant_limit` GPUs wait, and block no others
    (`GrpTRES`); one that asks for more is declined (`DenyOnLimit`). `tenant_limits` states it by tenant.
    `max_age_s` and `half_life_s` are Slurm's defaults; its weights are 0 by default, so those here are an
    assumption. It is no more than that formula. Slurm's size is the mean of the parts of nodes and of CPUs,
    its fair share is by default Fair Tree, its usage is billing-seconds, priorities are calculated once a
    period, and its backfilling plans every job: the policy `slurm` does all of this. Backfilling here is
    EASY's.
    Estimates are those of the policy easy: users' own, else `estimate_factor` times the logged duration.
    """

    def __init__(
        self,
        age_weight: float = 1000.0,
        fair_share_weight: float = 10_000.0,
        size_weight: float = 0.0,
        max_age_s: float = _WEEK_S,
        half_life_s: float = _WEEK_S,
        tenant_limit: float | None = None,
        tenant_limits: Mapping[str, float] | None = None,
        estimate_factor: float = 1.0,
    ):
        self.age_weight = number("age_weight", age_weight, minimum=0)
        self.fair_share_weight = number("fair_share_weight", fair_share_weight, minimum=0)
        self.size_weight = number("size_weight", size_weight, minimum=0)
        self.max_age_s = number("max_age_s", max_age_s, minimum=1)
        self.half_life_s = number("half_life_s", half_life_s, minimum=1)
        self.tenant_limit = None if tenant_limit is None else number("tenant_limit", tenant_limit, minimum=1)
        self.tenant_limits = by_tenant("tenant_limits", tenant_limits, minimum=1)
        self._estimates = RunTimeEstimates(estimate_factor)
        self.estimate_factor = self._estimates.factor
        self._usage: dict[str, float] = {}  # decayed GPU-seconds of each tenant seen, as of `_counted_s`
        self._held: Counter[str] = Counter()  # GPUs of each tenant since then
        self._counted_s = 0.0

    def refusal(self, job: JobView) -> str:
        limit = self._limit(job.tenant)
        if job.requested <= limit:
            return ""
        setting = "tenant_limits" if job.tenant in self.tenant_limits else "tenant_limit"
        return f"more GPUs than its tenant may hold ({setting}): {job.requested} of {limit:g}"

    def schedule(self, state: State) -> Proposal:
        self._estimates.update(state)
        self._count(state)
        proposal, shadow = state.proposal(), None
        held = Counter[str]()
        for job in state.running:
            held[job.tenant] += job.gpus
        for job in sorted(state.pending, key=self._order(state)):
            if held[job.tenant] + job.requested > self._limit(job.tenant):
                continue
            if shadow is not None:
                started = proposal.fits(job.needs) and shadow.backfill(job)
            else:
                started = self._estimates.start(job, proposal, state.now)
                if not started and state.ever_fits(job):
                    shadow = Shadow(job, proposal, self._estimates, state.now)
            if started:
                held[job.tenant] += job.requested
        if shadow is not None and (expiry_s := self._estimates.watch(proposal, state.now)) < inf:
            proposal.wake_at = expiry_s
        self._held = held
        return proposal

    def _limit(self, tenant: str) -> float:
        """The most GPUs that a tenant may hold at once."""
        return self.tenant_limits.get(tenant, inf if self.tenant_limit is None else self.tenant_limit)

    def _count(self, state: State) -> None:
        """Bring the usage of all tenants up to date; what was held since the last decision decays, too."""
        passed_s = state.now - self._counted_s
        decay = 2.0 ** (-passed_s / self.half_life_s)
        gained_s = (1 - decay) * self.half_life_s / log(2)  # of one GPU
        for job in state.pending:
            self._usage.setdefault(job.tenant, 0.0)
        for tenant, usage in self._usage.items():
            self._usage[tenant] = usage * decay + self._held[tenant] * gained_s
        self._counted_s = state.now

    def _order(self, state: State) -> Callable[[JobView], tuple[float, int]]:
        """The key by which the highest priority comes first, ties by submission."""
        total = sum(self._usage.values())
        tenants = len(self._usage)
        fair = {
            name: 2.0 ** (-(usage / total if total else 0.0) * tenants) for name, usage in self._usage.items()
        }
        in_service = max(state.in_service, 1)

        def key(job: JobView) -> tuple[float, int]:
            age = min(1.0, (state.now - job.submit_s) / self.max_age_s)
            share = fair[job.tenant]
            size = job.requested / in_service
            priority = self.age_weight * age + self.fair_share_weight * share + self.size_weight * size
            return -priority, job.order

        return key
