"""Properties of all placers, on random clusters with random jobs on them."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cluster import Capacity, Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.placement import Placer
from clustersim.placement.placers import PLACERS
from tests.effort import examples

names = st.sampled_from(sorted(PLACERS))
by_node = st.sampled_from(("any", "pack", "spread"))  # those that look at nodes alone


class Scene(NamedTuple):
    capacity: Capacity
    cluster: Cluster
    prefer: tuple[int, ...]
    gpus: int

    def free(self) -> list[int]:
        return [self.capacity.free_on(n) for n in range(self.cluster.nodes)]


@st.composite
def uneven_scenes(draw: st.DrawFn) -> Scene:
    """Stretches of nodes of several sizes, of one GPU type."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4, 8)), min_size=2, max_size=4))
    cluster = Cluster.of(
        NodeGroup(f"g{i}", draw(st.integers(1, 4)), size, "a100") for i, size in enumerate(sizes)
    )
    filled = _filled(cluster, [draw(st.integers(0, size)) for size in cluster.sizes])
    prefer = draw(st.lists(st.integers(0, cluster.nodes - 1), unique=True, max_size=3))
    return Scene(filled, cluster, tuple(prefer), draw(st.integers(1, cluster.gpus + 2)))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    cluster = Cluster(draw(st.integers(1, 7)), draw(st.sampled_from((1, 2, 4, 5, 8))))
    return Scene(
        _filled(cluster, [draw(st.integers(0, cluster.gpus_per_node)) for _ in range(cluster.nodes)]),
        cluster,
        tuple(draw(st.lists(st.integers(0, cluster.nodes - 1), unique=True, max_size=3))),
        draw(st.integers(1, cluster.gpus + 2)),
    )


def _filled(cluster: Cluster, used: list[int]) -> Capacity:
    capacity = Capacity(cluster)
    for node, count in enumerate(used):
        if count:
            capacity.take(((node, count),))
    return capacity


@given(names, st.one_of(scenes(), uneven_scenes()))
@settings(max_examples=examples(300), deadline=None)
def test_laws_of_every_placer(name: str, scene: Scene) -> None:
    free, one = scene.free(), PLACERS[name]
    places = one.place(scene.capacity, scene.gpus, scene.prefer)
    assert one.fits(scene.capacity, scene.gpus) == (places is not None)
    assert places == one.place(scene.capacity.copy(), scene.gpus, scene.prefer), "deterministic"
    assert scene.free() == free, "placing only looks"
    if places is not None:
        assert sum(count for _, count in places) == scene.gpus
        assert all(0 < count <= free[node] for node, count in places)
        assert [node for node, _ in places] == sorted({node for node, _ in places})
    elif name in ("any", "spread"):
        assert scene.gpus > sum(free), "any free GPUs will do"
    if scene.cluster.unequal:
        fits = one.fits(Capacity(scene.cluster), scene.gpus)
        assert fits == (scene.gpus <= scene.cluster.gpus), "no job waits for nodes that there never are"


@given(scenes())
@settings(max_examples=examples(300), deadline=None)
def test_pack_uses_whole_nodes_and_the_fullest_one_for_the_rest(scene: Scene) -> None:
    size, free = scene.cluster.gpus_per_node, scene.free()
    places = PLACERS["pack"].place(scene.capacity, scene.gpus, ())
    whole, rest = divmod(scene.gpus, size)
    empty = [n for n, f in enumerate(free) if f == size]
    rooms = [f for n, f in enumerate(free) if f >= rest and n not in empty[:whole]]
    assert (places is not None) == (len(empty) >= whole and (not rest or bool(rooms)))
    if places is None:
        return
    assert [n for n, count in places if count == size] == empty[:whole], (
        "the empty nodes of the lowest numbers"
    )
    parts = [(n, count) for n, count in places if count < size]
    assert [count for _, count in parts] == ([rest] if rest else []), (
        "a job smaller than a node is never split"
    )
    if rest:
        assert free[parts[0][0]] == min(rooms), "best fit"


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_any_fills_the_fullest_nodes_first(scene: Scene) -> None:
    places = PLACERS["any"].place(scene.capacity, scene.gpus, ())
    if places is None:
        return
    free, left, expected = scene.free(), scene.gpus, []
    for node in sorted((n for n, f in enumerate(free) if f), key=lambda n: (free[n], n)):
        if left:
            expected.append((node, min(left, free[node])))
            left -= expected[-1][1]
    assert places == tuple(sorted(expected))


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_spread_puts_as_few_gpus_on_a_node_as_possible(scene: Scene) -> None:
    places = PLACERS["spread"].place(scene.capacity, scene.gpus, ())
    if places is None:
        return
    most = max(count for _, count in places)
    assert sum(min(f, most - 1) for f in scene.free()) < scene.gpus, "one GPU less per node would not do"


@given(by_node, scenes())
@settings(max_examples=examples(300), deadline=None)
def test_preferred_nodes_come_first(name: str, scene: Scene) -> None:
    """Among nodes that are equally free, the preferred ones are used before the others."""
    places = PLACERS[name].place(scene.capacity, scene.gpus, scene.prefer)
    if places is None:
        return
    free, used = scene.free(), {node for node, _ in places}
    for node in used - set(scene.prefer):
        passed_over = [n for n in scene.prefer if free[n] == free[node] and n not in used]
        assert not passed_over


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_a_small_job_stays_on_a_preferred_node_with_room(scene: Scene) -> None:
    gpus = 1 + scene.gpus % scene.cluster.gpus_per_node
    places = PLACERS["pack"].place(scene.capacity, gpus, scene.prefer)
    if gpus < scene.cluster.gpus_per_node and any(scene.capacity.free_on(n) >= gpus for n in scene.prefer):
        assert places is not None
        assert places[0][0] in scene.prefer


def test_nodes_of_two_sizes_by_hand() -> None:
    """Nodes 0 to 3 have 2 GPUs, nodes 4 and 5 have 8: a job is split over small nodes if no node has room."""
    cluster = Cluster.of([NodeGroup("small", 4, 2, "a100"), NodeGroup("large", 2, 8, "a100")])
    empty, busy = Capacity(cluster), _filled(cluster, [0, 0, 0, 0, 6, 6])
    large, small = ((4, 8), (5, 8)), ((0, 2), (1, 2), (2, 2), (3, 2))
    for name in ("pack", "topology", "buddy"):
        place = PLACERS[name].place
        assert [place(empty, gpus) for gpus in (2, 4, 8, 16, 24)] == [
            small[:1], ((4, 4),), large[:1], large, small + large,
        ]  # fmt: skip
        assert [place(busy, gpus) for gpus in (2, 4, 8)] == [small[:1], small[:2], small]
    assert PLACERS["pack"].place(empty, 17) == ((0, 1), *large)
    assert PLACERS["pack"].place(busy, 9) == (*small, (4, 1))


def test_placers_by_hand() -> None:
    capacity = _filled(Cluster(4, 4), [3, 0, 2, 0])  # free: 1, 4, 2, 4
    where: dict[str, Placer] = PLACERS
    assert where["pack"].place(capacity, 2, ()) == ((2, 2),)
    assert where["pack"].place(capacity, 2, (3,)) == ((3, 2),)
    assert where["pack"].place(capacity, 6, ()) == ((1, 4), (2, 2))
    assert where["pack"].place(capacity, 7, ()) == ((1, 4), (3, 3))
    assert where["any"].place(capacity, 5, ()) == ((0, 1), (1, 2), (2, 2))
    assert where["any"].place(capacity, 5, (3,)) == ((0, 1), (3, 4))
    assert where["spread"].place(capacity, 3, ()) == ((1, 1), (2, 1), (3, 1))
    assert where["spread"].place(capacity, 6, ()) == ((1, 2), (2, 2), (3, 2))
