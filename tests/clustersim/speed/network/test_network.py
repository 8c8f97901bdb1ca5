"""The layout of a placement, the time of an iteration in it, and runs in which speeds depend on both."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster, Placement, load_cluster
from clustersim.cluster.networks import NETWORKS
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.jobs import ActiveJob
from clustersim.records import MemoryRecorder
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.speed import Curve, RunningSpeeds, Speed, SpeedOnOneType, speed_for
from clustersim.speed.network.layout import (
    Layout,
    LayoutTimes,
    demand_of,
    layout_of,
    nodes_apart,
    system_at,
    uplinks,
    used_part,
)
from itertime import load_system
from itertime.prediction import evaluate
from itertime.spec import Plan, PlanBatch, PlanOptions
from policies.fifo_skip import FifoSkip
from tests.builders import Acts, free_setup, gpt3
from tests.effort import examples
from traces.job import Job

# Layouts


NIC = 200e9  # of a DGX A100
GPU_NIC = NIC / 8
KINDS = (
    ("gpt3-1.3b", 512, "vtrain"),
    ("megatron-18.4b", 1024, "vtrain"),
    ("megatron-18.4b", 1024, "data-parallel"),
)


def fabric(
    leaf: int, oversubscription: float, nodes: int = 128, spine: int | None = None, network: str = "tiers"
) -> Cluster:
    group = NodeGroup(
        "a", nodes, 8, "a100", "dgx-a100-80gb", nodes_per_leaf=leaf,
        leaf_uplink_bytes_per_s=leaf * NIC / oversubscription, nodes_per_spine=spine,
        spine_uplink_bytes_per_s=spine * NIC / (2 * oversubscription) if spine else None,
    )  # fmt: skip
    return Cluster.of([group], network)


@cache
def speed_of(planner: str) -> Speed:
    return speed_for(fabric(16, 4), planner)


def curve_of(model: str, batch: int, planner: str) -> Curve:
    return speed_of(planner).curve(Job("j", 0.0, model=model, global_batch=batch, iterations=10))


WIDE = Plan(tp=8, pp=2, dp=100, micro_batch=1, global_batch=800)  # stages of more nodes than any leaf has
NARROW = Plan(tp=1, pp=1, dp=64, micro_batch=1, global_batch=64)  # one ring through neighbours


def layout(cluster: Cluster, placement: tuple[tuple[int, int], ...], plan: Plan = WIDE) -> Layout:
    demand = demand_of(cluster, placement, plan, GPU_NIC)
    return layout_of(cluster, "a100", placement, plan, demand, uplinks(cluster))


def test_layouts_by_hand() -> None:
    cluster = fabric(4, 2.0, nodes=16, spine=8)  # uplinks of 400 GB/s a leaf, 400 GB/s a block
    assert layout(cluster, ((3, 2),)) == Layout("a100", 8), "within a node NICs do not matter"
    assert layout(cluster, ((0, 8), (3, 8))) == Layout("a100", 8), "nor do uplinks within a leaf"
    assert layout(cluster, ((0, 2), (1, 4), (2, 2))) == Layout("a100", 2)
    assert layout(cluster, ((0, 8), (1, 4), (2, 8))) == Layout("a100", 8), "packed, with a rest"
    assert layout(cluster, ((0, 8), (1, 4), (4, 8))).gpus_per_node == 4, "uneven where it crosses leaves"
    assert layout(cluster, ((0, 8), (1, 8), (4, 8))) == Layout("a100", 8, 1, 1, 1.0), (
        "two of four nodes: enough"
    )
    three = layout(cluster, ((0, 8), (1, 8), (2, 8), (4, 8)))
    assert three == Layout("a100", 8, 1, 1, 1.5), "600 of 400 GB/s, and one node alone under its leaf"
    whole = layout(cluster, tuple((node, 8) for node in range(8)))
    assert whole == Layout("a100", 8, 4, 4, 2.0)
    assert layout(cluster, tuple((node, 8) for node in range(16))) == Layout("a100", 8, 4, 4, 4.0), (
        "a block sends 1,600 GB/s up 400 GB/s"
    )
    assert layout(cluster, ((0, 1), (4, 1))) == Layout("a100", 1, 1, 1, 1.0)


def test_demand_by_hand() -> None:
    cluster = fabric(4, 2.0, nodes=16, spine=8)
    assert demand_of(cluster, ((0, 8), (3, 8)), WIDE, GPU_NIC) == {}
    assert demand_of(cluster, ((0, 8), (5, 4)), WIDE, GPU_NIC) == {0: NIC, 1: NIC / 2}
    assert demand_of(cluster, ((0, 8), (5, 4), (9, 8)), WIDE, GPU_NIC) == {
        0: NIC, 1: NIC / 2, 2: NIC, -1: 1.5 * NIC, -2: NIC,
    }  # fmt: skip
    whole = tuple((node, 8) for node in range(16))
    assert demand_of(cluster, whole, NARROW, GPU_NIC) == dict.fromkeys((0, 1, 2, 3, -1, -2), NIC)
    assert layout(cluster, whole, NARROW) == Layout("a100", 8, 4, 1, 1.0), "a ring crosses a leaf once"
    assert uplinks(cluster) == {0: 4e11, 1: 4e11, 2: 4e11, 3: 4e11, -1: 4e11, -2: 4e11}


def test_how_far_neighbours_in_a_ring_are_apart() -> None:
    assert nodes_apart(NARROW, 8) == 1
    assert nodes_apart(WIDE, 8) == 100
    assert nodes_apart(Plan(tp=4, pp=4, dp=4, micro_batch=1, global_batch=16), 8) == 2
    assert nodes_apart(Plan(tp=8, pp=1, dp=4, micro_batch=1, global_batch=4), 2) == 4
    outer = Plan(tp=4, pp=6, dp=4, micro_batch=1, global_batch=4, rank_order="tp-cp-pp-dp")
    assert nodes_apart(outer, 8) == 3


def test_rings_within_a_worker_are_as_far_apart_as_its_part_of_a_stage() -> None:
    whole = Plan(tp=4, pp=4, dp=8, micro_batch=1, global_batch=16)
    assert nodes_apart(whole, 8) == 4
    assert nodes_apart(replace(whole, options=PlanOptions(workers=4, local_steps=10)), 8) == 1
    pipelines = replace(whole, rank_order="tp-cp-pp-dp", options=PlanOptions(workers=8, local_steps=10))
    assert nodes_apart(pipelines, 8) == 1, "a worker has no data-parallel ring"
    assert nodes_apart(replace(pipelines, options=PlanOptions(workers=4, local_steps=10)), 8) == 2


def test_gpus_beyond_the_plan_are_the_scattered_ones() -> None:
    assert used_part(((0, 4), (1, 8)), 8) == ((1, 8),)
    assert used_part(((0, 4), (1, 8), (2, 4)), 12) == ((0, 4), (1, 8))
    assert used_part(((0, 3), (1, 3)), 6) == ((0, 3), (1, 3))


@pytest.mark.parametrize(("model", "batch", "planner"), KINDS)
def test_packed_under_one_leaf_is_ideal_to_the_last_bit(model: str, batch: int, planner: str) -> None:
    curve, times = curve_of(model, batch, planner), LayoutTimes(speed_of(planner))
    for gpus, seconds in curve.unit_s.items():
        assert times.of(curve, gpus, Layout("a100", 8)).unit_s() == seconds


def test_a_packed_plan_that_leaves_a_node_in_part_is_ideal_too() -> None:
    """The best plan of gpt3-13b on 24 GPUs uses 20: two nodes and half of one."""
    job = Job("j", 0.0, model="gpt3-13b", global_batch=1024, iterations=10, gpus=24)
    plan = speed_of("vtrain").curve(job).training[24]
    assert plan.gpus == 20
    part = used_part(((0, 8), (1, 8), (2, 8)), plan.gpus)
    assert part == ((0, 8), (1, 8), (2, 4))
    assert layout(fabric(16, 4), part, plan) == Layout("a100", 8)


@given(st.sampled_from(KINDS), st.sampled_from((16, 64, 256)), st.sampled_from((1, 2, 4, 8)),
       st.integers(1, 4), st.floats(1.0, 16.0), st.floats(1.0, 3.0))  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_scattered_is_never_faster_and_less_bandwidth_never_helps(
    kind: tuple[str, int, str], gpus: int, per_node: int, per_leaf: int, ratio: float, more: float
) -> None:
    curve, times = curve_of(*kind), LayoutTimes(speed_of(kind[2]))
    if gpus // per_node <= per_leaf:
        return
    plan = curve.training[gpus]
    sending = min(nodes_apart(plan, per_node), per_leaf)
    near = times.of(curve, gpus, Layout("a100", per_node)).unit_s()
    across = times.of(curve, gpus, Layout("a100", per_node, per_leaf, sending, ratio))
    far, farther = across.unit_s(), across.unit_s(ratio * more)
    rounding = 1 - 1e-12
    assert near >= curve.unit_s[gpus] * rounding
    assert far >= near * rounding
    assert farther >= far * rounding


@given(st.sampled_from(KINDS), st.sampled_from((64, 256)), st.floats(1.0, 8.0))
@settings(max_examples=examples(40), deadline=None)
def test_interpolated_times_are_those_of_itertime_within_half_a_percent(
    kind: tuple[str, int, str], gpus: int, more: float
) -> None:
    curve, times = curve_of(*kind), LayoutTimes(speed_of(kind[2]))
    shape = Layout("a100", 8, 2, min(nodes_apart(curve.training[gpus], 8), 2), 2.0)
    planner = speed_of(kind[2]).planner_of("a100")
    assert planner is not None
    assert curve.model is not None
    system = system_at(planner.system, shape, 2.0 * more)
    exact = evaluate(curve.model, PlanBatch.of([curve.training[gpus]]), system, planner.profile)
    found = times.of(curve, gpus, shape).unit_s(2.0 * more)
    assert found == pytest.approx(float(exact.iteration_s[0]), rel=5e-3)


def test_the_system_of_a_layout() -> None:
    system = load_system("a100-80gb-800g")
    seen = system_at(system, Layout("a100", 2, 3, 2, 4.0), 6.0)
    assert (seen.gpus_per_node, seen.nics_per_node, seen.nic_bytes_per_s) == (2, 1, 25e9)
    assert (seen.nodes_per_leaf, seen.leaf_oversubscription) == (3, 9.0)
    assert system_at(system, Layout("a100", 8), 1.0) == system
    small = speed_for(load_cluster("n4g2", "a100-80gb-800g"), "3d").system_of("a100")
    assert small == system_at(system, Layout("a100", 2), 1.0), "planned with the NICs that it then has"


def test_the_traffic_of_jobs_in_tables_is_unknown() -> None:
    cluster = fabric(4, 8.0)
    speed = SpeedOnOneType(cluster, None, {("m", 8): {16: 0.5}}, "a100")
    curve = speed.curve(Job("j", 0.0, model="m", global_batch=8, iterations=10))
    assert LayoutTimes(speed).of(curve, 16, Layout("a100", 1, 1, 1, 9.0)) is None


# Runs


def leaves(network: str, oversubscription: float = 4.0, nodes: int = 12, leaf: int = 3) -> Cluster:
    return fabric(leaf, oversubscription, nodes, network=network)


@cache
def speed_on(cluster: Cluster) -> Speed:
    return speed_for(cluster, "vtrain")


def simulated(
    jobs: Sequence[Job], cluster: Cluster, scheduler: Scheduler | None = None, placement: str = "pack"
) -> MemoryRecorder:
    setup = free_setup(cluster, scheduler or FifoSkip(), speed=speed_on(cluster), placement=placement)
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
        ideal = simulated(jobs, leaves("ideal"), placement=placement)
        assert (ideal.events, ideal.jobs, ideal.snapshots) == (shape.events, shape.jobs, shape.snapshots)
    alone = {(event.job_id, event.gpus): event.unit_s for event in shape.events if event.event == "start"}
    for network in ("tiers", "contention"):
        recorder = simulated(jobs, leaves(network), placement=placement)
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
        simulated([job], leaves(name, oversubscription), starting(places)) for name in ("tiers", "contention")
    )
    assert tiers.events == contention.events


def test_two_jobs_share_an_uplink_while_both_run() -> None:
    """Each job has four nodes under a leaf whose uplinks carry the traffic of one node, and four under
    another leaf. A ring leaves each leaf once: a job alone gets its full demand, each of two jobs half of it.
    """
    cluster = leaves("contention", 8.0, nodes=24, leaf=8)
    places = {"a": spans(4, 8), "b": (*spans(0, 4), *spans(16, 4))}
    jobs = [gpt3("a", 0.0, 64, 2000), gpt3("b", 600.0, 64, 500)]
    recorder = simulated(jobs, cluster, starting(places))
    speed = speed_on(cluster)
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
    cluster = leaves("tiers")
    speed = speed_on(cluster)
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
    cluster, layouts = leaves("tiers"), LayoutTimes(speed_on(leaves("tiers")))
    speed, places = speed_on(cluster), tuple((node, 4) for node in range(4))
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
        cluster = leaves(name)
        speeds = RunningSpeeds[ActiveJob](cluster, speed_on(cluster))
        assert (speeds.network is not None) == model.by_placement
