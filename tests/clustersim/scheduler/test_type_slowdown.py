"""Waiting for a GPU type that is fast enough, under policies that name no type."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.failures import Maintenance
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.speed import SpeedByType, SpeedOnOneType
from experiments.type_slowdown import table
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import Acts, free_setup
from tests.places import ROOT
from traces.job import Job

CLUSTER = Cluster.of((NodeGroup("new", 1, 8, "new"), NodeGroup("old", 1, 8, "old")))
RATES = {"new": {8: 4.0}, "old": {8: 1.0}}
"""Iterations/s on 8 GPUs: the old type is four times slower."""
SPEED = SpeedByType(
    {name: SpeedOnOneType(Cluster(1, 8), None, {("m", 1): rates}, name) for name, rates in RATES.items()}
)


def job(name: str, submit_s: float, iterations: float) -> Job:
    return Job(name, submit_s, model="m", global_batch=1, gpus=8, iterations=iterations)


def started(
    policy: Scheduler, type_slowdown: float, *jobs: Job, calendar: tuple[dict[str, object], ...] = ()
) -> dict[str, tuple[float, str]]:
    """When and on which type every job first starts."""
    maintenance = Maintenance.of(calendar, CLUSTER.nodes)
    setup = free_setup(CLUSTER, policy, speed=SPEED, type_slowdown=type_slowdown, maintenance=maintenance)
    events = Simulation(jobs, setup).run().events
    return {
        event.job_id: (event.time_s, CLUSTER.type_of(event.placement[0][0]))
        for event in events
        if event.event == "start"
    }


@pytest.mark.parametrize("policy", [Fifo, Srtf])
@pytest.mark.parametrize(
    ("type_slowdown", "second"),
    [(inf, (0.0, "old")), (4.0, (0.0, "old")), (3.999, (10.0, "new")), (1.0, (10.0, "new"))],
)
def test_a_job_waits_for_a_type_that_is_fast_enough(
    policy: type[Scheduler], type_slowdown: float, second: tuple[float, str]
) -> None:
    """`a` holds the new type for 40 iterations, 10 s. `b` would take four times as long on the old one."""
    found = started(policy(), type_slowdown, job("a", 0.0, 40.0), job("b", 0.0, 40.0))
    assert found == {"a": (0.0, "new"), "b": second}


def test_a_policy_that_names_the_type_gets_it() -> None:
    def start_on_the_old(state: State, proposal: Proposal) -> None:
        for waiting in state.pending:
            proposal.start(waiting, gpu_type="old")

    assert started(Acts(start_on_the_old), 1.0, job("a", 0.0, 40.0)) == {"a": (0.0, "old")}


def test_a_type_that_is_gone_for_good_is_not_waited_for() -> None:
    remove = ({"at_s": 5.0, "remove": 0},)
    found = started(Fifo(), 2.0, job("a", 0.0, 4.0), job("b", 6.0, 4.0), calendar=remove)
    assert found == {"a": (0.0, "new"), "b": (6.0, "old")}


def test_the_page_shows_what_the_study_prints(shared_reference: Path) -> None:
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert table(shared_reference / "peers" / "gavel_runs").strip() in text
