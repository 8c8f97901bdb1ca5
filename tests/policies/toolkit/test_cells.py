"""Cells in one another: sizes, and buddy cell allocation, which always finds what was promised."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.cluster.topology import NodeGroup
from clustersim.scheduler import Cluster
from policies.toolkit.cells import FreeCells, VirtualCluster, cell_sizes, split_into_cells


def of_leaves(nodes: int, nodes_per_leaf: int) -> Cluster:
    return Cluster.of([NodeGroup("n", nodes, 4, "x", nodes_per_leaf=nodes_per_leaf)])


@pytest.mark.parametrize(
    ("cluster", "sizes"),
    [
        (Cluster(7, 4), (1, 2, 4, 8, 16)),
        (Cluster(3, 3), (1, 3, 6)),
        (of_leaves(9, 4), (1, 2, 4, 8, 16, 32)),
        (of_leaves(13, 6), (1, 2, 4, 8, 24, 48)),  # 1, 2 and 6 nodes, then 2 leaves
        (Cluster.of([NodeGroup("a", 5, 4, "x", nodes_per_leaf=5), NodeGroup("b", 2, 4, "x")]), None),
    ],
)
def test_sizes_follow_nodes_and_leaves(cluster: Cluster, sizes: tuple[int, ...] | None) -> None:
    assert cell_sizes(cluster) == (sizes or (1, 2, 4, 20))


@given(st.data())
def test_cells_that_are_promised_are_always_found(data: st.DataObject) -> None:
    """The safety theorem: in any order of takes and releases, the smallest free cell with room exists."""
    sizes = data.draw(st.sampled_from([(1, 2, 4, 8, 16), (1, 2, 6, 12), (1, 3, 9), (1, 2, 4, 12, 24)]))
    total = data.draw(st.integers(1, 60))
    random = Random(data.draw(st.integers(0, 10**6)))
    left, promised = total, []
    while left:
        part = random.randint(1, left)
        promised += split_into_cells(part, sizes)
        left -= part
    cells, used = FreeCells(sizes, split_into_cells(total, sizes)), []
    for _ in range(200):
        if promised and (not used or random.random() < 0.6):
            level = promised.pop(random.randrange(len(promised)))
            above = cells.lowest(level)
            assert above is not None
            start = random.choice(cells.free[above])
            at = random.randrange(start, start + sizes[above], sizes[level])
            cells.take((level, at))
            used.append((level, at))
        elif used:
            cell = used.pop(random.randrange(len(used)))
            cells.release(cell)
            promised.append(cell[0])
        spans = [(at, at + sizes[k]) for k, at in used]
        spans += [(at, at + sizes[k]) for k, free in enumerate(cells.free) for at in free]
        covered = [gpu for first, end in spans for gpu in range(first, end)]
        assert sorted(covered) == list(range(total)), "every GPU is in one cell"


def test_another_choice_than_the_smallest_breaks_the_promise() -> None:
    """Two cells of 2, one promised whole and one as halves: halves from both leave no whole."""
    cells = FreeCells((1, 2), [1, 1])
    cells.take((0, 0))
    assert cells.lowest(0) == 0
    cells.take((0, 2))
    assert cells.lowest(1) is None


def test_what_is_given_back_is_whole_again() -> None:
    cells = FreeCells((1, 2, 4), [2, 1, 0])
    before = [list(free) for free in cells.free]
    for at in range(7):
        cells.take((0, at))
    with pytest.raises(ValueError, match="the cell of 2 GPUs from GPU 2 on is not free"):
        cells.take((1, 2))
    for at in (3, 0, 6, 5, 1, 4, 2):
        cells.release((0, at))
    assert cells.free == before


def test_a_cell_is_bound_as_a_whole_and_as_long_as_it_is_used() -> None:
    cluster = FreeCells((1, 2, 4), [2, 2])
    own = VirtualCluster([2], cluster)
    assert list(own.choices(0)) == [((2, 0), [(2, 0), (2, 4)])]
    one = own.take((0, 5), (2, 0))
    assert (one, own.bound(one), cluster.free) == ((0, 0), (0, 5), [[], [], [0]])
    two = own.take_where([(0, 0), (0, 4)])
    assert two is not None, "beside the first, in the same pair"
    assert own.bound(two) == (0, 4)
    assert list(own.choices(0)) == [((1, 2), [(1, 6)])]
    for cell in (one, two):
        own.release(cell)
    assert cluster.free == [[], [], [0, 4]]
