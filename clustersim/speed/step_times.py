"""How much slower than predicted jobs run: interference, and workers whose steps take unequal times.

| what | factor of the time of a step |
|---|---|
| interference | 1 + (`slowdown` - 1) x a log-normal factor of the job: mean 1, standard deviation `spread` |
| unequal workers | 1 + `worker_cv` x e(GPUs) |

All workers of a synchronous job wait for the slowest one. If the times of a step are normal over workers,
with a coefficient of variation `worker_cv`, the slowest of n takes 1 + `worker_cv` x e(n) times the mean.
e(n) is the expected maximum of n standard normal variables, the integral of x n f(x) F(x)^(n-1) (David and
Nagaraja, "Order Statistics", third edition, 2003, section 3.1).

Both factors are at least 1, so what no schedule can beat at the predicted speeds, none beats here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from math import erf, exp, fsum, log1p, pi, sqrt
from typing import Any

from itertime.errors import UnknownName, UserError, quoted
from traces.workload import stream

__all__ = ["StepTimes", "expected_maximum"]

_RANGES = {"slowdown": (1.0, 1000.0), "spread": (0.0, 10.0), "worker_cv": (0.0, 10.0)}
_GRID = [i / 100 for i in range(-900, 901)]  # the trapezoid rule is exact to 1e-9 on it, up to 1e7 workers
_DENSITY = [exp(-x * x / 2) / sqrt(2 * pi) / 100 for x in _GRID]
_BELOW = [(1 + erf(x / sqrt(2))) / 2 for x in _GRID]


@dataclass(frozen=True)
class StepTimes:
    """How steps differ from the predicted ones; see the module. UserError for a value out of range.

    >>> round(StepTimes(slowdown=1.1, worker_cv=0.05).factor("a job", 8, seed=0), 4)
    1.1783
    """

    slowdown: float = 1.0
    spread: float = 0.0
    worker_cv: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                rule = f"must be a number from {low:g} to {high:g}"
                raise UserError(f"step_time.{name}={quoted(value)}: {rule}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> StepTimes:
        """From settings by name. UnknownName for a name that does not exist."""
        field_names = [f.name for f in fields(cls)]
        for name in settings:
            if name not in field_names:
                raise UnknownName("step_time", str(name), field_names)
        return cls(**settings)

    def stated(self) -> dict[str, float]:
        """The values as plain JSON data; `StepTimes.of` reads them again."""
        return asdict(self)

    def factor(self, job_id: str, gpus: int, seed: int) -> float:
        """How many times as long as predicted a step of the job takes on `gpus` GPUs, at least 1. It depends
        on these arguments alone, so it is the same under every policy.
        """
        workers = 1 + self.worker_cv * expected_maximum(gpus) if self.worker_cv else 1.0
        if not self.spread:
            return self.slowdown * workers
        return (1 + (self.slowdown - 1) * _drawn(job_id, self.spread, seed)) * workers


@lru_cache(100_000)
def _drawn(job_id: str, spread: float, seed: int) -> float:
    """A log-normal factor of mean 1."""
    variance = log1p(spread * spread)  # of the logarithm
    normal = float(stream(seed, f"interference of {job_id}").standard_normal())
    return exp(sqrt(variance) * normal - variance / 2)


@cache
def expected_maximum(n: int) -> float:
    """The mean of the largest of `n` independent standard normal variables.

    >>> [round(expected_maximum(n), 3) for n in (1, 2, 8, 1024)]
    [0.0, 0.564, 1.424, 3.248]
    """
    if n < 2:
        return 0.0
    densities = zip(_GRID, _DENSITY, _BELOW, strict=True)
    return fsum(x * n * density * below ** (n - 1) for x, density, below in densities)
