"""The jobs that changed since the last decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic

from clustersim.scheduler.internal import AnyView

__all__ = ["JobChanges"]


class JobChanges(Generic[AnyView]):
    """Notes the jobs that the policy's last proposal changed, or the engine since, and that no event tells.

    `read_in`: the decision in which the `JobTable` was last brought up to date; -1 before the first.
    """

    __slots__ = ("_noted_jobs", "_unread_jobs", "read_in")

    def __init__(self) -> None:
        self._noted_jobs: dict[AnyView, None] | None = None  # None in the first decision that asks
        self._unread_jobs: dict[AnyView, None] = {}  # changed in decisions after `read_in`
        self.read_in = -1

    def add(self, job: AnyView) -> None:
        """The engine has changed a running job, and no event tells it."""
        if self._noted_jobs is not None:
            self._noted_jobs[job] = None

    def jobs(self, jobs_of_events: dict[AnyView, None], all_jobs: Iterable[AnyView]) -> Collection[AnyView]:
        """The jobs that changed since the last decision; `all_jobs` of the system in the first one that asks.
        `jobs_of_events`: of the events since the last decision.
        """
        noted_jobs = dict.fromkeys(all_jobs) if self._noted_jobs is None else self._noted_jobs
        return {**noted_jobs, **jobs_of_events}.keys()

    def take_unread(self, decision: int, changed_jobs: Iterable[AnyView]) -> Iterable[AnyView]:
        """All jobs that changed since the table was last brought up to date, which it is to be now.
        `changed_jobs`: those since the last decision.
        """
        unread_jobs, self._unread_jobs, self.read_in = self._unread_jobs, {}, decision
        return {**unread_jobs, **dict.fromkeys(changed_jobs)} if unread_jobs else changed_jobs

    def end_decision(
        self, decision: int, jobs_of_events: dict[AnyView, None], jobs_of_proposal: Iterable[AnyView]
    ) -> None:
        """The policy has answered with a proposal for these jobs, which is to be enacted."""
        if -1 < self.read_in != decision and self._noted_jobs is not None:
            self._unread_jobs.update(self._noted_jobs)
            self._unread_jobs.update(jobs_of_events)
        self._noted_jobs = dict.fromkeys(jobs_of_proposal)
