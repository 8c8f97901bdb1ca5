"""The input of an audit (`Evidence`), its result (`Finding`, `Violation`), and its tolerances.

The tables of a run folder round times to `RESOLUTION_S`. Two numbers are equal if rounding can explain their
difference. Speeds, which the event log states as seconds per unit, keep every digit: they agree to
`RELATIVE`, the error of floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from types import MappingProxyType
from typing import Any, NamedTuple

from clustersim.cluster import Cluster
from clustersim.failures import Failures, Reservation
from clustersim.overheads import Overheads
from clustersim.records import EventRecord, JobRecord
from clustersim.speed import Slowdown
from itertime.errors import UserError, quoted
from itertime.spec import DEFAULT_USD_PER_GPU_HOUR

__all__ = [
    "MOST_KEPT",
    "RELATIVE",
    "RESOLUTION_S",
    "WORK_EPSILON",
    "Evidence",
    "FactsOf",
    "Finding",
    "JobFacts",
    "Violation",
    "agrees",
    "as_stated",
    "slack_s",
    "stated_bound",
    "stated_number",
    "stated_price",
]

MOST_KEPT = 1000
"""The violations of a rule that are kept as text; further ones are only counted."""

# Tolerances

RESOLUTION_S = 1e-6
"""The resolution of numbers in the tables of a run folder."""

RELATIVE = 1e-9
"""The relative error that floating point leaves in a long sum, or in one product computed in two ways."""

WORK_EPSILON = 1e-9
"""Units of work that floating point may leave in a job that fails before any work."""

_BOUNDS = ("jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio")
_LARGEST = 1e15  # larger numbers in a manifest are nonsense; products of smaller ones do not overflow


def agrees(a: float | None, b: float | None, error: float = 0.0, *, relative: float = RELATIVE) -> bool:
    """Whether two numbers differ by at most `error` or the share `relative`. None agrees with None alone."""
    if a is None or b is None:
        return a is b
    return isclose(a, b, rel_tol=relative, abs_tol=error)


def as_stated(recorded: Any, value: Any, roundings: int = 1) -> bool:
    """Whether a cell of a table states `value`. Floats may differ by the rounding of the table, `roundings`
    times: once if the value is exact, twice if the value is a difference of two numbers of the table.
    """
    if recorded == value:
        return True
    numbers = isinstance(recorded, float) and isinstance(value, float)
    return numbers and agrees(recorded, value, roundings * RESOLUTION_S)


def slack_s(now: float, error: float) -> float:
    """How far a recomputed time may lie from the recorded time `now`, which is known to within `error`."""
    return RELATIVE * abs(now) + error


# Input


class JobFacts(NamedTuple):
    """What is known of a job apart from the log; None if unknown.

    `work`: units of work, to within `work_error`. `unit_s`: seconds per unit, by number of GPUs.
    `only_known_sizes`: the job can run on the numbers of GPUs in `unit_s` alone. `parameters`: parameters of
    its model, which give the size of its checkpoints.
    """

    work: float | None = None
    work_error: float = 0.0
    unit_s: Mapping[int, float] = MappingProxyType({})
    only_known_sizes: bool = False
    parameters: float | None = None


FactsOf = Callable[[JobRecord | None, EventRecord | None, bool], JobFacts]
"""The facts of a job, from its record, its first event in the log (None if there is none), and whether the
job runs training plans.
"""


@dataclass(frozen=True)
class Evidence:
    """What a run left behind. `events` are in order of time, `records` in order of submission; both are
    iterated several times.

    `end_s`: the run ended then or later. If None, nothing is proved about allocations and waits that last
    until the end. `resolution_s`: the largest error of a difference of two recorded times. `reclaims`:
    whether nodes are reclaimed with notice.
    `price_usd_per_gpu_h`: of GPU types without a price, where the cluster states one for others.
    `slowdown`: what made jobs slower than predicted; None: nothing did.
    `packs`: the most jobs that the policy ran on the same GPUs. `idle_stops`: how many jobs at most lost GPUs
    to the policy that no job got; None if that is unknown.
    """

    cluster: Cluster
    overheads: Overheads
    events: Iterable[EventRecord]
    records: Iterable[JobRecord]
    facts_of: FactsOf
    end_s: float | None = None
    resolution_s: float = 0.0
    failures: Failures | None = None
    reservations: tuple[Reservation, ...] = ()
    reclaims: bool = False
    price_usd_per_gpu_h: float = DEFAULT_USD_PER_GPU_HOUR
    slowdown: Slowdown | None = None
    packs: int = 1
    idle_stops: int | None = None

    @property
    def as_predicted(self) -> bool:
        """Whether every job runs at its predicted speed."""
        return self.slowdown is None

    def in_truth(self, unit_s: float, allocation: EventRecord, model: str) -> float:
        """The seconds per unit of work of a job that trains `model` ("": none), where `unit_s` are predicted.
        `allocation`: the event that gave it its GPUs.
        """
        if self.slowdown is None:
            return unit_s
        placement = tuple(
            (node, gpus) for node, gpus in allocation.placement if 0 <= node < self.cluster.nodes
        )
        by_steps, by_nodes = self.slowdown.factors(allocation.job_id, model, allocation.gpus, placement)
        return unit_s * by_steps * by_nodes


def stated_number(manifest: Mapping[str, Any], name: str) -> float:
    """A number of a manifest. UserError if the value is not a number, negative or absurdly large."""
    value = manifest.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise UserError(f"manifest.json: {name}={quoted(value)}: must be from 0 to {_LARGEST:g}; run again")
    return float(value)


def stated_bound(manifest: Mapping[str, Any]) -> dict[str, float | None] | None:
    """The bounds of mean, 99th percentile, makespan and deadlines met in a manifest, by their metrics; None
    if it states none. UserError for anything but numbers, or None, under all of these names.
    """
    recorded_bound = manifest.get("bound")
    if recorded_bound is None:
        return None
    if not isinstance(recorded_bound, dict) or set(recorded_bound) != {*_BOUNDS, "method"}:
        names = ", ".join(_BOUNDS)
        raise UserError(
            f"manifest.json: bound={quoted(recorded_bound)}: must state {names} and method; run again"
        )
    return {
        name: None if recorded_bound[name] is None else stated_number(recorded_bound, name)
        for name in _BOUNDS
    }


def stated_price(manifest: Mapping[str, Any]) -> float:
    """The price of a GPU-hour in a manifest, US dollars; the default if it states none."""
    name = "price_usd_per_gpu_h"
    return stated_number(manifest, name) if name in manifest else DEFAULT_USD_PER_GPU_HOUR


# Result


class Violation(NamedTuple):
    """A broken rule, as a sentence. `event` (counted from 0), `time_s` and `job_id` are its place in the log,
    if it has one.
    """

    text: str
    event: int | None = None
    time_s: float | None = None
    job_id: str | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on one rule. Without violations the rule is proved, apart from `unproved`: what the
    evidence neither proves nor refutes.

    `violations`: the first `MOST_KEPT`; `more` counts the others.
    """

    rule: str
    text: str
    violations: tuple[Violation, ...]
    unproved: str = ""
    more: int = 0
