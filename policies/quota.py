"""Guaranteed quotas, and borrowing what other tenants leave."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from math import inf

from clustersim.scheduler import JobView, Proposal, Ranking, Scheduler, State
from policies.toolkit.tenant_queues import TenantQueues

__all__ = ["Quota"]


class Quota(Scheduler):
    """A tenant's jobs up to its quota of GPUs always run, if necessary on GPUs taken back from borrowers; the
    remaining GPUs are lent, one job at a time, to the tenant that uses least of its quota.

    The scheme of YARN's capacity scheduler, and of the virtual clusters in Jeon et al., "Analysis of
    Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019. Quotas are the run's
    (`--set quotas.TENANT=GPUS`); without any, GPUs go to the tenant that holds fewest.
    """

    leaves_idle = False

    def __init__(self) -> None:
        self._queues = TenantQueues()

    def schedule(self, state: State) -> Proposal:
        self._queues.update(state)
        proposal, used_gpus = state.proposal(), Counter[str]()
        for job in state.running:
            used_gpus[job.tenant] += job.gpus
        started = True
        while started:  # again: a tenant that gave GPUs back may now be below its quota
            waiting = list(self._queues.waiting())
            started = any(self._guarantee(state, proposal, used_gpus, *tenant) for tenant in waiting)
        self._lend(state, proposal, used_gpus)
        return proposal

    def _guarantee(
        self, state: State, proposal: Proposal, used_gpus: Counter[str], tenant: str, queue: Ranking
    ) -> bool:
        """Start a tenant's jobs that fit into its quota, in order of submission. Returns whether any
        started.
        """
        started: list[JobView] = []
        for job in queue.walk(lambda gpus: used_gpus[tenant] + gpus <= state.quota(tenant)):
            if proposal.start(job) is not None or self._reclaim(job, state, proposal, used_gpus):
                used_gpus[tenant] += job.requested
                started.append(job)
        for job in started:
            self._queues.take(job)
        return bool(started)

    def _reclaim(self, job: JobView, state: State, proposal: Proposal, used_gpus: Counter[str]) -> bool:
        """Start `job` on GPUs of borrowers, the last to start first. No job is stopped if that is not
        enough.
        """
        stopped: list[JobView] = []
        for borrower in reversed(_borrowers(state)):
            if proposal.placement(borrower) is None:
                continue
            proposal.stop(borrower)
            stopped.append(borrower)
            if proposal.start(job) is not None:
                break
        started = proposal.placement(job) is not None
        for borrower in reversed(stopped):  # a borrower continues if its GPUs were not needed
            if proposal.start(borrower) is None:
                used_gpus[borrower.tenant] -= borrower.requested
                self._queues.put(borrower)
        return started

    def _lend(self, state: State, proposal: Proposal, used_gpus: Counter[str]) -> None:
        """Start further jobs, each time one of the tenant that uses least of its quota."""
        # a heap of (use of the quota, GPUs held, order of submission, tenant, its waiting jobs)
        needy: list[tuple[float, int, int, str, Ranking]] = []

        def push(tenant: str, queue: Ranking) -> None:
            job = next(queue.walk(proposal.fits), None)
            if job is not None:
                quota = state.quota(tenant)
                share = used_gpus[tenant] / quota if quota else inf
                heappush(needy, (share, used_gpus[tenant], job.order, tenant, queue))

        for tenant, queue in self._queues.waiting():
            push(tenant, queue)
        while needy:
            _, _, order, tenant, queue = heappop(needy)
            job = next(queue.walk(proposal.fits), None)
            if job is not None and job.order != order:
                push(tenant, queue)  # the job that the entry was for no longer fits
            elif job is not None and proposal.start(job) is not None:
                self._queues.take(job)
                used_gpus[tenant] += job.requested
                push(tenant, queue)


def _borrowers(state: State) -> list[JobView]:
    """The running jobs that exceed their tenant's quota, in order of their start."""
    guaranteed_gpus, borrowers = Counter[str](), []
    for job in state.running:
        if guaranteed_gpus[job.tenant] + job.gpus <= state.quota(job.tenant):
            guaranteed_gpus[job.tenant] += job.gpus
        else:
            borrowers.append(job)
    return borrowers
