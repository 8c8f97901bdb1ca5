"""The speed of a running job is a product of factors, each of which may be absent."""

from __future__ import annotations

from clustersim.cluster import SharedPlacement, load_cluster
from clustersim.jobs import ActiveJob
from clustersim.speed import (
    Interference,
    NodeSpeeds,
    RunningSpeeds,
    Slowdown,
    StepTimes,
    Variability,
    speed_for,
)
from traces.job import Job

CLUSTER = load_cluster("n2g4")
SPEED = speed_for(CLUSTER, "3d")
SLOW_NODE = NodeSpeeds(Variability(factors={"other": [1.0, 3.0]}), CLUSTER)


def active_job(name: str, gpus: int = 1) -> ActiveJob:
    job = Job(name, 0.0, gpus=gpus, duration_s=100.0)
    offer = SPEED.offers(job)[0]
    return ActiveJob(job, 0, offer.curve, offer.requested, offer.note)


def test_a_job_alone_is_as_fast_as_predicted() -> None:
    speeds = RunningSpeeds[ActiveJob](CLUSTER, SPEED)
    job, gone = active_job("a", 4), active_job("b")
    assert speeds.independent
    assert speeds.move({job: ((0, 4),), gone: None}) == {job: 1.0}
    assert speeds.move({}) == {}


def test_steps_and_nodes_multiply_what_is_predicted() -> None:
    speeds = RunningSpeeds[ActiveJob](
        CLUSTER, SPEED, slowdown=Slowdown(StepTimes(slowdown=1.5), SLOW_NODE, seed=0)
    )
    job = active_job("a", 2)
    assert speeds.independent
    assert speeds.move({job: ((0, 2),)}) == {job: 1.5}
    assert speeds.move({job: ((0, 1), (1, 1))}) == {job: 4.5}


def test_a_job_beside_others_is_slowed_down_until_they_leave() -> None:
    speeds = RunningSpeeds[ActiveJob](
        CLUSTER,
        SPEED,
        sharing=Interference(slowdown=2.0),
        slowdown=Slowdown(StepTimes(slowdown=1.5), SLOW_NODE, seed=0),
    )
    first, second, apart = active_job("a"), active_job("b"), active_job("c")
    half = SharedPlacement(((1, 1),), 0, 500_000)
    assert not speeds.independent
    assert speeds.move({first: half, apart: ((0, 1),)}) == {first: 4.5, apart: 1.5}
    assert speeds.move({second: half}) == {second: 9.0, first: 9.0}
    speeds.forget(second)
    assert speeds.move({}) == {first: 4.5}
    assert speeds.move({first: ((0, 1),)}) == {first: 1.5}
