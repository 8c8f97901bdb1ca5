"""Collectives: the ring and tree formulas, the sharing of NICs, and a published curve between two nodes."""

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.costs.network import (
    RoutedTokens,
    all_reduce_between_sites_s,
    combine_s,
    dispatch_s,
    distinct_parts,
)
from itertime.costs.network.collectives import (
    BULK_BYTES,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    p2p_s,
    reduce_scatter_s,
    ring_share,
)
from itertime.costs.network.expert_dispatch import NOTIFY_S
from itertime.costs.network.group import Fabric, Group, ranks_together
from itertime.spec import Site, System, load_profile, load_system, profile_of
from tests.places import ROOT
from tests.tables import table_rows

PROFILE = load_profile("a100-80gb")
SYSTEM = load_system("dgx-a100-80gb")
IDEAL = dataclasses.replace(
    SYSTEM, network_latency_s=0, gpu_nic_bytes_per_s=1e12, site=Site(network_efficiency=1)
)
COLLECTIVES = (all_reduce_s, reduce_scatter_s, all_gather_s, all_to_all_s)


def over(system: System) -> Fabric:
    return Fabric(system, PROFILE)


sizes = st.floats(1, 1e11)
nodes = st.integers(1, 512)
locals_ = st.sampled_from([1, 2, 4, 8])
sharers = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_or_no_bytes_takes_no_time(collective) -> None:
    assert collective(1e9, Group(1, 1), over(SYSTEM)) == 0
    assert collective(0, Group(64, 8), over(SYSTEM)) == 0
    assert collective(0, Group(8, 8), over(SYSTEM)) == 0
    assert p2p_s(0, True, over(SYSTEM)) == 0


def test_within_a_node_the_table_counts() -> None:
    table = PROFILE.collectives["all_reduce"]
    for i, ranks in enumerate(table.ranks):
        for j in (0, 7, 20):
            seconds = all_reduce_s(table.first_bytes * 2**j, Group(ranks, ranks), over(SYSTEM))
            assert seconds == pytest.approx(table.time_s[i][j], rel=1e-12)


def test_ring_between_nodes() -> None:
    """2 (N-1)/N S/B (Patarasuk and Yuan 2009), where the NICs are the bottleneck and latency is nothing."""
    for count in (2, 4, 16, 128):
        expected = 2 * (count - 1) / count * 1e9 / IDEAL.nic_bytes_per_s
        assert all_reduce_s(1e9, Group(count, 1), over(IDEAL)) == pytest.approx(expected, rel=1e-12)
        assert all_gather_s(1e9, Group(count, 1), over(IDEAL)) == pytest.approx(expected / 2, rel=1e-12)
        assert reduce_scatter_s(1e9, Group(count, 1), over(IDEAL)) == pytest.approx(expected / 2, rel=1e-12)


def test_the_slower_of_the_two_levels_counts() -> None:
    fast = dataclasses.replace(IDEAL, nic_bytes_per_s=1e15, gpu_nic_bytes_per_s=1e15)
    inside = all_reduce_s(1e9, Group(8, 8), over(fast))
    assert all_reduce_s(1e9, Group(64, 8), over(fast)) == pytest.approx(inside, rel=1e-4)
    slow = dataclasses.replace(IDEAL, nic_bytes_per_s=1e9)
    assert all_reduce_s(1e9, Group(64, 8), over(slow)) == pytest.approx(2 * 63 / 64, rel=1e-12)


def test_groups_share_the_nics_and_a_gpu_its_link() -> None:
    alone = all_reduce_s(1e9, Group(8, 1), over(IDEAL))
    assert all_reduce_s(1e9, Group(8, 1, 8), over(IDEAL)) == pytest.approx(8 * alone, rel=1e-12)
    narrow = dataclasses.replace(IDEAL, gpu_nic_bytes_per_s=IDEAL.nic_bytes_per_s / 8)
    assert all_reduce_s(1e9, Group(8, 1), over(narrow)) == pytest.approx(8 * alone, rel=1e-12)
    assert p2p_s(1e9, True, over(narrow)) == pytest.approx(1e9 / 25e9, rel=1e-12)


def test_all_to_all_between_nodes() -> None:
    """Of 16 ranks in 2 nodes, each sends half of its bytes to the other node, on the NICs that 8 share."""
    assert all_to_all_s(1e9, Group(16, 8), over(IDEAL)) == pytest.approx(
        8 * 0.5e9 / IDEAL.nic_bytes_per_s, rel=1e-12
    )
    slow = over(dataclasses.replace(IDEAL, network_latency_s=1e-3))
    messages = all_to_all_s(1e9, Group(64, 8), slow) - all_to_all_s(1e9, Group(64, 8), over(IDEAL))
    assert messages == pytest.approx(7e-3, rel=1e-9), "to the other nodes, one after the other"


@pytest.mark.parametrize(("ranks_per_node", "bus_gb_per_s"), [(1, 8.13), (2, 16.22)])
def test_published_rings_between_two_nodes(ranks_per_node: int, bus_gb_per_s: float) -> None:
    """Galvatron's profile of two nodes, where a pair of GPUs moves 8.13 GB/s; the GPU is not named."""
    galvatron = dataclasses.replace(IDEAL, gpu_nic_bytes_per_s=8.13e9)
    ranks = 2 * ranks_per_node
    seconds = all_reduce_s(1e9, Group(ranks, ranks_per_node), over(galvatron))
    assert 2 * (ranks - 1) / ranks / seconds == pytest.approx(bus_gb_per_s, rel=0.01)


@pytest.mark.parametrize(("nbytes", "measured_s"), table_rows("all-reduces of two p4de nodes"))
def test_published_all_reduce_between_two_p4de_nodes(nbytes: int, measured_s: float) -> None:
    """nccl-tests of awsome-distributed-training: 16 A100, two nodes of 400 Gb/s EFA; 8 bytes take 161 us.

    The two nodes exchange S bytes, not a ring's 15/8 S: more than a ring of these NICs could.
    """
    p4de = dataclasses.replace(
        SYSTEM, nic_bytes_per_s=50e9, network_latency_s=70e-6, collective_algorithms=("hierarchical",)
    )
    assert all_reduce_s(nbytes, Group(16, 8), over(p4de)) == pytest.approx(measured_s, rel=0.08)
    assert all_reduce_s(8, Group(16, 8), over(p4de)) == pytest.approx(161e-6, rel=0.06)


def test_each_algorithm_has_its_volume_and_its_depth() -> None:
    """One GPU a node, 8 nodes of 10 us a hop: volumes 7/4, 2 and 7/4 S; depths 14, 6 and 6 hops."""
    slow = dataclasses.replace(IDEAL, network_latency_s=10e-6, gpu_nic_bytes_per_s=IDEAL.nic_bytes_per_s)
    for name, volume, hops in (("ring", 7 / 4, 14), ("tree", 2, 6), ("hierarchical", 7 / 4, 6)):
        system = dataclasses.replace(slow, collective_algorithms=(name,))
        expected = volume * 1e9 / slow.nic_bytes_per_s + hops * 10e-6
        assert all_reduce_s(1e9, Group(8, 1), over(system)) == pytest.approx(expected, rel=1e-12)


def test_a_ring_whose_gpus_lie_apart_leaves_shared_nics_across_the_cpus() -> None:
    """Two or four of a node's GPUs with others between them: 32 GB/s together; not one GPU, not all."""
    shared = dataclasses.replace(
        IDEAL, nics_per_node=4, gpu_nic_bytes_per_s=100e9, collective_algorithms=("ring",)
    )
    for local in (2, 4):
        ranks, groups = 4 * local, 8 // local
        through_cpus = 2 * (ranks - 1) / ranks * 1e9 / (32e9 / groups)
        slower = all_reduce_s(1e9, Group(ranks, local, groups), over(shared))
        assert slower == pytest.approx(through_cpus, rel=1e-12)
        assert all_gather_s(1e9, Group(ranks, local, groups), over(shared)) == pytest.approx(slower / 2)
        assert all_reduce_s(1e9, Group(ranks, local, groups), over(IDEAL)) < slower
    for local in (1, 8):
        alike = [
            all_reduce_s(1e9, Group(4 * local, local, 8 // local), over(each)) for each in (shared, IDEAL)
        ]
        assert alike[0] == pytest.approx(alike[1], rel=0.2)  # IDEAL's may be a tree


def test_an_oversubscribed_leaf_slows_what_crosses_it() -> None:
    """8 nodes a leaf, uplinks for half: enough for one ring of neighbours, not for distant ones."""
    leaf = dataclasses.replace(IDEAL, nodes_per_leaf=8, leaf_oversubscription=2.0)
    alone = all_reduce_s(1e9, Group(16, 1), over(IDEAL))
    assert all_reduce_s(1e9, Group(16, 1), over(leaf)) == alone
    for stride, share in ((4, 1.0), (8, 0.5), (64, 0.5)):
        assert all_reduce_s(1e9, Group(16, 1, 1, stride), over(leaf)) == pytest.approx(alone / share)
        assert p2p_s(1e9, True, over(leaf), 1, stride) == pytest.approx(p2p_s(1e9, True, over(IDEAL)) / share)
    assert all_reduce_s(1e9, Group(8, 1), over(leaf)) == all_reduce_s(1e9, Group(8, 1), over(IDEAL))
    crossing = 2 * 8 / 15  # of 15 peers 8 are under the other leaf
    assert all_to_all_s(1e9, Group(16, 1), over(leaf)) == pytest.approx(
        crossing * all_to_all_s(1e9, Group(16, 1), over(IDEAL))
    )


def test_tiers_multiply_nothing_they_bound() -> None:
    """The tightest tier counts."""
    both = dataclasses.replace(
        IDEAL, nodes_per_leaf=4, leaf_oversubscription=2.0, nodes_per_spine=16, spine_oversubscription=8.0
    )
    for nodes, share in ((4, 1.0), (16, 1.0), (32, 1.0)):
        assert ring_share(nodes, 1, both) == share
    for nodes, stride, share in ((2, 4, 0.5), (2, 8, 0.5), (8, 4, 0.5), (32, 4, 0.5), (2, 16, 0.125)):
        assert ring_share(nodes, stride, both) == share
    # 36 trays a leaf are two racks: neighbours under it cross nothing, racks two apart do.
    racks = dataclasses.replace(RACK, nodes_per_leaf=36, leaf_oversubscription=4.0)
    assert (ring_share(2, 1, racks), ring_share(4, 2, racks)) == (1.0, 0.25)


def test_site_constants() -> None:
    worse = dataclasses.replace(IDEAL, site=Site(network_efficiency=0.5, all_reduce_multiplier=1.5))
    assert all_reduce_s(1e9, Group(8, 1), over(worse)) == pytest.approx(
        3 * all_reduce_s(1e9, Group(8, 1), over(IDEAL))
    )
    assert all_reduce_s(1e9, Group(8, 8), over(worse)) == pytest.approx(
        1.5 * all_reduce_s(1e9, Group(8, 8), over(IDEAL))
    )
    assert all_to_all_s(1e9, Group(8, 8), over(worse)) == all_to_all_s(1e9, Group(8, 8), over(IDEAL))


@given(sizes, sizes, nodes, locals_, sharers)
def test_more_bytes_take_no_less_time(one: float, other: float, count: int, local: int, groups: int) -> None:
    small, large = sorted((one, other))
    for collective in COLLECTIVES:
        times = collective(np.array([small, large]), Group(count * local, local, groups), over(SYSTEM))
        assert times[0] <= times[1] * (1 + 1e-12)
        assert np.isfinite(times).all()


@given(sizes, nodes, locals_, sharers)
def test_more_sharers_and_less_network_take_no_less_time(
    size: float, count: int, local: int, groups: int
) -> None:
    for collective in COLLECTIVES:
        alone = collective(size, Group(count * local, local, 1), over(SYSTEM))
        assert alone <= collective(size, Group(count * local, local, groups), over(SYSTEM))
        assert alone <= collective(size, Group(count * local, local, 1), over(SYSTEM.with_nic(400)))


@given(sizes, nodes)
def test_an_all_reduce_takes_no_longer_than_its_halves(size: float, count: int) -> None:
    whole = all_reduce_s(size, Group(count * 8, 8), over(IDEAL))
    halves = reduce_scatter_s(size, Group(count * 8, 8), over(IDEAL)) + all_gather_s(
        size, Group(count * 8, 8), over(IDEAL)
    )
    assert whole <= halves * 1.1  # within a node NCCL's tables are noisy by as much


@given(st.lists(st.tuples(sizes, nodes, locals_, sharers), min_size=1, max_size=20))
def test_batches_equal_single_calls(rows: list[tuple[float, int, int, int]]) -> None:
    size, count, local, groups = (np.array(column) for column in zip(*rows, strict=True))
    for collective in COLLECTIVES:
        together = collective(size, Group(count * local, local, groups), over(SYSTEM))
        single = [collective(s, Group(n * r, r, g), over(SYSTEM)) for s, n, r, g in rows]
        np.testing.assert_allclose(together, single, rtol=1e-12)


def test_a_hop_holds_up_large_messages_only() -> None:
    """By the bulk latency once per node of a ring: a piece takes all links but one, of which as many cross as
    there are nodes; twice in an all-reduce, where a tree of half the depth takes over.
    """
    bulk = dataclasses.replace(IDEAL, network_bulk_latency_s=1e-3)
    for count, hops in ((2, 2), (4, 4), (16, 16)):
        for operation in (all_gather_s, reduce_scatter_s):
            more = operation(1e9, Group(8 * count, 8), over(bulk)) - operation(
                1e9, Group(8 * count, 8), over(IDEAL)
            )
            assert more == pytest.approx(hops * 1e-3, rel=0.01)
            alone = operation(1e9, Group(count, 1), over(bulk)) - operation(1e9, Group(count, 1), over(IDEAL))
            assert alone == pytest.approx((hops - 1) * 1e-3, rel=0.01)
    small = all_gather_s(1e3, Group(16, 8), over(bulk)) - all_gather_s(1e3, Group(16, 8), over(IDEAL))
    assert small < 1e-6
    trees = all_reduce_s(1e6, Group(512, 8), over(bulk)) - all_reduce_s(1e6, Group(512, 8), over(IDEAL))
    assert trees == pytest.approx(2 * 6 * 0.2e-3, rel=0.01)  # 1 MB of 4 MB: a fifth
    assert all_gather_s(1e9, Group(8, 8), over(bulk)) == all_gather_s(1e9, Group(8, 8), over(IDEAL))


def _benchmark(name: str):
    """A program of `benchmarks`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hops_of_the_p5_system_are_those_of_the_published_collectives(shared_dir) -> None:
    """All-gather and reduce-scatter of 256 MB over 2 to 64 nodes: within half, bytes alone miss by 20."""
    hops = _benchmark("network_hops")
    points = hops.measured(shared_dir / "data" / "operators" / "bandwidth_points.csv.gz")
    system = load_system("p5-48xlarge")
    rings = [value for (kind, _), value in hops.ratios(points, system).items() if kind != "AllReduce"]
    assert len(rings) == 12
    assert all(0.9 < ratio < 1.5 for ratio in rings)
    bare = dataclasses.replace(system, network_bulk_latency_s=0.0, network_latency_s=0.0)
    assert min(hops.ratios(points, bare).values()) < 0.07
    size, _ = hops.half_size(shared_dir / "data" / "operators" / "a100_allreduce.csv.gz")
    assert size == pytest.approx(BULK_BYTES, rel=0.1)


RACK = dataclasses.replace(IDEAL, gpus_per_node=4, nvlink_domain=72, gpu_nic_bytes_per_s=50e9)


def test_a_domain_is_used_in_equal_parts() -> None:
    ranks = np.array([64, 72, 128, 144, 256, 1024])
    np.testing.assert_array_equal(ranks_together(ranks, 72, RACK), [64, 72, 64, 72, 64, 69])
    np.testing.assert_array_equal(ranks_together(np.array([12, 16]), 8, IDEAL), [8, 8])


def test_the_nics_of_all_trays_serve_a_domain() -> None:
    """A group with the GPUs of 16 trays has those trays' NICs; one with a GPU of each rack has its own."""
    thin = dataclasses.replace(RACK, nic_bytes_per_s=4e9, gpu_nic_bytes_per_s=1e9)
    assert all_gather_s(1e12, Group(128, 64), over(thin)) == pytest.approx(127 / 128 * 1e12 / 64e9, rel=1e-9)
    assert all_gather_s(1e12, Group(2, 1, 72), over(thin)) == pytest.approx(0.5e12 / 1e9, rel=1e-9)


def test_slower_links_count_bytes_more_and_latency_as_before() -> None:
    slow = dataclasses.replace(IDEAL, nvlink_slowdown=1.5)
    links = dataclasses.replace(IDEAL, nvlink_bytes_per_s=IDEAL.nvlink_bytes_per_s / 1.5)
    for collective in COLLECTIVES:
        assert collective(1e9, Group(8, 8), over(slow)) == collective(1.5e9, Group(8, 8), over(IDEAL))
        assert collective(64, Group(8, 8), over(slow)) == collective(64, Group(8, 8), over(IDEAL))
        assert collective(1e9, Group(8, 8), over(links)) == collective(1e9, Group(8, 8), over(slow))


def test_the_network_of_dgx_h100_is_that_of_the_published_all_reduces(shared_dir) -> None:
    """16 to 1,024 GPUs, 1 KB to 16 GB: sources that nothing was fitted to within 13 %, before 14 to 39."""
    multi_node = _benchmark("multi_node")
    groups = multi_node.measured(shared_dir / "data" / "modern_gpus" / "operators" / multi_node.FILE.name)
    assert len(groups) == 8
    for (source, _), rows in groups.items():
        system = multi_node.system_of(rows)
        now = np.abs(multi_node.ratios(rows, system) - 1).mean()
        plain = np.abs(multi_node.ratios(rows, dataclasses.replace(system, **multi_node.PLAIN)) - 1).mean()
        assert now < plain
        assert now < (0.135 if system.name == "dgx-h100" else 0.4), source
    fitted = [rows for (source, _), rows in groups.items() if source in multi_node.FITTED]
    system = load_system("dgx-h100")
    assert multi_node.fitted(fitted, system) == system


def test_a_ring_hides_its_steps_behind_many_bytes_only() -> None:
    steps = dataclasses.replace(IDEAL, ring_step_s=2e-6, collective_algorithms=("ring",))
    delay = 2 * 128 * 7 * 2e-6
    assert all_reduce_s(1e3, Group(1024, 8), over(steps)) == pytest.approx(delay, rel=1e-3)
    many = all_reduce_s(1e12, Group(1024, 8), over(steps))
    assert many == pytest.approx(all_reduce_s(1e12, Group(1024, 8), over(IDEAL)), rel=1e-3)


def test_a_tree_between_two_nodes_sends_each_byte_once() -> None:
    """Each of two trees has one link between two nodes, and passes half of the buffer up and down."""
    tree = dataclasses.replace(IDEAL, collective_algorithms=("nvls-tree",), nic_bytes_per_s=10e9)
    assert all_reduce_s(1e9, Group(16, 8), over(tree)) == pytest.approx(1e9 / 10e9, rel=1e-9)
    assert all_reduce_s(1e9, Group(32, 8), over(tree)) == pytest.approx(2e9 / 10e9, rel=1e-9)


def _summing(**changes: object) -> System:
    """One GPU a node, whose switches sum; a hop takes 10 us."""
    narrow = {"network_latency_s": 10e-6, "gpu_nic_bytes_per_s": IDEAL.nic_bytes_per_s}
    return dataclasses.replace(IDEAL, **{**narrow, "collective_algorithms": ("sharp",), **changes})


@pytest.mark.parametrize(("count", "levels"), [(2, 1), (20, 1), (21, 2), (400, 2), (401, 3), (8001, 4)])
def test_switches_that_sum_take_each_byte_once_and_a_level_by_twenties(count: int, levels: int) -> None:
    """S/B up the tree of switches and down again, however many nodes there are (Graham et al. 2016)."""
    expected = 1e9 / IDEAL.nic_bytes_per_s + 2 * levels * 10e-6
    assert all_reduce_s(1e9, Group(count, 1), over(_summing())) == pytest.approx(expected, rel=1e-12)
    delayed = over(_summing(network_bulk_latency_s=1e-4))
    delay = 2 * 1e-4 * 1e9 / (1e9 + BULK_BYTES)  # of the proxies, which send once and receive once
    assert all_reduce_s(1e9, Group(count, 1), delayed) == pytest.approx(expected + delay, rel=1e-12)


def test_the_levels_of_summing_switches_are_those_that_the_system_states() -> None:
    tiers = _summing(nodes_per_leaf=4, nodes_per_spine=16)
    found = all_reduce_s(1e9, Group(np.array([4, 5, 16, 17, 320, 321]), 1), over(tiers))
    np.testing.assert_allclose(
        found - 1e9 / IDEAL.nic_bytes_per_s, 2e-5 * np.array([1, 2, 2, 3, 3, 4]), rtol=1e-6
    )


@given(sizes, nodes, locals_, sharers)
def test_one_more_algorithm_never_costs_time(size: float, count: int, local: int, groups: int) -> None:
    more = dataclasses.replace(SYSTEM, collective_algorithms=(*SYSTEM.collective_algorithms, "sharp"))
    usual = all_reduce_s(size, Group(count * local, local, groups), over(SYSTEM))
    assert all_reduce_s(size, Group(count * local, local, groups), over(more)) <= usual


H100, GB200 = load_system("dgx-h100"), load_system("gb200-nvl72")
ROUTED = RoutedTokens(4096, 7168 * (1 + 4 / 128), 8, 256)


def times(routed, ranks, local, system, dispatcher, **more):
    group, fabric = Group.side_by_side(ranks, local, system), Fabric(system, profile_of(system))
    return float(dispatch_s(routed, group, fabric, dispatcher, **more))


@pytest.mark.parametrize(("experts", "copies", "parts"), [(8, 2, 4), (8, 3, 2), (6, 6, 3), (4, 1, 4)])
def test_parts_that_a_token_reaches(experts: int, copies: int, parts: int) -> None:
    """The mean over all choices of experts."""
    choices = list(itertools.combinations(range(experts), copies))
    reached = [len({expert * parts // experts for expert in choice}) for choice in choices]
    assert distinct_parts(experts, copies, parts) == pytest.approx(np.mean(reached), rel=1e-12)


def test_an_all_to_all_moves_a_copy_for_every_expert() -> None:
    expected = all_to_all_s(8 * 4096 * ROUTED.row_bytes, Group(16, 8), Fabric(H100, profile_of(H100)))
    assert times(ROUTED, 16, 8, H100, "alltoall") == expected
    assert times(ROUTED, 16, 8, H100, "deepep") < expected
    for dispatcher in ("alltoall", "deepep", "hybridep"):  # a single rank, or no tokens
        assert times(ROUTED, 1, 1, H100, dispatcher) == 0
        assert times(dataclasses.replace(ROUTED, tokens=0), 8, 8, H100, dispatcher) == 0


def test_nodes_get_a_token_once() -> None:
    """With slow NICs, the time between nodes is that of one copy for each other node a token reaches."""
    slow = dataclasses.replace(H100, nic_bytes_per_s=8e9)
    share = slow.achieved_network * 1e9
    for most, reached in ((None, distinct_parts(256, 8, 8)), (4, distinct_parts(128, 8, 4))):
        routed = dataclasses.replace(ROUTED, most_nodes=most)
        expected = 4096 * ROUTED.row_bytes * reached * 7 / 8 / share
        assert times(routed, 64, 8, slow, "deepep") - NOTIFY_S == pytest.approx(expected, rel=1e-3)


def test_a_rack_needs_no_network() -> None:
    """64 ranks in an NVLink domain, and the same over 8 nodes."""
    inside = times(ROUTED, 64, 64, GB200, "hybridep")
    assert inside < times(ROUTED, 64, 64, GB200, "deepep") < times(ROUTED, 64, 8, H100, "deepep")
    for ranks, published in ((8, 750.15e9), (36, 612.85e9)):  # DeepEP, docs/README_Hybrid-EP.md
        routed = dataclasses.replace(ROUTED, row_bytes=2 * 7168, experts=8 * ranks)
        sent = 4096 * routed.row_bytes * distinct_parts(8 * ranks, 8, ranks)
        assert sent / times(routed, ranks, ranks, GB200, "hybridep") == pytest.approx(published, rel=0.02)


def test_more_multiprocessors_take_less_time_until_the_link_is_full() -> None:
    seconds = [times(ROUTED, 8, 8, H100, "deepep", multiprocessors=count) for count in (4, 8, 16, 132, 10**6)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] / seconds[1] == pytest.approx(2, rel=0.1)
    assert seconds[3] == pytest.approx(seconds[4], rel=0.01)
    back = combine_s(ROUTED, Group.side_by_side(8, 8, H100), Fabric(H100, profile_of(H100)), "deepep")
    assert back == pytest.approx(times(ROUTED, 8, 8, H100, "deepep"), rel=0.2)


def test_the_kernels_of_deepep_are_those_measured(shared_dir) -> None:
    """Rows that nothing was fitted to; 8 nodes of the measured cluster are 1.5 to 3 times slower than 4."""
    measured = _benchmark("expert_dispatch")
    rows = measured.measured(shared_dir / "data" / "modern_gpus" / "operators" / measured.NAME)
    large = ~measured.fitted_to(rows) & (rows.tokens >= 1024) & (rows.sms >= 16)
    for direction in ("dispatch", "combine"):
        ratios = measured.ratios(rows, direction)
        errors = {n: np.abs(ratios - 1)[large & (rows.nodes == n)].mean() for n in (1, 2, 4, 8)}
        assert max(errors[1], errors[2], errors[4]) < 0.17
        assert np.abs(ratios - 1)[~measured.fitted_to(rows) & (rows.nodes == 1)].mean() < 0.125
        assert 0.3 < np.median(ratios[large & (rows.nodes == 8)]) < 0.75


LINK = dataclasses.replace(H100, site_link_bytes_per_s=1.25e9, site_link_latency_s=0.03)


def test_a_ring_of_sites_moves_up_to_twice_the_buffer() -> None:
    sites = np.array([2, 4, 8, 16])
    seconds = all_reduce_between_sites_s(
        12.5e9, sites, 64, dataclasses.replace(LINK, site_link_latency_s=0.0)
    )
    assert seconds == pytest.approx(20.0 * (sites - 1) / sites)
    """A ring of two: half of the buffer there, half of the sum back, over a link of 1.25 GB/s."""
    assert all_reduce_between_sites_s(12.5e9, 2, 64, LINK) == pytest.approx(10.0 + 2 * 0.03)
    assert all_reduce_between_sites_s(np.array([1e9, 0.0]), np.array([1, 4]), 64, LINK).tolist() == [0, 0]
    # Of 16 sites 30 ms apart: 8 messages of a tree one after the other, not the 30 of a ring.
    assert all_reduce_between_sites_s(1.0, 16, 64, LINK) == pytest.approx(8 * 0.03, rel=1e-6)


def test_a_link_faster_than_the_nics_of_a_site_is_limited_by_them() -> None:
    """Eight GPUs have 400 GB/s of NICs, of which collectives reach a fraction."""
    wide = dataclasses.replace(LINK, site_link_bytes_per_s=1e13, site_link_latency_s=0.0)
    one_node = float(all_reduce_between_sites_s(1e12, 2, 8, wide))
    assert one_node == pytest.approx(1e12 / (H100.achieved_network * H100.nic_bytes_per_s))
    assert float(all_reduce_between_sites_s(1e12, 2, 16, wide)) == pytest.approx(one_node / 2)
