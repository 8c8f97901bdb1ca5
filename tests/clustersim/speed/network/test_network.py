"""Runs in which the speed of a job depends on its placement and on the traffic of other jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster, Placement
from clustersim.cluster.networks import NETWORKS
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.jobs import ActiveJob
from clustersim.records import MemoryRecorder
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.speed import RunningSpeeds, Speed, speed_for
from clustersim.speed.network.layout import LayoutTimes, demand_of, layout_of, uplinks
from policies.fifo_skip import FifoSkip
from tests.builders import Acts, free_setup, gpt3
from tests.effort import examples
from traces.job import Job


def fabric(network: str, oversubscription: float = 4.0, nodes: int = 12, leaf: int = 3) -> Cluster:
    group = NodeGroup(
        "a", nodes, 8, "a100", "dgx-a100-80gb", nodes_per_leaf=leaf,
        leaf_uplink_bytes_per_s=leaf * 200e9 / oversubscription,
    )  # fmt: skip
    return Cluster.of([group], network)


@cache
def speed_of(cluster: Cluster) -> Speed:
    return speed_for(cluster, "3d")


def simulated(
    jobs: Sequence[Job], cluster: Cluster, scheduler: Scheduler | None = None, placement: str = "pack"
) -> MemoryRecorder:
    setup = free_setup(cluster, scheduler or FifoSkip(), speed=speed_of(cluster), placement=placement)
    return Simulation(sorted(jobs, key=lambda job: job.submit_s), setup).run()


def starting(places: Mapping[str, Placement]) -> Acts:
    """Each job is started at once on the nodes of its entry."""

    def act(state: State, proposal: Proposal) -> None:
        for job in list(state.pending):
            placement = places[job.id]
            proposal.start(job, sum(count for _, count in placement), on=placement)

    return Acts(act)


def spans(first: int, nodes: int) -> Placement:
    return tuple((node, 8) for node in range(first, first + nodes))


rows_of_jobs = st.lists(
    st.tuples(st.integers(0, 500), st.sampled_from((1, 4, 8, 16, 32)), st.integers(1, 400)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(rows_of_jobs, st.sampled_from(("pack", "any", "spread", "topology", "buddy")))
@settings(max_examples=examples(40), deadline=None, phases=[Phase.generate])
def test_ideal_is_what_a_shape_is_and_tiers_never_faster(
    rows: list[tuple[int, int, int]], placement: str
) -> None:
    jobs = [gpt3(str(i), float(s), gpus, n) for i, (s, gpus, n) in enumerate(rows)]
    shape = simulated(jobs, Cluster.parse("n12g8"), placement=placement)
    if placement != "topology":  # it knows of leaves that a shape does not have
        ideal = simulated(jobs, fabric("ideal"), placement=placement)
        assert (ideal.events, ideal.jobs, ideal.snapshots) == (shape.events, shape.jobs, shape.snapshots)
    alone = {(event.job_id, event.gpus): event.unit_s for event in shape.events if event.event == "start"}
    for network in ("tiers", "contention"):
        recorder = simulated(jobs, fabric(network), placement=placement)
        assert {record.state for record in recorder.jobs} == {"finished"}
        for event in recorder.events:
            if event.event == "start" and (event.job_id, event.gpus) in alone:
                assert event.unit_s >= alone[event.job_id, event.gpus] * (1 - 1e-12)


@given(st.integers(2, 12), st.integers(0, 5), st.sampled_from((1.0, 2.0, 6.0, 40.0)))
@settings(max_examples=examples(30), deadline=None)
def test_contention_with_one_job_is_tiers(nodes: int, first: int, oversubscription: float) -> None:
    first = min(first, 12 - nodes)
    job, places = gpt3("a", 0.0, 8 * nodes, 1000), {"a": spans(first, nodes)}
    tiers, contention = (
        simulated([job], fabric(name, oversubscription), starting(places)) for name in ("tiers", "contention")
    )
    assert tiers.events == contention.events


def test_two_jobs_share_an_uplink_while_both_run() -> None:
    """Each job has four nodes under a leaf whose uplinks carry the traffic of one node, and four under
    another leaf. A ring leaves each leaf once: a job alone gets its full demand, each of two jobs half of it.
    """
    cluster = fabric("contention", 8.0, nodes=24, leaf=8)
    places = {"a": spans(4, 8), "b": (*spans(0, 4), *spans(16, 4))}
    jobs = [gpt3("a", 0.0, 64, 2000), gpt3("b", 600.0, 64, 500)]
    recorder = simulated(jobs, cluster, starting(places))
    speed = speed_of(cluster)
    curve = speed.curve(jobs[0])
    plan = curve.training[64]
    assert (plan.pp, plan.gpus) == (1, 64)
    demand = demand_of(cluster, places["a"], plan, 25e9)
    layout = layout_of(cluster, "a100", places["a"], plan, demand, uplinks(cluster))
    times = LayoutTimes(speed).of(curve, 64, layout)
    assert times is not None
    alone, together = times.unit_s(), times.unit_s(2.0)
    assert together > alone * 1.001
    log = [(event.time_s, event.event, event.job_id, event.unit_s) for event in recorder.events]
    b_done = 600.0 + 500 * together
    a_done = b_done + (2000 - 600.0 / alone - 500) * alone
    expected = [
        (0.0, "submit", "a"), (0.0, "start", "a", alone), (600.0, "submit", "b"),
        (600.0, "start", "b", together), (600.0, "rate", "a", together), (b_done, "finish", "b"),
        (b_done, "rate", "a", alone), (a_done, "finish", "a"),
    ]  # fmt: skip
    assert len(log) == len(expected)
    for found, wanted in zip(log, expected, strict=True):
        assert found[1:3] == wanted[1:3]
        assert found[0] == pytest.approx(wanted[0], rel=1e-9)
        if len(wanted) == 4:
            assert found[3] == pytest.approx(wanted[3], rel=1e-9)


def test_a_tensor_parallel_group_is_not_parted() -> None:
    """Under an ideal network `any` takes any free GPUs; in a network it keeps tp groups together."""
    jobs = [
        *(Job(f"d{i}", 0.0, gpus=1, duration_s=1e6) for i in range(12)),
        Job("x", 1.0, model="megatron-18.4b", global_batch=1024, iterations=5, gpus=32),
    ]
    cluster = fabric("tiers")
    speed = speed_of(cluster)
    tp = speed.curve(jobs[-1]).training[32].tp
    assert tp > 1

    def one_each(state: State, proposal: Proposal) -> None:
        """As fifo, but the single GPUs go to one node each."""
        for i, job in enumerate(list(state.pending)):
            proposal.start(job, on=((i, 1),) if job.requested == 1 else None)

    recorder = Simulation(jobs, free_setup(cluster, Acts(one_each), speed=speed, placement="any")).run()
    events = {e.job_id: e for e in recorder.events if e.event == "start"}
    assert all(count % tp == 0 for _, count in events["x"].placement)


def test_times_in_a_layout_are_told_apart_by_framework() -> None:
    """Of two jobs with the same plan on the same nodes, eager code stays the slower one, in either order."""
    cluster, layouts = fabric("tiers"), LayoutTimes(speed_of(fabric("tiers")))
    speed, places = speed_of(cluster), tuple((node, 4) for node in range(4))
    times = {}
    for framework in ("eager", "te"):
        curve = speed.curve(replace(gpt3("a", 0.0, 16, 10), framework=framework))
        demand = demand_of(cluster, places, curve.training[16], 25e9)
        layout = layout_of(cluster, "a100", places, curve.training[16], demand, uplinks(cluster))
        found = layouts.of(curve, 16, layout)
        assert found is not None
        times[framework] = found.unit_s() / curve.unit_s[16], curve.unit_s[16], curve.plans[16]
    assert times["eager"][2] == times["te"][2], "the case needs equal plans"
    assert times["eager"][0] * times["eager"][1] > 1.02 * times["te"][0] * times["te"][1]


def test_every_network_model_says_how_fast_jobs_are() -> None:
    """Jobs run on a network under a model by which speeds depend on the placement, and under no other."""
    for name, model in NETWORKS.items():
        cluster = fabric(name)
        speeds = RunningSpeeds[ActiveJob](cluster, speed_of(cluster))
        assert (speeds.network is not None) == model.by_placement
