"""The bound of an instance, by a method of choice."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from math import fsum, inf
from time import perf_counter
from typing import NamedTuple

import numpy as np

from itertime.errors import UnknownName

from .area import alone_s, srpt_mean_s, type_weights
from .columns import Floats, OptionColumns
from .deadlines import met_at_most, p99_s
from .instance import Instance
from .makespan import makespan_by_area_s, makespan_s
from .mean import DualPrices, search_prices

__all__ = ["METHODS", "Bound", "bound_of", "is_settled", "method_of", "prices_of"]

METHODS = ("auto", "best", "alone", "area", "quick", "prices")
_QUICK_OPERATIONS, _PRICES_OPERATIONS = 30_000, 250_000  # jobs x options, up to which prices are computed
_FEW_JOBS = 100  # up to which each step counts, and one more is cheap
_SOME_JOBS, _MANY_JOBS = 500, 2000  # beyond each of which `prices` takes fewer steps
_SETTLED = 1.01  # times its bound: a mean JCT so near is not worth a search for prices
_DIGITS, _ERROR = 9, 1e-9  # of stated values; relative, more than the rounding errors of a run and of a bound


class _Effort(NamedTuple):
    """Steps of the ascents for the mean (`near_steps` where the first prices are good), the deadlines and the
    p99, the intervals that jobs see in all, and the JCTs that are tried for a statistic of the p99.
    """

    steps: int = 0
    near_steps: int | None = None
    visits: int = 0
    deadline_steps: int = 0
    deadline_visits: int = 0
    late_steps: int = 0
    late_trials: int = 0


@dataclass(frozen=True)
class Bound:
    """What no schedule of an instance can beat. Values are None where they are undefined: no job, or none
    with a deadline.

    `jct_mean_s`, `jct_p99_s`, `makespan_s`: at least that. `deadline_met_ratio`: at most that. `method`: the
    one that was used. `seconds`: how long it took, the one field that differs from call to call.
    """

    jct_mean_s: float | None
    jct_p99_s: float | None
    makespan_s: float | None
    deadline_met_ratio: float | None
    method: str
    seconds: float


def bound_of(
    instance: Instance,
    method: str = "auto",
    *,
    times: bool = True,
    met_ratio: float = 0.0,
    area: Bound | None = None,
) -> Bound:
    """The bound of `instance` by one of `METHODS`; UnknownName for another. Without `times` only deadlines
    are bounded, and the times are None. Two values save time alone. `met_ratio`: the share of deadlines that
    some run met; a search for prices ends where they prove that no run meets more. `area`: the bound of the
    same instance by that method, which `quick` and `prices` begin with.

    | method | mean JCT | p99 | makespan | deadlines |
    |---|---|---|---|---|
    | `alone` | each job alone | each job alone | each job alone | those met alone |
    | `area` | or SRPT on one machine | each job alone | or area, or speed in time | those met alone |
    | `quick` | or prices, 2 to 8 steps | each job alone | as `area` | or prices, 8 steps |
    | `prices` | or prices, 20 to 100 steps | or prices | as `area` | or prices, 32 steps |

    Each takes the best of what stands there and above. `auto` is `quick`, for many jobs `area`: about as long
    as a simulation. `best` is `prices`, for very many jobs `area`: at most minutes (`method_of`). Times are
    rounded down, by more than the rounding errors of a run. The ratio is that of two counts.
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    began = perf_counter()
    method = method_of(instance, method)
    columns = OptionColumns.of(instance)
    if not len(columns):
        met = 0.0 if instance.deadline_jobs else None
        return Bound(None, None, None, met, method, perf_counter() - began)
    effort = _effort(columns, method)
    mean_s, late_s, span_s = _times(columns, effort, method, area) if times else (None, None, None)
    return Bound(
        jct_mean_s=mean_s,
        jct_p99_s=late_s,
        makespan_s=span_s,
        deadline_met_ratio=_met_ratio(columns, instance.deadline_jobs, effort, met_ratio),
        method=method,
        seconds=perf_counter() - began,
    )


def _times(
    columns: OptionColumns, effort: _Effort, method: str, area: Bound | None
) -> tuple[float, float, float]:
    """The least mean JCT, 99th percentile and makespan, rounded down; seconds."""
    error_s = columns.clock_error_s
    least_s = alone_s(columns)
    if area is None or area.jct_mean_s is None or area.makespan_s is None:
        mean_s, makespan = (_down(value, error_s) for value in _times_by_area(columns, least_s, method))
    else:
        mean_s, makespan = area.jct_mean_s, area.makespan_s
    if effort.steps:
        known_s = mean_s if method == "quick" else 0.0
        prices = search_prices(
            columns, effort.steps, effort.visits, near_steps=effort.near_steps, known_s=known_s
        )
        mean_s = max(mean_s, _down(prices.mean_s, error_s))
    late_s = p99_s(
        columns, least_s, steps=effort.late_steps, visits=effort.deadline_visits, trials=effort.late_trials
    )
    return mean_s, _down(late_s, error_s), makespan


def _times_by_area(columns: OptionColumns, least_s: Floats, method: str) -> tuple[float, float]:
    """The least mean JCT and makespan by `area`, or by `alone`; seconds."""
    makespan = float(np.max(columns.release_s + least_s) - np.min(columns.release_s))
    mean_s = fsum(least_s.tolist()) / len(least_s)
    if method != "alone":
        for weights in type_weights(columns):
            mean_s = max(mean_s, srpt_mean_s(columns, weights))
            makespan = max(makespan, makespan_by_area_s(columns, weights))
            makespan = max(makespan, makespan_s(columns, weights, makespan))
    return mean_s, makespan


def prices_of(instance: Instance) -> DualPrices:
    """The prices that prove the bound of the mean JCT by the method `prices`. ValueError without jobs."""
    columns = OptionColumns.of(instance)
    if not len(columns):
        raise ValueError("an instance without jobs has no prices")
    effort = _effort(columns, "prices")
    return search_prices(columns, effort.steps, effort.visits)


def _met_ratio(columns: OptionColumns, deadline_jobs: int, effort: _Effort, run_ratio: float) -> float | None:
    """The most jobs that can meet their deadline, over those that have one; None if none has. `run_ratio`:
    the share that some run met.

    *Proof that it needs no rounding up.* The metric of a run is k / n of two whole numbers, and this is m / n
    of the same n, where m is whole and at least k (`met_at_most`). Division rounds both alike, and rounding
    keeps their order. []

    *Proof that `run_ratio` changes no value.* The search ends at m = k, and m is never less than k. []
    """
    if not deadline_jobs:
        return None
    met = met_at_most(
        columns,
        columns.deadline_s,
        steps=effort.deadline_steps,
        visits=effort.deadline_visits,
        enough=round(run_ratio * deadline_jobs) or -inf,
    )
    return met / deadline_jobs


def method_of(instance: Instance, method: str) -> str:
    """`method`, or what `auto` and `best` stand for: by the number of jobs times the options of a job."""
    if method not in ("auto", "best"):
        return method
    sizes = {id(job.options): sum(len(option.sizes) for option in job.options) for job in instance.jobs}
    operations = sum(sizes[id(job.options)] for job in instance.jobs)
    if method == "auto":
        return "quick" if operations <= _QUICK_OPERATIONS else "area"
    return "prices" if operations <= _PRICES_OPERATIONS else "area"


def is_settled(bound: Bound, mean_s: float | None, met_ratio: float | None) -> bool:
    """Whether a run is as good as its bound, so that no better one would tell more: its mean JCT within 1 %,
    and as many deadlines met as the bound allows.
    """
    times = bound.jct_mean_s is None or mean_s is None or mean_s <= _SETTLED * bound.jct_mean_s
    deadlines = bound.deadline_met_ratio is None or met_ratio is None or met_ratio >= bound.deadline_met_ratio
    return times and deadlines


def _effort(columns: OptionColumns, method: str) -> _Effort:
    jobs = len(columns)
    if method == "quick":
        steps = 6 if columns.rigid else 7 if jobs > _FEW_JOBS else 8
        near_steps = 2 if jobs > _FEW_JOBS else None
        return _Effort(steps, near_steps, 2_000 + 2 * jobs, 8, 1_000 + jobs)
    if method == "prices":
        steps = 20 if jobs > _MANY_JOBS else 60 if jobs > _SOME_JOBS else 100
        return _Effort(steps, None, max(30_000, 20 * jobs), 32, max(10_000, 4 * jobs), 16, 8)
    return _Effort()


def _down(value: float, error: float) -> float:
    """`value`, at least 0, less its rounding errors, rounded down."""
    rounded_down = max(0.0, value * (1 - _ERROR) - error)
    return float(Context(prec=_DIGITS, rounding=ROUND_FLOOR).create_decimal_from_float(rounded_down))
