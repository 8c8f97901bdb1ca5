"""Policies that know of a job only what it has attained: las, tiresias, gittins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.gittins import Gittins, gittins_index
from policies.las import Las
from policies.tiresias import Tiresias
from tests.builders import rigid
from tests.effort import examples

# Least attained service


@given(st.integers(2, 6), st.integers(1, 60), st.integers(1, 500))
@settings(max_examples=examples(40), deadline=None)
def test_las_shares_one_gpu_to_within_a_quantum(jobs: int, quantum_s: int, until_s: int) -> None:
    long = [rigid(str(i), 0, 1, 1000) for i in range(jobs)]
    outcome = simulate(long, Las(quantum_s=quantum_s), "n1g1", until_s=until_s)
    attained = [record.gpu_seconds for record in outcome.records]
    assert sum(attained) == pytest.approx(until_s)
    assert max(attained) - min(attained) <= quantum_s + 1e-6


@pytest.mark.parametrize("policy", [Las, Gittins])
def test_restarts_longer_than_a_round_leave_time_for_work(policy: type[Las] | type[Gittins]) -> None:
    """Every turn does at least a quantum of work, so that there are at most work / quantum of them."""
    charged = Overheads(launch_s=300.0, plain_restart_s=300.0)
    jobs = [rigid(str(i), i, 1, 100) for i in range(3)]
    outcome = simulate(jobs, policy(quantum_s=20), "n1g1", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    assert 0 < sum(record.preemptions for record in outcome.records) <= 3 * 100 / 20


# Three jobs on two GPUs, (GPUs, seconds) = (2, 2), (1, 8), (2, 6), all submitted at once: the example in
# section 3 of Tiresias (Gu et al., NSDI 2019). All times asserted are derived here by hand from the rules.


@pytest.mark.parametrize("order", ["start", "submission"])
@pytest.mark.parametrize("knob", [None, 1, 8])
def test_tiresias_ends_where_a_start_takes_longer_than_the_first_queue(
    order: str, knob: float | None
) -> None:
    """Only work counts as service, so that a job does not fall before it has worked. By start, every turn in
    the first queue does 10 s of work.
    """
    charged = Overheads(launch_s=30.0, plain_restart_s=70.0)
    jobs = [rigid(f"{i:02}", 10 * i, 8, 300) for i in range(20)]
    policy = Tiresias(thresholds_gpu_s=[80], promote_knob=knob, order=order)
    outcome = simulate(jobs, policy, "n1g8", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    most = 20 * 300 / 10 * (1 if order == "start" else 2)
    assert sum(record.preemptions for record in outcome.records) <= most


# The Gittins index


def test_index_of_a_known_size_is_one_over_what_is_left() -> None:
    assert gittins_index(4.0, np.array([10.0])) == pytest.approx(1 / 6)


def test_index_of_exponential_sizes_does_not_change() -> None:
    """Without memory, the index is the rate: 1 / mean."""
    quantiles = -50.0 * np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
    for attained in (0.0, 20.0, 100.0):
        assert gittins_index(attained, quantiles, least_size=5) == pytest.approx(1 / 50, rel=0.03)


def test_index_beyond_all_sizes() -> None:
    assert gittins_index(12.0, np.array([4.0, 12.0])) == 0.0
    assert gittins_index(0.0, np.array([])) == 0.0


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.floats(0, 49.9),
    st.floats(0.01, 30),
    st.lists(st.floats(0.01, 60), max_size=30),
)
def test_index_is_the_supremum(sizes: list[int], attained: float, least: float, spans: list[float]) -> None:
    """By the definition, expectation by expectation: reached somewhere, and nowhere exceeded."""
    left = [size - attained for size in sizes if size > attained]

    def efficiency(span: float) -> float:
        return sum(s <= span for s in left) / sum(min(s, span) for s in left)

    index = gittins_index(attained, np.sort(np.array(sizes, dtype=float)), least)
    if not left:
        assert index == 0.0
        return
    assert index == pytest.approx(max(efficiency(max(least, span)) for span in left))
    assert all(efficiency(max(least, span)) <= index * (1 + 1e-9) for span in spans)
