"""Reservations filled into a calendar, against plain models."""

from __future__ import annotations

from typing import Any, cast

import pytest

from policies.reservation.calendar import WHOLE, NodeCalendar, Slot
from policies.reservation.demand import Demand, Kind
from policies.reservation.filling import fill, yield_of

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
