"""The Gittins index against the best that can be done without knowing sizes, found by dynamic programming."""

from functools import cache
from itertools import product

import pytest

from clustersim.testing import simulate
from policies.gittins import Gittins
from traces.job import Job


def least_expected_sum(sizes: tuple[int, ...], jobs: int) -> float:
    """The smallest expected sum of completion times on one GPU, over all ways to choose, second by second and
    knowing what has been seen so far, which of `jobs` jobs runs; their sizes are drawn from `sizes`.
    """

    @cache
    def best(ages: tuple[int, ...]) -> float:
        return min((serve(ages, age) for age in set(ages)), default=0.0)

    def serve(ages: tuple[int, ...], age: int) -> float:
        others = list(ages)
        others.remove(age)
        longer = [size for size in sizes if size > age]
        ends = sum(size == age + 1 for size in longer) / len(longer)
        goes_on = (1 - ends) * best(tuple(sorted([*others, age + 1]))) if ends < 1 else 0.0
        return len(ages) + ends * best(tuple(others)) + goes_on

    return best((0,) * jobs)


@pytest.mark.parametrize(
    ("sizes", "jobs"),
    [((8, 1), 3), ((5, 2, 1, 5), 2), ((5, 8, 1), 3), ((12, 2, 8), 2), ((2, 12, 2), 3), ((12, 3), 3)],
)
def test_no_policy_that_does_not_know_sizes_does_better(sizes: tuple[int, ...], jobs: int) -> None:
    """On one GPU, all jobs there from the start (Gittins 1979): the mean over all draws is the optimum."""
    total = 0.0
    for run_s in product(sizes, repeat=jobs):
        trace = [Job(str(i), 0.0, gpus=1, duration_s=float(s)) for i, s in enumerate(run_s)]
        outcome = simulate(trace, Gittins(sizes, quantum_s=1), "n1g1")
        total += sum(record.jct_s or 0.0 for record in outcome.records)
    assert total / len(sizes) ** jobs == pytest.approx(least_expected_sum(sizes, jobs))
