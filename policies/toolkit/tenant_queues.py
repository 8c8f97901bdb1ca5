"""Waiting jobs by tenant, for policies that share a cluster between tenants."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.scheduler import JobView, Ranking, State

__all__ = ["TenantQueues"]


class TenantQueues:
    """Each tenant's waiting jobs in order of submission, as a draft of the next decision changes them.

    `update` first in every decision; then `take` every job that starts in the draft and `put` every job that
    stops.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Ranking] = {}  # by tenant, in order of appearance

    def update(self, state: State) -> None:
        """Take in what has happened since the last decision."""
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                self.put(event.job)
        if sum(map(len, self._queues.values())) != len(state.pending):  # jobs stopped, and not by the policy
            self._queues = {}
            for job in state.pending:
                self.put(job)

    def put(self, job: JobView) -> None:
        self._queues.setdefault(job.tenant, Ranking(_submission)).add(job)

    def take(self, job: JobView) -> None:
        self._queues[job.tenant].remove(job)

    def waiting(self) -> Iterator[tuple[str, Ranking]]:
        """The tenants that have waiting jobs, and those jobs."""
        return ((tenant, queue) for tenant, queue in self._queues.items() if len(queue))


def _submission(job: JobView) -> int:
    return job.order
