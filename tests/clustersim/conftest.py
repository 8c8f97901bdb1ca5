"""A policy that runs the steps of a test at given times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from clustersim.scheduler import JobView, Proposal, Scheduler, State

Step = Callable[[Proposal, Mapping[str, JobView]], object]


class Script(Scheduler):
    """At the times of `steps` calls a step with a fresh proposal and all jobs by id, else changes nothing."""

    def __init__(self, steps: Mapping[float, Step], declines: tuple[str, ...] = ()):
        self.steps, self.declines = steps, declines
        self.seen: list[tuple[float, list[tuple[str, str | None]]]] = []
        self.known: dict[str, JobView] = {}

    def admit(self, job: JobView, state: State) -> bool:
        self.known[job.id] = job
        return job.id not in self.declines

    def schedule(self, state: State) -> Proposal:
        self.seen.append((state.now, [(e.kind, e.job.id if e.job else None) for e in state.events]))
        proposal = state.proposal()
        if state.now in self.steps:
            self.steps[state.now](proposal, self.known)
        return proposal


@pytest.fixture(scope="session")
def script() -> type[Script]:
    return Script
