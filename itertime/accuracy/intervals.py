"""Intervals of predictions: the range of measured over predicted seconds, by class of plan.

The table `residuals/measured_over_predicted.json` holds the ranges in which nine in ten runs of an unseen
site should lie, computed from published runs. It repeats all ranges with each set of runs left out, so that
`validate` can measure the coverage of the intervals on that set.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.spec import ModelSpec, Plan, System

__all__ = [
    "CLASSES",
    "LEVEL",
    "TABLE",
    "Ranges",
    "conformal_range",
    "interval_s",
    "load_ranges",
    "plan_class",
]

TABLE = Path(__file__).parents[1] / "residuals" / "measured_over_predicted.json"
LEVEL = 0.9
SMALL_HIDDEN = 2048
CLASSES = {
    "small": f"hidden size of {SMALL_HIDDEN} or less: launch-bound",
    "tp-across-nodes": "tensor parallelism over more than one node",
    "pipeline": "pipeline parallelism",
    "sharded": "ZeRO-2, ZeRO-3, FSDP",
    "zero-1": "ZeRO-1 without a pipeline",
    "tensor": "tensor parallelism in a node, no pipeline",
    "data": "data parallelism alone",
}


@dataclass(frozen=True)
class Ranges:
    """Measured over predicted seconds, lowest and highest, by class; `pooled` for a class with few runs."""

    profile: str
    by_class: Mapping[str, tuple[float, float]]
    pooled: tuple[float, float]

    def of(self, name: str) -> tuple[float, float]:
        return self.by_class.get(name, self.pooled)


def plan_class(model: ModelSpec, plan: Plan, system: System) -> str:
    """The first of `CLASSES` that the plan belongs to."""
    if model.hidden <= SMALL_HIDDEN:
        return "small"
    if plan.tp > system.domain_gpus:
        return "tp-across-nodes"
    if plan.pp > 1:
        return "pipeline"
    if plan.zero_stage:
        return "sharded" if plan.zero_stage > 1 else "zero-1"
    return "tensor" if plan.tp > 1 else "data"


def interval_s(
    model: ModelSpec, plan: Plan, system: System, iteration_s: float, without: str = ""
) -> tuple[float, float] | None:
    """The interval in seconds that should hold nine in ten measured iterations, given the predicted seconds.

    A calibrated site has the range of its own held-out runs. Elsewhere the range is that of the plan's class,
    with the set `without` left out. None for a GPU with too few published runs.
    """
    found = system.site.measured_over_predicted
    if found is None:
        ranges = load_ranges(without)
        if system.profile != ranges.profile:
            return None
        found = ranges.of(plan_class(model, plan, system))
    return found[0] * iteration_s, found[1] * iteration_s


def conformal_range(ratios: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The range that holds the next ratio with probability `level`, if it is exchangeable with these.

    Split conformal prediction with equal tails (Lei et al. 2018, section 2.2): of n ratios, the ones of ranks
    floor((n + 1) (1 - level) / 2) and ceil((n + 1) (1 + level) / 2), or the extremes if n is too small.
    """
    ordered, count = sorted(ratios), len(ratios)
    rank = min(math.ceil((count + 1) * (1 + level) / 2 - 1e-9), count)
    return ordered[count - rank], ordered[rank - 1]


@functools.cache
def load_ranges(without: str = "") -> Ranges:
    """The shipped ranges, without the set `without` if they include it."""
    table = _table()
    entry = table["without"].get(without, table)
    by_class = {name: _pair(found["range"]) for name, found in entry["classes"].items()}
    return Ranges(profile=table["profile"], by_class=by_class, pooled=_pair(entry["pooled"]["range"]))


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def _pair(values: Sequence[float]) -> tuple[float, float]:
    low, high = values
    return low, high
