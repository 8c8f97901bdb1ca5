"""Periodic checkpoints in closed form: against a walk through the cycles, and the published intervals."""

from __future__ import annotations

from math import exp, inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.overheads import Cycle
from clustersim.overheads.checkpoints import daly_interval_s, young_interval_s

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
