"""Periodic checkpoints in closed form, against a walk through the cycles and the published intervals; and
shared storage: max-min fairness, and the ends of loads under processor sharing.
"""

from __future__ import annotations

from math import exp, inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.overheads import Cycle, SharedStorage
from clustersim.overheads.checkpoints import daly_interval_s, young_interval_s
from clustersim.overheads.shared_storage import fair_rates

# Periodic checkpoints


SECONDS = st.floats(0.5, 50.0)


def walk(interval_s: float, save_s: float, elapsed_s: float) -> tuple[float, float]:
    """(seconds worked, seconds in the last complete save), cycle by cycle."""
    worked = saved = now = 0.0
    while now + interval_s + save_s <= elapsed_s:
        now += interval_s + save_s
        worked += interval_s
        saved = worked
    return worked + min(interval_s, elapsed_s - now), saved


@given(SECONDS, st.floats(0.0, 20.0), st.floats(0.0, 500.0))
def test_cycles_are_those_of_a_walk(interval_s: float, save_s: float, elapsed_s: float) -> None:
    cycle = Cycle(interval_s, save_s)
    boundary = elapsed_s / (interval_s + save_s)
    worked, saved = walk(interval_s, save_s, elapsed_s)
    assert cycle.worked_s(elapsed_s) == pytest.approx(worked, abs=1e-9)
    if abs(boundary - round(boundary)) > 1e-9:  # there rounding decides which cycle it is
        assert cycle.saved_s(elapsed_s) == pytest.approx(saved, abs=1e-9)
        assert cycle.offset_s(elapsed_s) == pytest.approx(
            elapsed_s - saved - (saved / interval_s) * save_s, abs=1e-6
        )


@given(SECONDS, st.floats(0.0, 20.0), st.floats(0.0, 500.0))
def test_work_is_done_at_elapsed_s_and_not_before(interval_s: float, save_s: float, work_s: float) -> None:
    """`elapsed_s` is the first time at which the work is done: a moment earlier it is not."""
    cycle = Cycle(interval_s, save_s)
    done_s = cycle.elapsed_s(work_s)
    assert cycle.worked_s(done_s) == pytest.approx(work_s, abs=1e-6)
    if work_s > 1e-3:
        assert cycle.worked_s(done_s - 1e-3) < work_s


def test_no_save_follows_the_last_interval() -> None:
    assert Cycle(10.0, 1.0).elapsed_s(30.0) == 32.0
    assert Cycle(0.1, 1.0).elapsed_s(0.3) == pytest.approx(2.3), "0.3 / 0.1 is a little less than 3"
    assert Cycle(10.0, 1.0).elapsed_s(0.0) == 0.0


def test_never_and_always_saving() -> None:
    never, always = Cycle(), Cycle(0.0, 0.0)
    assert (never.worked_s(7.0), never.saved_s(7.0), never.elapsed_s(7.0)) == (7.0, 0.0, 7.0)
    assert (always.worked_s(7.0), always.saved_s(7.0), always.elapsed_s(7.0)) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize("mtbf_s", [600.0, 3600.0, 86_400.0])
def test_young_minimises_the_first_order_waste_and_daly_the_exact_one(mtbf_s: float) -> None:
    """The waste to first order is C/tau + tau/(2M) (Young 1974). The exact expected time per second of work
    is M e^{R/M} (e^{(tau+C)/M} - 1) / tau (Daly 2006, equation 20).
    """
    save_s = 60.0

    def first_order(tau: float) -> float:
        return save_s / tau + tau / (2 * mtbf_s)

    def exact(tau: float) -> float:
        return mtbf_s * (exp((tau + save_s) / mtbf_s) - 1) / tau

    young, daly = young_interval_s(save_s, mtbf_s), daly_interval_s(save_s, mtbf_s)
    assert young == sqrt(2 * save_s * mtbf_s)
    others = [young * k / 100 for k in range(20, 400)]
    assert first_order(young) <= min(map(first_order, others)) * (1 + 1e-12)
    assert exact(daly) <= min(map(exact, others)) * 1.002
    assert exact(daly) < exact(young)


def test_limits_of_the_intervals() -> None:
    assert daly_interval_s(0.0, 100.0) == young_interval_s(0.0, inf) == 0.0
    assert daly_interval_s(10.0, inf) == young_interval_s(10.0, inf) == inf
    assert daly_interval_s(300.0, 100.0) == 100.0, "from C = 2 M on it is M"


# Shared storage


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
