"""Gavel's programs with space sharing against the paper's, over all pairs of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from policies.solvers.finish_time import least_ratio
from policies.solvers.packed_shares import Partners, packed_each, packed_grouped
from policies.solvers.time_shares import (
    Problem,
    each,
    grouped,
    largest_level,
    most_throughput,
    water_filling,
)

Array = NDArray[np.float64]


@dataclass
class Case:
    """`rates` (jobs, types) relative to the best, GPUs and kind by job, GPUs by type, speed (kinds, kinds)
    beside another kind.
    """

    rates: Array
    gpus: NDArray[np.int64]
    kind: NDArray[np.int64]
    capacity: NDArray[np.int64]
    speed: Array

    @classmethod
    def drawn(cls, seed: int, slowest: float = 0.2) -> Case:
        random = np.random.default_rng(seed)
        jobs, types, kinds = random.integers(2, 8), random.integers(1, 4), random.integers(1, 4)
        capacity = random.integers(1, 6, types)
        capacity[0] = 5
        kind = random.integers(0, kinds, jobs)
        gpus = random.integers(1, 6, kinds)[kind]
        rates = random.uniform(0.1, 2.0, (jobs, types))
        rates[random.random(rates.shape) < 0.15] = 0.0
        rates[:, 0] = np.maximum(rates[:, 0], 0.05)
        speed = random.uniform(slowest, 1.0, (kinds, kinds))
        return cls(rates / rates.max(axis=1, keepdims=True), gpus, kind, capacity, speed)

    def partners(self) -> Partners | None:
        """Only pairs that gain, of jobs of as many GPUs."""
        size = np.array([self.gpus[self.kind == k][:1].sum() for k in range(len(self.speed))])
        gains = (self.speed + self.speed.T > 1) & (size[:, None] == size[None, :])
        return Partners(self.kind.tolist(), np.where(gains, self.speed, 0.0)) if gains.any() else None

    def each(self) -> Problem:
        return packed_each(self.rates, self.gpus.tolist(), self.capacity.tolist(), self.partners())

    def paper(self, level: Array | None, worth: Array | None = None) -> float:
        """Section 3.1 word for word: a variable for each job and each pair on each type, also for pairs that
        gain nothing. The largest common level, or the largest sum of worth x throughput.
        """
        jobs, types = self.rates.shape
        pairs = [pair for pair in combinations(range(jobs), 2) if self.gpus[pair[0]] == self.gpus[pair[1]]]
        combos: list[tuple[int, ...]] = [*((job,) for job in range(jobs)), *pairs]
        size = len(combos) * types
        throughput, time, used = np.zeros((jobs, size)), np.zeros((jobs, size)), np.zeros((types, size))
        bounds = []
        for v, (combo, j) in enumerate((combo, j) for combo in combos for j in range(types)):
            used[j, v] = self.gpus[combo[0]]
            fits = all(self.rates[job, j] > 0 for job in combo) and used[j, v] <= self.capacity[j]
            bounds.append((0.0, 1.0 if fits else 0.0))
            for job in combo:
                other = [x for x in combo if x != job]
                beside = self.speed[self.kind[job], self.kind[other[0]]] if other else 1.0
                throughput[job, v], time[job, v] = self.rates[job, j] * beside, 1.0
        limits = np.concatenate([np.ones(jobs), self.capacity])
        if level is None:
            return -self._solved(-worth @ throughput, np.vstack([time, used]), limits, bounds)
        rows = np.vstack([time, used, -throughput])
        column = np.concatenate([np.zeros(jobs + types), level])[:, None]
        minimise = np.append(np.zeros(size), -1.0)
        limits = np.concatenate([limits, np.zeros(jobs)])
        return -self._solved(minimise, np.hstack([rows, column]), limits, [*bounds, (0.0, None)])

    @staticmethod
    def _solved(minimise: Any, rows: Array, limits: Array, bounds: Any) -> float:
        result = linprog(minimise, A_ub=rows, b_ub=limits, bounds=bounds)
        assert result.x is not None
        return float(result.fun)


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_level_and_sum_are_those_of_the_paper(seed: int) -> None:
    case = Case.drawn(seed)
    random = np.random.default_rng(1000 + seed)
    jobs = len(case.gpus)
    level, worth = random.uniform(0.1, 1.0, (2, jobs))
    problem = case.each()
    assert largest_level(problem, level).level == pytest.approx(case.paper(level), rel=1e-6)
    shares = most_throughput(problem, worth)
    assert float(worth @ (problem.rates * shares).sum(axis=1)) == pytest.approx(
        case.paper(None, worth), rel=1e-6
    )
    rows, _ = packed_grouped(case.rates, case.gpus.tolist(), case.capacity.tolist(), None, case.partners())
    ones = np.ones(len(rows.gpus))
    assert largest_level(rows, ones).level == pytest.approx(case.paper(np.ones(jobs)), rel=1e-6)
    worst = (rows.rates * water_filling(rows, ones)).sum(axis=1).min()
    assert worst == pytest.approx(case.paper(np.ones(jobs)), rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_finish_time_ratio_is_where_the_papers_level_is_one(seed: int) -> None:
    case = Case.drawn(seed)
    random = np.random.default_rng(2000 + seed)
    jobs = len(case.gpus)
    elapsed, remaining = random.uniform(0, 100, jobs), random.uniform(50, 500, jobs)
    isolated = elapsed + remaining * random.uniform(1, 5, jobs)
    ratio, need = least_ratio(case.each(), elapsed, remaining, isolated)
    assert need == pytest.approx(remaining / (ratio * isolated - elapsed), rel=1e-6)
    assert case.paper(need) >= 1 - 1e-5
    tighter = remaining / (0.999 * ratio * isolated - elapsed)
    hindered = case.paper(tighter) < 1
    assert hindered or ratio == pytest.approx(((elapsed + remaining) / isolated).max())


@pytest.mark.parametrize("seed", range(10))
def test_without_a_pair_that_gains_the_problem_is_that_without_sharing(seed: int) -> None:
    case = Case.drawn(seed)
    case.speed /= 2.0
    assert case.partners() is None
    gpus, capacity = case.gpus.tolist(), case.capacity.tolist()
    plain, level = each(case.rates, gpus, capacity), np.ones(len(gpus))
    assert largest_level(plain, level).level == pytest.approx(case.paper(level), rel=1e-6)
    packed, rows = packed_grouped(case.rates, gpus, capacity, None, None)
    expected, expected_rows = grouped(case.rates, gpus, capacity)
    assert rows == expected_rows
    assert np.array_equal(packed.rates, expected.rates)


@pytest.mark.parametrize(("jobs", "speed", "level"), [(1, 1.0, 1.0), (2, 0.8, 0.8), (3, 0.9, 2 / 3 * 0.9)])
def test_equal_jobs_on_one_gpu(jobs: int, speed: float, level: float) -> None:
    """By hand: two do 0.8 each at 80 % of their speed beside each other. Each of three runs two thirds of its
    time, beside either of the others. One of a kind has no pair, however well the kind would share.
    """
    problem = packed_each(np.ones((jobs, 1)), [1] * jobs, [1], Partners([0] * jobs, np.array([[speed]])))
    best = largest_level(problem, np.ones(jobs))
    assert best.level == pytest.approx(level)
    if jobs < 3:
        assert best.shares == pytest.approx(np.array([[2.0 - jobs, jobs - 1.0]] * jobs))
