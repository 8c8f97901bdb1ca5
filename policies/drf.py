"""Dominant resource fairness."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

from clustersim.scheduler import Proposal, Scheduler, State
from policies.toolkit.parameters import by_tenant
from policies.toolkit.tenant_queues import TenantQueues

__all__ = ["Drf"]


class Drf(Scheduler):
    """The first job of the tenant with the smallest dominant share over weight starts next, not preemptive;
    if it does not fit, all jobs wait for it.

    Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011,
    Algorithm 1. GPUs are the one resource modelled here, so a tenant's dominant share is its share of them,
    and DRF is weighted max-min fairness between tenants. `weights` by tenant; 1 where none is given.
    A job that fits on no nodes that remain in the cluster (`State.ever_fits`) is skipped.
    """

    def __init__(self, weights: Mapping[str, float] | None = None):
        self.weights = by_tenant("weights", weights, minimum=1e-6)
        self._queues = TenantQueues()

    def schedule(self, state: State) -> Proposal:
        self._queues.update(state)
        proposal = state.proposal()
        shares = []  # a heap of (share, order of the tenant's first job, GPUs, tenant, its waiting jobs)
        for tenant, queue in self._queues.waiting():
            used_gpus = state.used(tenant)
            shares.append((self._share(tenant, used_gpus), next(iter(queue)).order, used_gpus, tenant, queue))
        heapify(shares)
        while shares:
            _, _, used_gpus, tenant, queue = shares[0]
            job = next(iter(queue))
            started = proposal.start(job) is not None
            if not started and state.ever_fits(job):
                break
            self._queues.take(job)  # a job that never fits too, until the next decision
            used_gpus += job.requested if started else 0
            if len(queue):
                order = next(iter(queue)).order
                heapreplace(shares, (self._share(tenant, used_gpus), order, used_gpus, tenant, queue))
            else:
                heappop(shares)
        return proposal

    def _share(self, tenant: str, gpus: int) -> float:
        """Counted in GPUs, not as a share of the cluster: the order is the same."""
        return gpus / self.weights.get(tenant, 1.0)
