"""How much the jobs that share a GPU slow each other down.

A job that shares its GPU with others takes, for a unit of work,

    seconds alone on the GPU x the product over the other jobs of slowdown(its model, their model).

With one slowdown s for all, each of k jobs takes s^(k - 1) times as long as alone. The product is a model: it
needs one number a pair of models, which two jobs on one GPU show.

Where the models of all jobs on a GPU have a profile, they are interleaved instead (Zhao et al.,
"Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022, Muri). A profile states how an
iteration divides among stages that use one resource each, in this order: storage, CPU, GPU, network. The jobs
go through their stages in step, each on another resource, so a round of four steps takes

    sum over steps of the longest stage of any job in that step

times an iteration alone, with the offsets between the jobs for which this is least. The paper adds seconds;
here iterations count as equally long, so that a slowdown depends on models alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations_with_replacement, permutations
from math import comb, isclose, prod
from typing import Any, Generic, TypeVar

from clustersim.cluster import Placement, SharedPlacement
from itertime.errors import UnknownName, UserError, quoted
from traces.job import Job

__all__ = ["MOST_SLOWDOWN", "CoRunners", "Interference", "Packing"]

MOST_SLOWDOWN = 1000.0
"""The largest slowdown of a pair."""

_STAGES = 4  # storage, CPU, GPU, network
_MOST_GROUPS = 20_000  # that `Packing.density` compares

_Key = tuple[Placement, int]
Sharer = TypeVar("Sharer", bound=Hashable)


@dataclass(frozen=True)
class Interference:
    """`slowdown`: how many times longer a unit of work takes beside one other job, at least 1.

    `pairs`: the same by the models of the job and of the other one, {model: {other model: slowdown}}, where
    it states them. `profiles`: by model, the shares of storage, CPU, GPU and network in an iteration, which
    add up to 1. UserError for anything else.
    """

    slowdown: float = 1.0
    pairs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    profiles: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("slowdown", self.slowdown)
        for model, row in _mapping("pairs", self.pairs):
            for co_runner, slowdown in _mapping(f"pairs.{model}", row):
                _check(f"pairs.{model}.{co_runner}", slowdown)
        for model, shares in _mapping("profiles", self.profiles):
            _check_profile(f"profiles.{model}", shares)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Interference:
        """From settings by name. UserError for an unknown name or a bad value."""
        for name in settings:
            if name not in ("slowdown", "pairs", "profiles"):
                raise UnknownName("parameter of sharing", str(name), ["slowdown", "pairs", "profiles"])
        return cls(**settings)

    def stated(self) -> dict[str, Any]:
        """The parameters as plain JSON data; `Interference.of` reads them again."""
        document = {
            "slowdown": self.slowdown,
            "pairs": {model: dict(row) for model, row in self.pairs.items()},
        }
        if not self.profiles:
            return document
        return {**document, "profiles": {model: list(shares) for model, shares in self.profiles.items()}}

    def factor(self, model: str, co_runners: Iterable[str]) -> float:
        """How many times longer a job of `model` takes beside jobs of these models."""
        if self.profiles:
            together = [model, *co_runners]
            profiles = [tuple(self.profiles[name]) for name in together if name in self.profiles]
            if 1 < len(together) == len(profiles) <= _STAGES:
                return _round_of(tuple(sorted(profiles)))
            co_runners = together[1:]
        row = self.pairs.get(model, {})
        factors = [row.get(co_runner, self.slowdown) for co_runner in co_runners]
        return prod(sorted(factors))  # in any order of the jobs the same digits


@lru_cache(10_000)
def _round_of(profiles: tuple[tuple[float, ...], ...]) -> float:
    """How long a round of interleaved jobs with these profiles takes, in iterations alone; at least 1."""
    fixed_profile, *shifted_profiles = profiles
    shortest_round = float("inf")
    for offsets in permutations(range(1, _STAGES), len(shifted_profiles)):
        moved = [fixed_profile, *(p[o:] + p[:o] for p, o in zip(shifted_profiles, offsets, strict=True))]
        shortest_round = min(shortest_round, sum(max(stages) for stages in zip(*moved, strict=True)))
    return max(1.0, shortest_round)


@dataclass(frozen=True)
class Packing:
    """The most jobs that a policy runs on the same GPUs, and how much they slow each other down."""

    most: int
    interference: Interference

    def density(self, jobs: Iterable[Job]) -> float:
        """The most work that GPUs do at a time for jobs that share them, in jobs alone on them: over all
        groups the greatest sum of 1 / slowdown. `most` if the jobs have too many models to try all groups, or
        hold parts of GPUs by their trace.
        """
        if self.most == 1:
            return 1.0
        models, shares = dict[str, None](), False
        for job in jobs:
            models[job.model or ""] = None
            shares |= job.gpu_fraction is not None
        sizes = range(2, self.most + 1)
        if shares or sum(comb(len(models) + k - 1, k) for k in sizes) > _MOST_GROUPS:
            return float(self.most)
        groups = (group for k in sizes for group in combinations_with_replacement(models, k))
        return max(1.0, max(map(self._work, groups), default=1.0))

    def _work(self, group: Sequence[str]) -> float:
        factor = self.interference.factor
        return sum(1 / factor(model, [*group[:i], *group[i + 1 :]]) for i, model in enumerate(group))


def _check_profile(name: str, shares: object) -> None:
    listed = list(shares) if isinstance(shares, Sequence) and not isinstance(shares, str) else []
    sound = all(isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1 for x in listed)
    if len(listed) != _STAGES or not sound or not isclose(sum(listed), 1.0, abs_tol=1e-6):
        rule = "must be the shares of storage, CPU, GPU and network in an iteration, which add up to 1"
        raise UserError(f"sharing.{name}={quoted(shares)}: {rule}")


def _check(name: str, value: object) -> None:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not 1 <= value <= MOST_SLOWDOWN:  # type: ignore[operator]
        raise UserError(f"sharing.{name}={quoted(value)}: must be a number from 1 to {MOST_SLOWDOWN:g}")


def _mapping(name: str, value: object) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise UserError(
            f"sharing.{name}={quoted(value)}: must map models to slowdowns, as in {{a: {{b: 1.2}}}}"
        )
    for model in value:
        if not isinstance(model, str):
            raise UserError(f"sharing.{name}: the name {quoted(model)} is no text; put it in quotes")
    return list(value.items())


class CoRunners(Generic[Sharer]):
    """The running jobs that share GPUs, and how much each is slowed down. `model_of`: the model of a job, ""
    if it states none.
    """

    def __init__(self, interference: Interference, model_of: Callable[[Sharer], str]):
        self._interference, self._model_of = interference, model_of
        self._together: dict[_Key, dict[Sharer, None]] = {}
        self._where: dict[Sharer, _Key] = {}
        self._factors: dict[Sharer, float] = {}
        self._touched: dict[_Key, None] = {}

    def move(self, changes: Mapping[Sharer, Placement | None]) -> dict[Sharer, float]:
        """Move jobs to these placements; None: the job releases its GPUs. Returns the factors by which the
        seconds of a unit of work grow, of the jobs that got part of a GPU and of those whose factor changed
        since the last call.
        """
        for job in changes:
            self.forget(job)
        for job, placement in changes.items():
            if isinstance(placement, SharedPlacement):
                self._where[job] = key = placement.key
                self._together.setdefault(key, {})[job] = None
                self._touched[key] = None
        changed: dict[Sharer, float] = {}
        for key in self._touched:
            jobs = self._together.get(key, {})
            models = {job: self._model_of(job) for job in jobs}
            for job, model in models.items():
                factor = self._interference.factor(
                    model, [models[co_runner] for co_runner in jobs if co_runner != job]
                )
                if self._factors.get(job) != factor:
                    self._factors[job] = changed[job] = factor
        self._touched = {}
        return changed

    def forget(self, job: Sharer) -> None:
        """Remove `job`, which holds no GPUs any more. Nothing happens if it shares none."""
        key = self._where.pop(job, None)
        if key is None:
            return
        self._factors.pop(job, None)
        jobs = self._together[key]
        del jobs[job]
        self._touched[key] = None
        if not jobs:
            del self._together[key]
