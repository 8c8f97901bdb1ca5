"""Shapes of clusters, sets of nodes, and free GPUs, cores and host memory against plain models."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clustersim.cluster import (
    Capacity,
    CapacityIfStopped,
    Cluster,
    HostDemand,
    first_node,
    node_range,
    node_set,
    nodes_of,
    open_nodes,
)
from clustersim.cluster.topology import NodeGroup
from clustersim.placement import placer
from itertime.errors import UserError
from tests.effort import examples


@pytest.mark.parametrize(
    ("text", "nodes", "gpus_per_node"),
    [("n128g8", 128, 8), ("128x8", 128, 8), (" N1G1 ", 1, 1), ("n1000000g64", 1_000_000, 64)],
)
def test_shapes(text: str, nodes: int, gpus_per_node: int) -> None:
    cluster = Cluster.parse(text)
    assert (cluster.nodes, cluster.gpus_per_node) == (nodes, gpus_per_node)
    assert cluster.gpus == nodes * gpus_per_node
    assert Cluster.parse(cluster.shape) == cluster


@pytest.mark.parametrize(
    "text",
    ["", "n8", "g8", "8", "n8g", "n-1g8", "n1.5g8", "n8g8x", "8x8x8", "n0g8", "n8g0", "n8g65", "n1000001g8",
     "n" + "9" * 5000 + "g8", "n\u0661g8"],
)  # fmt: skip
def test_bad_shapes_name_the_value(text: str) -> None:
    with pytest.raises(UserError, match="cluster") as caught:
        Cluster.parse(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("nodes", [[], [0], [0, 1, 3], [0, 5000]])
def test_sets_of_nodes(nodes: list[int]) -> None:
    assert list(nodes_of(node_set(nodes))) == nodes
    assert first_node(node_set(nodes)) == min(nodes, default=-1)


def test_ranges_of_nodes() -> None:
    assert list(nodes_of(node_range(3, 4))) == [3, 4, 5, 6]
    assert node_range(3, 0) == node_set([])


def test_take_is_all_or_nothing() -> None:
    capacity = Capacity(Cluster(2, 4))
    twice = ((0, 1), (0, 1))
    for wrong in (((0, 1), (1, 5)), ((0, 1), (2, 1)), ((0, 1), (-1, 1)), ((0, 0),), ((0, -1),), twice):
        with pytest.raises(ValueError, match="node"):
            capacity.take(wrong)
        assert (capacity.free, capacity.free_on(0), capacity.free_on(1)) == (8, 4, 4)
    capacity.take(((0, 2),))
    with pytest.raises(ValueError, match="node 0: 3 GPUs were not taken"):
        capacity.release(((0, 3),))


class CapacityMachine(RuleBasedStateMachine):
    """Random take, release and copy on a `Capacity` and on a plain list; they must agree after each step."""

    @initialize(nodes=st.integers(1, 6), gpus_per_node=st.integers(1, 8))
    def begin(self, nodes: int, gpus_per_node: int) -> None:
        self.cluster = Cluster(nodes, gpus_per_node)
        self.capacity = Capacity(self.cluster)
        self.free = [gpus_per_node] * nodes
        self.taken: list[tuple[tuple[int, int], ...]] = []

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        nodes = data.draw(st.sets(st.integers(0, self.cluster.nodes - 1), min_size=1))
        placement = tuple((n, data.draw(st.integers(1, self.cluster.gpus_per_node))) for n in sorted(nodes))
        if all(count <= self.free[n] for n, count in placement):
            self.capacity.take(placement)
            self.taken.append(placement)
            for n, count in placement:
                self.free[n] -= count
        else:
            with pytest.raises(ValueError, match="not free"):
                self.capacity.take(placement)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        placement = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.capacity.release(placement)
        for n, count in placement:
            self.free[n] += count

    @rule()
    def go_on_with_a_copy(self) -> None:
        old = self.capacity
        self.capacity = old.copy()
        old_free = [old.free_on(n) for n in range(self.cluster.nodes)]
        for n, count in enumerate(self.free):
            if count:
                old.take(((n, count),))  # must not show in the copy
        assert old.free == 0
        assert old_free == self.free

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def imagine(self, data: st.DataObject) -> None:
        """The free GPUs if some jobs stopped, with some nodes out of service."""
        gone = data.draw(st.lists(st.sampled_from(range(len(self.taken))), unique=True))
        leaving = [self.taken[i] for i in gone]
        real = self.capacity.copy()
        for node in data.draw(st.sets(st.integers(0, self.cluster.nodes - 1))):
            real.close(node)
        imagined = CapacityIfStopped(real, leaving)
        for placement in leaving:
            real.release(placement)
        assert (imagined.free, imagined.empty_nodes()) == (real.free, real.empty_nodes())
        for count in range(1, self.cluster.gpus_per_node + 1):
            assert imagined.nodes_with(count) == real.nodes_with(count)
            assert imagined.count_with(count) == real.count_with(count)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "free"):
            return
        capacity, size = self.capacity, self.cluster.gpus_per_node
        assert [capacity.free_on(n) for n in range(self.cluster.nodes)] == self.free
        assert capacity.free == sum(self.free)
        assert capacity.empty_nodes() == self.free.count(size)
        for count in range(size + 1):
            assert list(nodes_of(capacity.nodes_with(count))) == [
                n for n, f in enumerate(self.free) if f == count
            ]


CapacityMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


# Cores and host memory: what they leave of the free GPUs for one job


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
