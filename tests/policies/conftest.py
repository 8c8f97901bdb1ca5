"""Runs of a policy on jobs with the speeds and checkpoint sizes that a test states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.scheduler import Scheduler
from clustersim.speed import Curve, SpeedOnOneType
from clustersim.testing import Case, Outcome
from traces.job import Job, submission_order


class StatedSpeed(SpeedOnOneType):
    """A throughput table, and the number of parameters of each model, which makes restarts slow."""

    def __init__(self, cluster: Cluster, table: Any, parameters: Mapping[str, float]):
        super().__init__(cluster, None, table)
        self.parameters = parameters

    def curve(self, job: Job) -> Curve:
        return replace(super().curve(job), parameters=self.parameters.get(job.model or "", 0.0))


class Bench:
    """A cluster, the models that run on it, and what restarts cost."""

    def __init__(
        self, shape: str, table: Any, parameters: Mapping[str, float] | None = None,
        overheads: Overheads | None = None, placement: str = "pack",
    ):  # fmt: skip
        self.cluster, self.table, self.parameters = Cluster.parse(shape), table, parameters or {}
        self.overheads, self.placement = overheads or Overheads.none(), placement

    def run(self, jobs: Sequence[Job], scheduler: Scheduler) -> Outcome:
        speed = StatedSpeed(self.cluster, self.table, self.parameters)
        setup = RunSetup(
            cluster=self.cluster,
            scheduler=scheduler,
            speed=speed,
            overheads=self.overheads,
            placement=self.placement,
        )
        recorder = Simulation(submission_order(jobs), setup).run()
        case = Case("bench", tuple(jobs), self.cluster, self.table, self.overheads, self.placement)
        return Outcome(case, tuple(recorder.events), tuple(recorder.jobs), speed)


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench
