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

times = st.integers(0, 200).map(float)


# Filling


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
