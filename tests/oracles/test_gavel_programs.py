"""Gavel's programs on up to three GPU types against plain dense ones; some jobs cannot run on some types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from clustersim.testing import simulate
from policies.gavel_max_min import GavelMaxMin, equal_time
from policies.solvers.finish_time import least_ratio
from policies.solvers.time_shares import each, grouped, water_filling
from traces.job import Job

Array = NDArray[np.float64]


@dataclass
class Case:
    """`rates` (jobs, types), GPUs by job, GPUs by type."""

    rates: Array
    gpus: Array
    capacity: Array

    @classmethod
    def drawn(cls, seed: int) -> Case:
        random = np.random.default_rng(seed)
        jobs, types = random.integers(1, 6), random.integers(1, 4)
        capacity = random.integers(1, 9, types)
        gpus = random.integers(1, capacity.max() + 1, jobs)
        some = random.choice([0.0, 0.25, 1.0, 1.0, 2.0, 8.0], (jobs, types))
        rates = some if seed % 2 else random.uniform(0.1, 5.0, (jobs, types))
        widest = int(capacity.argmax())
        rates[rates.max(axis=1, where=gpus[:, None] <= capacity, initial=0.0) == 0, widest] = 1.0
        return cls(rates, gpus, capacity)

    def program(self, minimise: Array, level: Array, least: Array) -> Any:
        """Over X (jobs, types) row by row and a level: throughput(m) - level[m] x level >= least[m]."""
        jobs, types = self.rates.shape
        one_job = np.kron(np.eye(jobs), np.ones(types))
        one_type = np.kron(self.gpus, np.eye(types))
        throughput = np.kron(np.eye(jobs), np.ones(types)) * self.rates.ravel()
        rows = np.vstack([one_job, one_type, -throughput])
        column = np.concatenate([np.zeros(jobs + types), level])[:, None]
        most = (self.rates > 0) & (self.gpus[:, None] <= self.capacity)
        bounds = [(0.0, float(x)) for x in most.ravel()] + [(0.0, None)]
        limits = np.concatenate([np.ones(jobs), self.capacity, -least])
        return linprog(minimise, A_ub=np.hstack([rows, column]), b_ub=limits, bounds=bounds)

    def size(self) -> int:
        return int(self.rates.size)


def lexicographic(case: Case, required: Array) -> Array:
    """The largest of sorted throughput / required, level by level: rows are fixed that cannot have more while
    no other free row has less.
    """
    fixed = np.full(len(required), np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        held = np.where(free, 0.0, fixed) * required * (1 - 1e-9)
        aim = np.append(np.zeros(case.size()), -1.0)
        level = float(case.program(aim, np.where(free, required, 0.0), held).x[-1])
        floor = np.where(free, level, fixed) * required * (1 - 1e-9)
        for job in np.flatnonzero(free):
            aim = np.zeros(case.rates.shape)
            aim[job] = -case.rates[job] / required[job]
            best = -case.program(np.append(aim.ravel(), 0.0), np.zeros(len(required)), floor).fun
            if best <= level * (1 + 1e-6) + 1e-9:
                fixed[job] = level
    return fixed


@pytest.mark.parametrize("seed", range(20))
def test_water_filling_is_lexicographically_largest(seed: int) -> None:
    case = Case.drawn(seed)
    required = case.rates @ (case.capacity / case.capacity.sum()) / case.gpus
    problem, row_of = grouped(case.rates, case.gpus.tolist(), case.capacity.tolist())
    needed = problem.rates @ equal_time(problem.capacity) / problem.gpus
    shares = water_filling(problem, needed)[row_of]
    mine = (case.rates * shares).sum(axis=1) / required
    assert np.sort(mine) == pytest.approx(np.sort(lexicographic(case, required)), rel=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_ratio_is_where_it_just_can_be_kept(seed: int) -> None:
    """By bisection on whether all can have the throughput that a ratio asks for."""
    case, random = Case.drawn(seed), np.random.default_rng(seed)
    jobs = len(case.gpus)
    remaining, elapsed = random.uniform(1, 1000, jobs), random.choice([0.0, 300.0, 2000.0], jobs)
    problem = each(case.rates, case.gpus.tolist(), case.capacity.tolist())
    alone_s = remaining * random.uniform(1, 10, jobs)
    ratio, _ = least_ratio(problem, elapsed, remaining, alone_s)
    relative = Case(problem.rates, case.gpus, case.capacity)
    low, high = float((elapsed / alone_s).max()), 1e6
    for _ in range(60):
        middle = (low + high) / 2 if high < 2 * low else max(low * high, 1e-9) ** 0.5
        need = remaining / np.maximum(middle * alone_s - elapsed, 1e-300)
        nothing = np.zeros(relative.size() + 1)
        possible = need.max() < 1e9 and relative.program(nothing, np.zeros(jobs), need).status == 0
        low, high = (low, middle) if possible else (middle, high)
    assert ratio == pytest.approx(high, rel=1e-4)


@pytest.mark.parametrize("gpus", [[4, 4], [1, 3, 4, 4, 3], [2, 4, 8], [3, 3, 2, 1, 1], [8, 1, 8, 2]])
def test_rounds_are_those_of_the_papers_priorities(gpus: list[int]) -> None:
    """X over the rounds received, X the same all the time, a job that does not fit is skipped: 600 rounds.
    Gangs cannot always fill the cluster as X does, here as in the plain rounds.
    """
    low, high = 0.0, 8.0
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if sum(min(n, level) for n in gpus) <= 8 else (low, level)
    shares, received = [min(1.0, low / n) for n in gpus], [0] * len(gpus)
    for _ in range(600):
        free = 8
        ratios = [round(x / n, 9) if n else float("inf") for x, n in zip(shares, received, strict=True)]
        for i in sorted(range(len(gpus)), key=lambda i: (-ratios[i], -shares[i], i)):
            if gpus[i] <= free:
                free -= gpus[i]
                received[i] += 1
    jobs = [Job(str(i), 0.0, gpus=n, duration_s=1e7) for i, n in enumerate(gpus)]
    outcome = simulate(jobs, GavelMaxMin(round_s=10.0), "n1g8", until_s=6000.0)
    held = [outcome.of(str(i)).gpu_seconds / (n * 10.0) for i, n in enumerate(gpus)]
    assert held == pytest.approx(received, abs=3)
