"""Shared storage: max-min fairness, and the ends of loads under processor sharing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.overheads import SharedStorage
from clustersim.overheads.shared_storage import fair_rates

LIMITS = st.dictionaries(st.integers(0, 20), st.floats(0.1, 100.0), min_size=1, max_size=8)


@given(LIMITS, st.floats(0.1, 300.0))
def test_rates_are_max_min_fair(limits: dict[int, float], total: float) -> None:
    """No rate is above its limit, no bandwidth is unused, and a rate below its limit is the highest."""
    rates = fair_rates(limits, total)
    assert all(0 < rates[k] <= limits[k] for k in limits)
    assert sum(rates.values()) == pytest.approx(min(total, sum(limits.values())))
    for key, rate in rates.items():
        if rate < limits[key] * (1 - 1e-9):
            assert rate >= max(rates.values()) * (1 - 1e-9)


def run_out(storage: SharedStorage[str]) -> dict[str, float]:
    """When each load ends if no other load begins."""
    ends: dict[str, float] = {}
    while (first := storage.next_end()) is not None:
        ends[first[1]] = first[0]
        storage.end(first[1], first[0])
    return ends


def test_two_loads_by_hand() -> None:
    """100 bytes at 10/s alone for 4 s, at 5/s beside the other's 30 until t=10, then alone again."""
    storage: SharedStorage[str] = SharedStorage(10.0)
    storage.begin("long", 100.0, 10.0, 0.0)
    storage.begin("short", 30.0, 10.0, 4.0)
    assert storage.remaining_s("long", 4.0) == 12.0
    assert run_out(storage) == {"short": 10.0, "long": 13.0}


def test_a_removed_load_leaves_its_share_to_the_others() -> None:
    storage: SharedStorage[str] = SharedStorage(10.0)
    storage.begin("a", 100.0, 10.0, 0.0)
    storage.begin("b", 100.0, 10.0, 0.0)
    storage.end("b", 4.0)
    assert "b" not in storage
    assert run_out(storage) == {"a": 12.0}


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(0.5, 20)), min_size=1, max_size=6), st.floats(1, 30))
def test_all_bytes_are_loaded_and_never_faster_than_alone(
    loads: list[tuple[float, float]], bandwidth: float
) -> None:
    storage: SharedStorage[str] = SharedStorage(bandwidth)
    for i, (size, limit) in enumerate(loads):
        storage.begin(str(i), size, limit, float(i))
    ends = run_out(storage)
    for i, (size, limit) in enumerate(loads):
        assert ends[str(i)] >= i + size / min(limit, bandwidth) - 1e-6
    assert (
        max(ends.values())
        <= len(loads) - 1 + sum(size / min(limit, bandwidth) for size, limit in loads) + 1e-6
    )
