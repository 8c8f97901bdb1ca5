"""Cores and host memory of nodes: what they leave of the free GPUs for one job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.cluster import Capacity, Cluster, HostDemand, open_nodes
from clustersim.cluster.topology import NodeGroup
from clustersim.placement import placer
from itertime.errors import UserError

GROUPS = (
    NodeGroup("a", 2, 8, "a100", cpus_per_node=32, host_memory_gb_per_node=64),
    NodeGroup("b", 2, 4, "v100", cpus_per_node=32),
)
DEMANDS = st.tuples(st.sampled_from((None, 1, 7.5, 16)), st.sampled_from((None, 3.3, 20)))


def test_amounts_are_parts_of_the_gpus() -> None:
    assert HostDemand.of(None, None, 4) is None
    assert HostDemand.of(10, 3, 3) == (3_333_333, 1_000_000)
    assert HostDemand.of(10, None, None) == (10_000_000, 0)
    assert HostDemand.of(96, 1.0, 8) == (12_000_000, 125_000)


@given(
    taken=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), DEMANDS), max_size=8),
    demand=DEMANDS,
    closed=st.integers(0, 15),
)
def test_a_view_counts_what_a_loop_counts(
    taken: list[tuple[int, int, tuple[float | None, float | None]]],
    demand: tuple[float | None, float | None],
    closed: int,
) -> None:
    """Against plain sums of what each node has and what jobs hold there."""
    cluster = Cluster.of(GROUPS)
    capacity = Capacity(cluster)
    has = {0: (32e6, 64e6), 1: (32e6, 64e6), 2: (32e6, float("inf")), 3: (32e6, float("inf"))}
    gpus = {0: 8, 1: 8, 2: 4, 3: 4}
    for node, count, (cpus, memory_gb) in taken:
        held = HostDemand.of(cpus, memory_gb, 1)
        fits = gpus[node] >= count and all(
            amount >= count * each for amount, each in zip(has[node], held or (0, 0), strict=True)
        )
        if not fits:
            with pytest.raises(ValueError, match=f"node {node}: "):
                capacity.take(((node, count),), held)
            continue
        capacity.take(((node, count),), held)
        gpus[node] -= count
        has[node] = tuple(a - count * e for a, e in zip(has[node], held or (0, 0), strict=True))
    asked = HostDemand.of(*demand, 1)
    view = open_nodes(capacity, closed, capacity, asked)
    for node, (cpus, memory) in has.items():
        most = 0 if closed >> node & 1 else gpus[node]
        if asked is not None:
            most = min(most, int(cpus // asked.cpus) if asked.cpus else 99)
            most = min(most, int(memory // asked.memory) if asked.memory and node < 2 else 99)
        assert view.free_on(node) == most
        assert not most or view.nodes_with(most) >> node & 1
        if not closed >> node & 1:
            assert capacity.has_room(((node, 1),), asked) == (most > 0)
    assert view.free == sum(view.free_on(node) for node in range(4))
    for name in ("pack", "spread", "any", "topology", "buddy"):
        place = placer(name).place(view, 2, ())
        assert place is None or capacity.has_room(place, asked)


def test_what_is_released_can_be_taken_again() -> None:
    capacity = Capacity(Cluster.of(GROUPS))
    demand = HostDemand.of(16, 32, 1)
    copy = capacity.copy()
    capacity.take(((0, 2),), demand)
    assert not capacity.has_room(((0, 1),), demand)
    assert copy.has_room(((0, 2),), demand), "a copy is independent"
    with pytest.raises(ValueError, match="node 0: 16 cores are needed, 0 are free there"):
        capacity.take(((0, 1),), demand)
    capacity.release(((0, 2),), demand)
    assert capacity.has_room(((0, 2),), demand)
    assert capacity.free == 24


def test_groups_of_one_type_have_the_same() -> None:
    small = NodeGroup("small", 2, 8, "a100", cpus_per_node=16, host_memory_gb_per_node=64)
    text = "group small: cpus_per_node=16: another group of gpu_type a100 has 32"
    with pytest.raises(UserError, match=text):
        Cluster.of([GROUPS[0], small])
