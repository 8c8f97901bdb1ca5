"""How much the jobs that share a GPU slow each other down.

A job that shares its GPU with others takes, for a unit of work,

    seconds alone on the GPU x the product over the other jobs of slowdown(its model, their model).

With one slowdown s for all, each of k jobs takes s^(k - 1) times as long as alone. The product is a model: it
needs one number a pair of models, which two jobs on one GPU show.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Generic, TypeVar

from clustersim.cluster import Placement, SharedPlacement
from itertime.errors import UnknownName, UserError, quoted

__all__ = ["MOST_SLOWDOWN", "CoRunners", "Interference"]

MOST_SLOWDOWN = 1000.0
"""The largest slowdown of a pair."""

_Key = tuple[Placement, int]
Sharer = TypeVar("Sharer", bound=Hashable)


@dataclass(frozen=True)
class Interference:
    """`slowdown`: how many times longer a unit of work takes beside one other job, at least 1.

    `pairs`: the same by the models of the job and of the other one, {model: {other model: slowdown}}, where
    it states them. UserError for anything else.
    """

    slowdown: float = 1.0
    pairs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("slowdown", self.slowdown)
        for model, row in _mapping("pairs", self.pairs):
            for other, slowdown in _mapping(f"pairs.{model}", row):
                _check(f"pairs.{model}.{other}", slowdown)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Interference:
        """From settings by name. UserError for an unknown name or a bad value."""
        for name in settings:
            if name not in ("slowdown", "pairs"):
                raise UnknownName("parameter of sharing", str(name), ["slowdown", "pairs"])
        return cls(**settings)

    def stated(self) -> dict[str, Any]:
        """The parameters as plain JSON data; `Interference.of` reads them again."""
        return {"slowdown": self.slowdown, "pairs": {model: dict(row) for model, row in self.pairs.items()}}

    def factor(self, model: str, others: Iterable[str]) -> float:
        """How many times longer a job of `model` takes beside jobs of these models."""
        row = self.pairs.get(model, {})
        return prod(sorted(row.get(other, self.slowdown) for other in others))  # in any order the same digits


def _check(name: str, value: object) -> None:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not 1 <= value <= MOST_SLOWDOWN:  # type: ignore[operator]
        raise UserError(f"sharing.{name}={quoted(value)}: must be a number from 1 to {MOST_SLOWDOWN:g}")


def _mapping(name: str, value: object) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise UserError(
            f"sharing.{name}={quoted(value)}: must map models to slowdowns, as in {{a: {{b: 1.2}}}}"
        )
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

    def after(self, changes: Mapping[Sharer, Placement | None]) -> dict[Sharer, float]:
        """Move jobs to these placements; None: the job releases its GPUs. Returns the factors by which the
        seconds of a unit of work grow, of the jobs that got part of a GPU and of those whose factor changed
        since the last call.
        """
        for job in changes:
            self.leave(job)
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
                factor = self._interference.factor(model, [models[other] for other in jobs if other != job])
                if self._factors.get(job) != factor:
                    self._factors[job] = changed[job] = factor
        self._touched = {}
        return changed

    def leave(self, job: Sharer) -> None:
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
