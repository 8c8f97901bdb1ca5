"""Reservations filled into a calendar, against plain models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.reservation.calendar import WHOLE, NodeCalendar, Slot
from policies.reservation.demand import Demand, Kind
from policies.reservation.filling import fill, yield_of
from tests.effort import examples

GPUS = 32
SIZES = (1, 2, 4, 8, 16, 32)
times = st.integers(0, 200).map(float)


@st.composite
def bookings(draw: st.DrawFn) -> list[Slot]:
    """Stretches that overlap as they like, but never take more than there is."""
    slots: list[Slot] = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(times)
        end = start + draw(st.integers(1, 80))
        gpus = draw(st.sampled_from(SIZES))
        if all(taken(slots, t) + gpus <= GPUS for t in range(int(start), int(end))):
            slots.append(Slot(start, end, gpus))
    return slots


def taken(slots: list[Slot], time: float) -> int:
    return sum(gpus for start, end, gpus, _ in slots if start <= time < end)


def calendar_with(slots: list[Slot]) -> NodeCalendar:
    """Nodes of a GPU each: every slot is of whole nodes."""
    calendar = NodeCalendar(0.0, GPUS, 1)
    calendar.reserve(slots)
    return calendar


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    sizes = SIZES[draw(st.integers(0, 3)) :][: draw(st.integers(1, 6))]
    power, restart_s = draw(st.floats(0.3, 1.0)), draw(st.sampled_from((0.0, 1.0, 7.5)))
    return Demand(
        job=cast(Any, None),
        deadline_s=float(draw(st.integers(60, 260))),
        kind=Kind(sizes, sizes, {n: n**power for n in sizes}, dict.fromkeys(sizes, restart_s)),
        guard_s=0.0,
        work=draw(st.floats(1.0, 1500.0)),
    )


# Filling


def best_yield(slots: list[Slot], demand: Demand, level: int) -> float:
    """The work of a job that takes what it may of what is free, second by second, up to its deadline."""
    total, run, size_before = 0.0, 0.0, 0
    for second in range(int(demand.deadline_s) + 1):
        able = [n for n in demand.reservable if n <= min(level, GPUS - taken(slots, second))]
        size = able[-1] if able and second < demand.deadline_s else 0
        if size != size_before:
            if size_before:
                total += max(0.0, run - demand.restarts[size_before]) * demand.rates[size_before]
            run, size_before = 0.0, size
        run += 1.0
    return total


@given(bookings(), demands())
@settings(max_examples=examples(300), deadline=None)
def test_fill(slots: list[Slot], demand: Demand) -> None:
    free = calendar_with(slots).whole
    found = fill(calendar_with(slots), demand, 0.0)
    possible = {level: best_yield(slots, demand, level) for level in demand.reservable}
    if found is None:
        assert all(done < demand.work + 1e-6 for done in possible.values())
        return
    assert all(0.0 <= start < end <= demand.deadline_s for start, end, _, _ in found)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert all(gpus in demand.reservable and free.least(start, end) >= gpus for start, end, gpus, _ in found)
    assert yield_of(found, demand, 0.0) >= demand.work * (1 - 1e-9), "done by the deadline"
    used = max(slot.gpus for slot in found)
    for level in demand.reservable:
        assert level >= used or possible[level] < demand.work + 1e-6, "the smallest level that will do"


def demand_of(work: float, deadline_s: float, **more: Any) -> Demand:
    kind = Kind((4, 8), (4, 8), {4: 1.0, 8: 1.6}, {4: 10.0, 8: 10.0})
    return Demand(cast(Any, None), deadline_s, kind, 0.0, work=work, **more)


def booked(slots: list[Slot] | None) -> list[tuple[float, float, int]] | None:
    return None if slots is None else [slot[:3] for slot in slots]


def test_fill_by_hand() -> None:
    free = NodeCalendar(0.0, 8, 1)
    assert booked(fill(free, demand_of(50.0, 100.0), 0.0)) == [(40.0, 100.0, 4)]
    assert booked(fill(free, demand_of(90.0, 100.0), 0.0)) == [(0.0, 100.0, 4)]
    assert booked(fill(free, demand_of(91.0, 100.0), 0.0)) == [(100 - 10 - 91 / 1.6, 100.0, 8)]
    assert fill(free, demand_of(145.0, 100.0), 0.0) is None
    free.reserve([Slot(60.0, 80.0, 4)])
    # at level 4 the booking leaves 4; at level 8 three slots, each with a restart
    assert booked(fill(free, demand_of(90.0, 100.0), 0.0)) == [(0.0, 100.0, 4)]
    assert booked(fill(free, demand_of(100.0, 100.0), 0.0)) == [
        (60 - 10 - 74 / 1.6, 60.0, 8),
        (60.0, 80.0, 4),
        (80.0, 100.0, 8),
    ]


@pytest.mark.parametrize("node", [1, 16])
def test_a_running_job_goes_on_without_a_restart_where_it_may(node: int) -> None:
    free, home = NodeCalendar(0.0, 8 // node or 1, node), WHOLE if node == 1 else 0
    runs = {"gpus": 4, "paying_s": 1.0}
    assert booked(fill(free, demand_of(99.0, 100.0, **runs), 0.0, home)) == [(0.0, 100.0, 4)]
    assert booked(fill(free, demand_of(99.5, 100.0, **runs), 0.0, home)) != [(0.0, 100.0, 4)]
    assert booked(fill(free, demand_of(99.0, 100.0, **runs), 0.0)) != [(0.0, 100.0, 4)]


# Nodes that jobs share


@st.composite
def tenancies(draw: st.DrawFn) -> list[Slot]:
    """Pieces at addresses on 4 nodes of 8 GPUs that never take more than there is."""
    calendar, slots = NodeCalendar(0.0, 4, 8), []
    for _ in range(draw(st.integers(0, 14))):
        start = draw(times)
        gpus = draw(st.sampled_from((1, 2, 3, 5, 7, 8, 16)))
        node = WHOLE if gpus >= 8 else draw(st.integers(0, 3))
        slot = Slot(start, start + draw(st.integers(1, 80)), gpus, node)
        if all(_has_room([*slots, slot], t) for t in range(int(slot.start), int(slot.end))):
            slots.append(slot)
    calendar.reserve(slots)
    return slots


def _used(slots: list[Slot], time: float, node: int) -> int:
    return sum(p.gpus for p in slots if p.node == node and p.start <= time < p.end)


def _whole(slots: list[Slot], time: float) -> int:
    """Nodes of the four that are neither reserved whole nor shared."""
    return 4 - _used(slots, time, WHOLE) // 8 - sum(_used(slots, time, v) > 0 for v in range(4))


def _has_room(slots: list[Slot], time: float) -> bool:
    return _whole(slots, time) >= 0 and all(_used(slots, time, v) <= 8 for v in range(4))


@st.composite
def small_demands(draw: st.DrawFn) -> Demand:
    first = draw(st.sampled_from((1, 2, 3, 5)))
    sizes = tuple(n for n in (1, 2, 3, 5, 7, 8, 16, 32) if n >= first)[: draw(st.integers(1, 6))]
    restarts = dict.fromkeys(sizes, draw(st.sampled_from((0.0, 1.0, 7.5))))
    kind = Kind(sizes, tuple(-(-n // 8) for n in sizes), {n: n**0.7 for n in sizes}, restarts)
    deadline_s, work = float(draw(st.integers(60, 260))), draw(st.floats(1.0, 800.0))
    demand = Demand(cast(Any, None), deadline_s, kind, 0.0, work=work)
    demand.gpus = draw(st.sampled_from((0, *sizes)))
    demand.paying_s = draw(st.floats(0.0, restarts[first]))
    return demand


@given(tenancies(), small_demands(), st.sampled_from([None, WHOLE, 0, 1, 2, 3]))
@settings(max_examples=examples(400), deadline=None)
def test_fill_at_addresses(slots: list[Slot], demand: Demand, home: int | None) -> None:
    """What is found can be reserved, and does the work with a restart a slot, except where a job goes on."""
    calendar = NodeCalendar(0.0, 4, 8)
    calendar.reserve(slots)
    found = fill(calendar, demand, 0.0, home)
    if found is None:
        alone = fill(NodeCalendar(0.0, 4, 8), demand, 0.0, home)
        assert slots or alone is None
        return
    assert all(0.0 <= p.start < p.end <= demand.deadline_s and p.gpus in demand.reservable for p in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert all((p.node == WHOLE) == (p.gpus >= 8) for p in found)
    bounds = {t for p in (*slots, *found) for t in (p.start, p.end)}
    assert all(_has_room([*slots, *found], t) for t in sorted(bounds))
    goes_on = found[0].start == 0.0 and (found[0].gpus, found[0].node) == (demand.gpus, home)
    demand.in_place = goes_on
    assert yield_of(found, demand, 0.0) >= demand.work * (1 - 1e-9)


def test_three_and_five_share_a_node_of_eight() -> None:
    """5 + 3 fill one node, 5 another; 4 GPUs are then only free where no address has them together."""
    calendar = NodeCalendar(0.0, 2, 8)
    for gpus in (5, 5, 3):
        kind = Kind((gpus,), (1,), {gpus: 1.0}, {gpus: 10.0})
        demand = Demand(cast(Any, None), 100.0, kind, 0.0, work=90.0)
        found = fill(calendar, demand, 0.0)
        assert found is not None
        calendar.reserve(found)
    assert sorted(calendar.before(50.0) for calendar in calendar.shared) == [0, 3]
    four = Demand(cast(Any, None), 100.0, Kind((4,), (1,), {4: 1.0}, {4: 10.0}), 0.0, work=1.0)
    assert fill(calendar, four, 0.0) is None


# Following


def test_yield_by_hand() -> None:
    slots = [Slot(0.0, 30.0, 4), Slot(30.0, 60.0, 8)]
    assert yield_of(slots, demand_of(0.0, 60.0), 0.0) == pytest.approx(20 * 1.0 + 20 * 1.6)
    assert yield_of(slots, demand_of(0.0, 60.0, gpus=4, paying_s=3.0, in_place=True), 0.0) == pytest.approx(
        27 * 1.0 + 20 * 1.6
    )
    assert yield_of(slots, demand_of(0.0, 60.0, gpus=4), 0.0) == pytest.approx(20 * 1.0 + 20 * 1.6)
    assert yield_of(slots, demand_of(0.0, 60.0), 25.0) == pytest.approx(20 * 1.6)
    assert yield_of(slots, demand_of(0.0, 60.0), 60.0) == 0.0
