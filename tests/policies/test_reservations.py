"""The calendar of free GPUs and what is filled into it, against plain models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustersim.scheduler import block
from policies.reservations import Demand, FreeGpus, Piece, fill, shorten, yield_of

GPUS = 32
SIZES = (1, 2, 4, 8, 16, 32)
ALIKE = {n: n for n in SIZES}  # powers of two are their own blocks
times = st.integers(0, 200).map(float)


@st.composite
def bookings(draw: st.DrawFn) -> list[Piece]:
    """Stretches that overlap as they like, but never take more than there is."""
    pieces: list[Piece] = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(times)
        end = start + draw(st.integers(1, 80))
        gpus = draw(st.sampled_from(SIZES))
        if all(taken(pieces, t) + gpus <= GPUS for t in range(int(start), int(end))):
            pieces.append((start, end, gpus))
    return pieces


def taken(pieces: list[Piece], time: float) -> int:
    return sum(gpus for start, end, gpus in pieces if start <= time < end)


def calendar(pieces: list[Piece]) -> FreeGpus:
    free = FreeGpus(0.0, GPUS)
    free.reserve(pieces, ALIKE)
    return free


def free_at(free: FreeGpus, time: float) -> int:
    return free.least(time, time + 0.5)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    sizes = SIZES[draw(st.integers(0, 3)) :][: draw(st.integers(1, 6))]
    power, restart_s = draw(st.floats(0.3, 1.0)), draw(st.sampled_from((0.0, 1.0, 7.5)))
    return Demand(
        job=cast(Any, None),
        deadline_s=float(draw(st.integers(60, 260))),
        sizes=sizes,
        blocks=ALIKE,
        rates={n: n**power for n in sizes},
        restarts=dict.fromkeys(sizes, restart_s),
        guard_s=0.0,
        work=draw(st.floats(1.0, 1500.0)),
    )


# The calendar


@given(bookings(), st.integers(0, 150), st.data())
@settings(deadline=None)
def test_the_calendar_counts(pieces: list[Piece], now: int, data: st.DataObject) -> None:
    free = calendar(pieces)
    kept = [piece for piece in pieces if not data.draw(st.booleans())]
    free.give_back([piece for piece in pieces if piece not in kept], ALIKE)
    assume(len(set(pieces)) == len(pieces))
    twin = free.copy()
    free.advance(float(now))
    for time in range(now, 300):
        assert free_at(free, time) == free_at(twin, time) == GPUS - taken(kept, time)
    assert free.times == sorted(set(free.times))
    assert free.times[0] == now
    assert all(a != b for a, b in pairwise(free.free)), "equal neighbours are joined"


@given(bookings(), times, st.integers(1, 100))
@settings(deadline=None)
def test_least(pieces: list[Piece], start: float, length: int) -> None:
    expected = min(GPUS - taken(pieces, t) for t in range(int(start), int(start) + length))
    assert calendar(pieces).least(start, start + length) == expected


def test_a_copy_is_independent() -> None:
    free = calendar([(10.0, 20.0, 8)])
    free.copy().reserve([(0.0, 30.0, 8)], ALIKE)
    assert (free.times, free.free) == ([0.0, 10.0, 20.0], [32, 24, 32])


def test_what_is_past_is_not_booked() -> None:
    free = FreeGpus(50.0, 8)
    free.reserve([(0.0, 40.0, 8), (45.0, 60.0, 4)], ALIKE)
    assert (free.times, free.free) == ([50.0, 60.0], [4, 8])


# Filling


def best_yield(pieces: list[Piece], demand: Demand, level: int) -> float:
    """The work of a job that takes what it may of what is free, second by second, up to its deadline."""
    total, run, size_before = 0.0, 0.0, 0
    for second in range(int(demand.deadline_s) + 1):
        able = [n for n in demand.sizes if n <= min(level, GPUS - taken(pieces, second))]
        size = able[-1] if able and second < demand.deadline_s else 0
        if size != size_before:
            if size_before:
                total += max(0.0, run - demand.restarts[size_before]) * demand.rates[size_before]
            run, size_before = 0.0, size
        run += 1.0
    return total


@given(bookings(), demands())
@settings(max_examples=300, deadline=None)
def test_fill(pieces: list[Piece], demand: Demand) -> None:
    free = calendar(pieces)
    found = fill(free, demand, 0.0)
    assert (free.times, free.free) == (calendar(pieces).times, calendar(pieces).free), "only looks"
    possible = {level: best_yield(pieces, demand, level) for level in demand.sizes}
    if found is None:
        assert all(done < demand.work + 1e-6 for done in possible.values())
        return
    assert all(0.0 <= start < end <= demand.deadline_s for start, end, _ in found)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert all(gpus in demand.sizes and free.least(start, end) >= gpus for start, end, gpus in found)
    assert yield_of(found, demand, 0.0) >= demand.work * (1 - 1e-9), "done by the deadline"
    used = max(gpus for _, _, gpus in found)
    for level in demand.sizes:
        assert level >= used or possible[level] < demand.work + 1e-6, "the smallest level that will do"


@given(bookings(), demands())
@settings(deadline=None)
def test_fill_is_late(pieces: list[Piece], demand: Demand) -> None:
    """As late as possible: after its first piece the job holds its level wherever that is free."""
    found = fill(calendar(pieces), demand, 0.0)
    assume(found is not None)
    assert found is not None
    level = max(gpus for _, _, gpus in found)
    for second in range(int(found[0][0]) + 1, int(demand.deadline_s)):
        able = [n for n in demand.sizes if n <= min(level, GPUS - taken(pieces, second))]
        held = [gpus for start, end, gpus in found if start <= second < end]
        if not held and able:
            # only a stretch too short to restart in is left out
            assert _stretch(pieces, demand, level, second) <= demand.restarts[able[-1]]
        else:
            assert held == able[-1:]


def _stretch(pieces: list[Piece], demand: Demand, level: int, second: int) -> int:
    """How long the same size is free around `second`."""

    def size(t: int) -> int:
        able = [n for n in demand.sizes if n <= min(level, GPUS - taken(pieces, t))]
        return able[-1] if able and 0 <= t < demand.deadline_s else 0

    first = last = second
    while size(first - 1) == size(second):
        first -= 1
    while size(last + 1) == size(second):
        last += 1
    return last - first + 1


def demand_of(work: float, deadline_s: float, **more: Any) -> Demand:
    rates = {4: 1.0, 8: 1.6}
    return Demand(
        cast(Any, None), deadline_s, (4, 8), ALIKE, rates, {4: 10.0, 8: 10.0}, 0.0, work=work, **more
    )


def test_fill_by_hand() -> None:
    free = FreeGpus(0.0, 8)
    assert fill(free, demand_of(50.0, 100.0), 0.0) == [(40.0, 100.0, 4)]
    assert fill(free, demand_of(90.0, 100.0), 0.0) == [(0.0, 100.0, 4)]
    assert fill(free, demand_of(91.0, 100.0), 0.0) == [(100 - 10 - 91 / 1.6, 100.0, 8)]
    assert fill(free, demand_of(145.0, 100.0), 0.0) is None
    free.reserve([(60.0, 80.0, 4)], ALIKE)
    # at level 4 the booking leaves 4; at level 8 three pieces, each with a restart
    assert fill(free, demand_of(90.0, 100.0), 0.0) == [(0.0, 100.0, 4)]
    assert fill(free, demand_of(100.0, 100.0), 0.0) == [
        (60 - 10 - 74 / 1.6, 60.0, 8),
        (60.0, 80.0, 4),
        (80.0, 100.0, 8),
    ]


def test_a_running_job_goes_on_without_a_restart() -> None:
    free = FreeGpus(0.0, 8)
    assert fill(free, demand_of(99.0, 100.0, gpus=4, paying_s=1.0), 0.0) == [(0.0, 100.0, 4)]
    assert fill(free, demand_of(99.5, 100.0, gpus=4, paying_s=1.0), 0.0) != [(0.0, 100.0, 4)]


# Following


def test_yield_by_hand() -> None:
    pieces = [(0.0, 30.0, 4), (30.0, 60.0, 8)]
    assert yield_of(pieces, demand_of(0.0, 60.0), 0.0) == pytest.approx(20 * 1.0 + 20 * 1.6)
    assert yield_of(pieces, demand_of(0.0, 60.0, gpus=4, paying_s=3.0), 0.0) == pytest.approx(
        27 * 1.0 + 20 * 1.6
    )
    assert yield_of(pieces, demand_of(0.0, 60.0, gpus=8), 0.0) == pytest.approx(20 * 1.0 + 20 * 1.6)
    assert yield_of(pieces, demand_of(0.0, 60.0), 25.0) == pytest.approx(20 * 1.6)
    assert yield_of(pieces, demand_of(0.0, 60.0), 60.0) == 0.0


@given(bookings(), demands(), st.integers(0, 100), st.floats(0.0, 1.0), st.data())
@settings(max_examples=200, deadline=None)
def test_shorten_keeps_enough(
    pieces: list[Piece], demand: Demand, now: int, share: float, data: st.DataObject
) -> None:
    """Of what was reserved at 0 and followed until `now`, what is kept still does the rest of the work."""
    found = fill(calendar(pieces), demand, 0.0)
    assume(found is not None)
    assert found is not None
    running = [gpus for start, end, gpus in found if start <= now < end]
    if running and data.draw(st.booleans()):
        demand.gpus, demand.paying_s = running[0], data.draw(st.floats(0.0, demand.restarts[running[0]]))
    demand.work = share * yield_of(found, demand, now)
    kept = shorten(found, demand, now)
    assert yield_of(kept, demand, now) >= demand.work * (1 - 1e-9) - 1e-9
    for start, end, gpus in kept:
        assert any(s <= start and end == e and gpus == g for s, e, g in found)
        assert start >= now
    assert kept or demand.work <= 1e-9


@given(st.integers(1, 64), st.integers(1, 16))
def test_blocks_hold_their_size_and_divide_one_another(gpus: int, node: int) -> None:
    assert gpus <= block(gpus, node) < gpus + node
    blocks = sorted({block(n, node) for n in range(1, node + 1)})
    assert blocks[-1] == node
    assert all(larger % smaller == 0 for smaller, larger in pairwise(blocks))
