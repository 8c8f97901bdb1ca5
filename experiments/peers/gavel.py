"""Gavel's linear programs: how good the shares of time are.

Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel at c4fa400. Programs may have several
solutions, so that the value of what they optimise is compared and not the shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from experiments.peers.rows import instances, percent
from policies.gavel_ftf import GavelFtf
from policies.gavel_makespan import GavelMakespan
from policies.gavel_max_min import GavelMaxMin, equal_time
from policies.gavel_throughput import GavelThroughput
from policies.toolkit.gavel import Gavel

__all__ = ["TOLERANCE", "Instance", "Program", "programs"]

Array = NDArray[np.float64]
TOLERANCE = 1e-4
"""Of a value, between solvers of linear programs; shares are stated with six decimals."""


@dataclass(frozen=True)
class Program:
    """A policy here beside a program there. `differences` (instances,): ours over theirs, less 1, of what
    `value` names.
    """

    here: str
    there: str
    value: str
    differences: Array

    @property
    def equal(self) -> int:
        return int((abs(self.differences) <= TOLERANCE).sum())

    def cells(self) -> tuple[str, ...]:
        equal = f"{self.equal} of {len(self.differences)}"
        extremes = f"{percent(self.differences.min())} to {percent(self.differences.max())}"
        return f"`{self.here}`", f"`{self.there}`", self.value, equal, extremes


@cache  # the page and its tests ask for the same
def programs(folder: Path, most: int | None = None) -> list[Program]:
    """All instances, or the first `most`, under the four policies."""
    entries = instances(folder / "gavel_allocations.json.gz")[:most]
    all_of = [Instance(entry) for entry in entries]
    weighted = [Instance(entry, weighted=True) for entry in entries]
    alike = [Instance(entry, alike=True) for entry in entries]
    filled = [one.shares(GavelMaxMin()) for one in all_of]
    values: dict[tuple[str, str, str], list[float]] = {
        ("gavel-max-min", "max_min", "lowest level, the higher the better"): [
            one.levels(mine)[0] / one.levels(one.theirs["max_min"])[0]
            for one, mine in zip(all_of, filled, strict=True)
        ],
        ("gavel-max-min", "water_filling", "lowest of the levels that differ"): [
            one.first_difference(one.levels(mine), one.levels(one.theirs["water_filling"]))
            for one, mine in zip(all_of, filled, strict=True)
        ],
        ("gavel-max-min", "max_min_weights", "lowest level by weight, the higher the better"): [
            one.levels(one.shares(GavelMaxMin()))[0] / one.levels(one.theirs["max_min_weights"])[0]
            for one in weighted
        ],
        ("gavel-max-min", "max_min_no_perf", "lowest level at equal speeds, the higher the better"): [
            one.levels(one.shares(GavelMaxMin()))[0] / one.levels(one.theirs["max_min_no_perf"])[0]
            for one in alike
        ],
        ("gavel-ftf", "ftf", "largest finish-time ratio, the lower the better"): [
            one.ratio(one.shares(GavelFtf())) / one.ratio(one.theirs["ftf"]) for one in all_of
        ],
        ("gavel-makespan", "makespan", "makespan, the lower the better"): [
            one.makespan_s(one.shares(GavelMakespan())) / one.makespan_s(one.theirs["makespan"])
            for one in all_of
        ],
        ("gavel-throughput", "throughput_normalised", "sum of relative speeds, the higher the better"): [
            one.relative(one.shares(GavelThroughput())) / one.relative(one.theirs["throughput_normalised"])
            for one in all_of
        ],
        ("gavel-throughput, rates=raw", "throughput", "sum of iterations/s, the higher the better"): [
            one.raw(one.shares(GavelThroughput(rates="raw"))) / one.raw(one.theirs["throughput"])
            for one in all_of
        ],
    }
    return [Program(*names, np.array(ratios) - 1) for names, ratios in values.items()]


@dataclass(frozen=True)
class _Job:
    """A job as the policies see it. `best`: its iterations/s on its best type."""

    order: int
    requested: int
    submit_s: float
    steps: float
    best: float
    weight: float

    def oracle_remaining(self) -> float:
        return self.steps / self.best


class Instance:
    """An instance of the file: `rates` (jobs, types) in iterations/s, `gpus` (jobs,), `capacity` (types,) in
    GPUs, `steps` (jobs,) left, `age_s` (jobs,) since submission, `weights` (jobs,).

    Without `weighted` all jobs weigh 1. With `alike` every job is equally fast on every type, as Gavel's
    policies without performance have it.
    """

    def __init__(self, entry: Mapping[str, Any], weighted: bool = False, alike: bool = False):
        stated, types = entry["instance"]["jobs"], entry["types"]
        self.capacity = [int(entry["instance"]["cluster"][name]) for name in types]
        self.gpus = np.array([job["gpus"] for job in stated], dtype=float)
        able = np.array([[job["gpus"] <= n for n in self.capacity] for job in stated])
        speeds = np.array([[1.0 if alike else job["rates"][name] for name in types] for job in stated])
        self.rates = speeds * able
        self.steps = np.array([job["steps"] for job in stated], dtype=float)
        self.age_s = np.array([job["age_s"] for job in stated], dtype=float)
        self.weights = np.array([job["priority"] if weighted else 1 for job in stated], dtype=float)
        self.theirs = {name: np.array(shares) for name, shares in entry["gavel"].items()}

    def shares(self, policy: Gavel) -> Array:
        """X (jobs, types) of a policy."""
        jobs = [
            _Job(i, int(self.gpus[i]), -self.age_s[i], self.steps[i], self.rates[i].max(), self.weights[i])
            for i in range(len(self.gpus))
        ]
        return policy.time_shares(cast(list[JobView], jobs), self.rates, self.capacity, 0.0)

    def throughput(self, shares: Array) -> Array:
        """Iterations/s (jobs,)."""
        return (self.rates * shares).sum(axis=1)

    def levels(self, shares: Array) -> Array:
        """Throughput times GPUs over the throughput with equal time on every type and the weight,
        ascending.
        """
        equal = self.throughput(
            np.tile(equal_time(np.array(self.capacity, dtype=float)), (len(self.gpus), 1))
        )
        return np.sort(self.throughput(shares) * self.gpus / (equal * self.weights))

    def first_difference(self, ours: Array, theirs: Array) -> float:
        """Ours over theirs at the lowest level where two ascending vectors differ; 1 if nowhere."""
        ratios = ours / theirs
        differ = np.flatnonzero(abs(ratios - 1) > TOLERANCE)
        return float(ratios[differ[0]]) if len(differ) else 1.0

    def ratio(self, shares: Array) -> float:
        """The largest finish-time ratio, as Gavel has it for jobs that it sees for the first time: seconds
        from submission to finish over those of the steps left with the isolated shares.
        """
        alone_s = self.steps / self.throughput(self.theirs["isolated"])
        left_s = self.steps / np.maximum(self.throughput(shares), 1e-12)
        return float(((self.age_s + left_s) / alone_s).max())

    def makespan_s(self, shares: Array) -> float:
        """When the last job finishes if the shares stay."""
        return float((self.steps / np.maximum(self.throughput(shares), 1e-12)).max())

    def relative(self, shares: Array) -> float:
        """The sum of throughputs relative to each job's best type."""
        return float((self.throughput(shares) / self.rates.max(axis=1)).sum())

    def raw(self, shares: Array) -> float:
        """The sum of throughputs, in iterations/s."""
        return float(self.throughput(shares).sum())
