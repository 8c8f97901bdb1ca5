"""The bound of an instance, by a method of choice."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import fsum
from time import perf_counter

import numpy as np

from itertime.errors import UnknownName

from .alone import alone_s
from .area import makespan_by_area_s, srpt_mean_s, type_weights
from .columns import Columns
from .instance import Instance

__all__ = ["METHODS", "Bound", "bound_of"]

METHODS = ("auto", "alone", "area")
_DIGITS, _ERROR = 9, 1e-9


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


def bound_of(instance: Instance, method: str = "auto") -> Bound:
    """The bound of `instance` by one of `METHODS`; UnknownName for another.

    | method | mean JCT | p99 | makespan | deadlines |
    |---|---|---|---|---|
    | `alone` | each job alone | each job alone | each job alone | those met alone |
    | `area` | alone, or SRPT on one machine | each job alone | alone, or area | those met alone |

    Times are rounded down and the ratio is rounded up, by more than the rounding errors of a run.
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    began = perf_counter()
    method = "area" if method == "auto" else method
    columns = Columns.of(instance)
    if not len(columns):
        met = 0.0 if instance.deadline_jobs else None
        return Bound(None, None, None, met, method, perf_counter() - began)
    least_s = alone_s(columns)
    mean_s = fsum(least_s.tolist()) / len(least_s)
    ends_s = columns.release_s + least_s
    makespan_s = float(np.max(ends_s) - np.min(columns.release_s))
    if method == "area":
        for weights in type_weights(columns):
            mean_s = max(mean_s, srpt_mean_s(columns, weights))
            makespan_s = max(makespan_s, makespan_by_area_s(columns, weights))
    error_s = columns.clock_error_s
    possible = int(np.sum(ends_s - _ERROR * least_s - error_s <= columns.deadline_s))  # False for NaN
    return Bound(
        jct_mean_s=_down(mean_s, error_s),
        jct_p99_s=_down(float(np.percentile(least_s, 99)), error_s),
        makespan_s=_down(makespan_s, error_s),
        deadline_met_ratio=_up(possible / instance.deadline_jobs) if instance.deadline_jobs else None,
        method=method,
        seconds=perf_counter() - began,
    )


def _down(value: float, error: float) -> float:
    """`value`, at least 0, less its rounding errors, rounded down."""
    least = max(0.0, value * (1 - _ERROR) - error)
    return float(Context(prec=_DIGITS, rounding=ROUND_FLOOR).create_decimal_from_float(least))


def _up(ratio: float) -> float:
    """A ratio, at most 1, rounded up."""
    return float(Context(prec=_DIGITS, rounding=ROUND_CEILING).create_decimal_from_float(min(1.0, ratio)))
