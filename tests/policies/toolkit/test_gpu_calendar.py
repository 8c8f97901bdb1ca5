"""The calendar of free GPUs against a plain model."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustersim.cluster.topology import NodeGroup
from clustersim.scheduler import Cluster
from policies.toolkit.cells import FreeCells, VirtualCluster, cell_sizes, split_into_cells
from policies.toolkit.gpu_calendar import FreeGpus

GPUS = 32
Booking = tuple[float, float, int]
"""(from, to, GPUs)."""
times = st.integers(0, 200).map(float)


@st.composite
def bookings(draw: st.DrawFn) -> list[Booking]:
    """Stretches that overlap as they like, but never take more than there is."""
    found: list[Booking] = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(times)
        end = start + draw(st.integers(1, 80))
        gpus = draw(st.sampled_from((1, 2, 3, 8, 16, 32)))
        if all(taken(found, t) + gpus <= GPUS for t in range(int(start), int(end))):
            found.append((start, end, gpus))
    return found


def taken(booked: list[Booking], time: float) -> int:
    return sum(gpus for start, end, gpus in booked if start <= time < end)


def calendar(booked: list[Booking]) -> FreeGpus:
    free = FreeGpus(0.0, GPUS)
    for booking in booked:
        free.take(*booking)
    return free


@given(bookings(), st.integers(0, 150), st.data())
@settings(deadline=None)
def test_the_calendar_counts(booked: list[Booking], now: int, data: st.DataObject) -> None:
    assume(len(set(booked)) == len(booked))
    free = calendar(booked)
    kept = [booking for booking in booked if not data.draw(st.booleans())]
    for booking in booked:
        if booking not in kept:
            free.give_back(*booking)
    twin = free.copy()
    free.advance(float(now))
    for time in range(now, 300):
        assert free.least(time, time + 0.5) == twin.least(time, time + 0.5) == GPUS - taken(kept, time)
    assert free.times == sorted(set(free.times))
    assert free.times[0] == now
    assert all(a != b for a, b in pairwise(free.free)), "equal neighbours are joined"


@given(bookings(), st.integers(0, 60), st.integers(1, 60), st.integers(1, GPUS))
@settings(deadline=None)
def test_looking_forwards(booked: list[Booking], start: int, length: int, gpus: int) -> None:
    """Second t stands for the time from t to t + 1; all bookings begin and end at whole seconds."""
    free = calendar(booked)
    counts = [GPUS - taken(booked, t) for t in range(450)]
    room = [count >= gpus for count in counts]
    assert free.least(start, start + length) == min(counts[start : start + length])
    assert free.earliest(gpus, length, start) == next(
        t for t in range(start, 400) if all(room[t : t + length])
    )
    assert free.earliest(GPUS + 1, 1.0) == float("inf")
    gaps = list(free.gaps(gpus, start))
    assert seconds_of(gaps) == [t for t in range(start, 450) if room[t]]
    assert all(a[1] < b[0] for a, b in pairwise(gaps)), "as long as they last"
    stretches = free.stretches(gpus, start, start + length)
    assert seconds_of(stretches) == [t for t in range(start, start + length) if counts[t] == gpus]
    assert free.full_s() == counts[:300].count(0)


def seconds_of(spans: list[tuple[float, float]]) -> list[int]:
    return [t for t in range(450) for start, end in spans if start <= t < end]


@given(bookings(), st.integers(0, 300), st.integers(0, 300), st.integers(1, GPUS), st.booleans())
@settings(deadline=None)
def test_looking_backwards(booked: list[Booking], now: int, end: int, gpus: int, begins_now: bool) -> None:
    free = calendar(booked)
    room = [GPUS - taken(booked, t) >= gpus for t in range(end)]
    if end:
        assert free.before(end) == GPUS - taken(booked, end - 1)
        since_s = next((t + 1 for t in range(end - 1, -1, -1) if not room[t]), 0)
        assert free.since(gpus, float(end)) == since_s
        last_s = next((t + 1 for t in range(end - 1, -1, -1) if room[t]), -float("inf"))
        assert free.last(gpus, float(end)) == last_s
    at_once = FreeGpus.beside(float(now), GPUS, booked)
    if begins_now:
        free.advance(float(now))
        at_once.advance(float(now))
        assert (at_once.times, at_once.free) == (free.times, free.free)
    counts, upper = [], end
    for lower, count in free.backwards(float(end), float(now)):
        assert now <= lower < upper
        counts += [count] * int(upper - lower)
        upper = int(lower)
    assert counts == [GPUS - taken(booked, t) for t in range(end - 1, now - 1, -1)]


def test_a_copy_is_independent_and_what_is_past_is_not_booked() -> None:
    free = calendar([(10.0, 20.0, 8)])
    free.copy().take(0.0, 30.0, 8)
    assert (free.times, free.free) == ([0.0, 10.0, 20.0], [32, 24, 32])
    free = FreeGpus(50.0, 8)
    free.take(0.0, 40.0, 8)
    free.take(45.0, 60.0, 4)
    assert (free.times, free.free) == ([50.0, 60.0], [4, 8])


# Cells in one another


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
