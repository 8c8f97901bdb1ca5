"""Waiting jobs by tenant, for policies that share a cluster between tenants."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.scheduler import JobView, Ranking, State

__all__ = ["TenantQueues"]


class TenantQueues:
    """Each tenant's waiting jobs in order of submission, kept up to date while a draft is made.

    Call `update` first in every decision, then `take` for every job that starts in the draft and `put` for
    every job that stops.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Ranking] = {}  # by tenant, in order of appearance

    def update(self, state: State) -> None:
        """Follow the events since the last decision."""
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                self.put(event.job)
        if sum(map(len, self._queues.values())) != len(
            state.pending
        ):  # more stopped than the policy asked for
            self._queues = {}
            for job in state.pending:
                self.put(job)

    def put(self, job: JobView) -> None:
        """Add a job that waits."""
        self._queues.setdefault(job.tenant, Ranking(_submission)).add(job)

    def take(self, job: JobView) -> None:
        """Remove a job that starts."""
        self._queues[job.tenant].remove(job)

    def waiting(self) -> Iterator[tuple[str, Ranking]]:
        """Each tenant that has waiting jobs, with its queue."""
        return ((tenant, queue) for tenant, queue in self._queues.items() if len(queue))


def _submission(job: JobView) -> int:
    return job.order
