"""From which past jobs run times are drawn, and that no run time contradicts the time so far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from clustersim.forecast import RunTimes
from clustersim.forecast.run_times import ENOUGH, OUTLIVED_S
from itertime.errors import UserError
from tests.clustersim.forecast.states import ended, running

U = np.linspace(0, 0.999, 50)


def kind(times: RunTimes) -> str:
    return next(iter(times.used))


def test_the_closest_group_with_enough_jobs() -> None:
    of_user = [ended(f"a{k}", 64, 300, 1000, user="ann") for k in range(ENOUGH)]
    of_size = [ended(f"b{k}", 7, 500, 1000, user=f"u{k}") for k in range(ENOUGH)]
    for job, expected, run_s in (
        (running("x", 7, 10, 2000, user="ann"), "user", {600.0}),
        (running("x", 8, 10, 2000, user="bob"), "size", {1000.0}),
        (running("x", 1, 10, 2000, user="bob"), "all", {600.0, 1000.0}),
        (running("x", 7, 700, 2000, user="ann"), "size", {1000.0}),  # none of ann's jobs went on as long
        (running("x", 7, 1100, 2000, user="ann"), "evenly up to the limit", None),
        (running("x", 7, 2100, 2000, user="ann"), "outlived its limit", {2100 + OUTLIVED_S}),
    ):
        times = RunTimes.of([*of_user, *of_size])
        elapsed_s = 10_000 - (job.logged_start_s or 0)
        drawn = times.drawn(job, elapsed_s, U)
        assert kind(times) == expected
        assert run_s is None or set(drawn) == run_s


def test_without_a_history() -> None:
    times = RunTimes.of(ratio=0.5)
    assert set(times.drawn(running("x", 1, 400, 1000), 400, U)) == {500.0}
    assert set(times.drawn(running("x", 1, 600, 1000), 600, U)) == {1000.0}
    assert set(times.drawn(running("x", 1, 1200, 1000), 1200, U)) == {1200 + OUTLIVED_S}
    with pytest.raises(UserError, match="state:1: job x: states no time limit; give --history LOG"):
        times.drawn(running("x", 1, 0, None), 0, U)
    assert set(RunTimes.of(default_limit_s=60.0).drawn(running("x", 1, 0, None), 0, U)) == {60.0}


def test_without_a_limit_run_times_are_those_of_past_jobs() -> None:
    times = RunTimes.of([ended(f"a{k}", 1, 100.0 * (k + 1), None) for k in range(40)])
    assert set(times.drawn(running("x", 1, 1950, None), 1950, U)) == {100.0 * k for k in range(20, 41)}
    assert kind(times) == "run time: user"
    longer = times.drawn(running("x", 1, 5000, None), 5000, U)
    assert np.median(longer) == pytest.approx(10_000, rel=0.05)


@given(
    some.floats(0, 1e6), some.none() | some.floats(1, 1e6),
    some.lists(some.tuples(some.floats(1, 1e6), some.none() | some.floats(1, 1e6)), max_size=30),
)  # fmt: skip
def test_no_job_ends_before_now(
    elapsed_s: float, limit_s: float | None, past: list[tuple[float, float | None]]
) -> None:
    times = RunTimes.of([ended(f"h{k}", 1, *one) for k, one in enumerate(past)])
    if limit_s is None and not past:
        return
    drawn = times.drawn(running("x", 1, elapsed_s, limit_s), elapsed_s, U)
    assert np.isfinite(drawn).all()
    assert (drawn >= elapsed_s).all()
    assert (drawn > 0).all()
