"""How far a stated metric may lie from the one that the tables of a run folder give.

Tables round times, GPU-seconds and dollars to a microsecond (`RESOLUTION_S`, r below); a clock far from 0 is
known to no more than its last bits, which `error_s` includes. What that leaves in a metric depends on its
kind. G is the number of GPUs, S the makespan, W the window of arrivals.

| kind | error |
|---|---|
| a time, or a mean or percentile of times | 2 r |
| a sum over n jobs | n r |
| an integral of GPUs over time | r for each GPU that the use changes by, at each change |
| a quotient N / D | (error of N + N / D x error of D) / D |
| a mean of quotients of times of jobs | as a share: 2 r over the shortest time, 4 r where squared |
| a share of jobs | the jobs so near the limit that rounding moves them across |

Beside these every metric may differ by `RELATIVE_OF_SUMS`, which floating point leaves in long sums. Where a
time in a denominator has fewer than three digits, rounding hides the metric, and it is `skipped`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from clustersim.analysis import has_waited
from clustersim.records import FINISHED, Columns

from .evidence import RESOLUTION_S, agrees

__all__ = ["RELATIVE_OF_SUMS", "Margins", "margin_of_part"]

RELATIVE_OF_SUMS = 1e-6
_TOO_SHORT_S = 1e3 * RESOLUTION_S  # the tables state fewer than three digits of such a time
_OF_JOBS = ("slowdown_mean", "finish_time_fairness_max", "jain_index", "jct_over_bound")
"""Metrics that divide times of jobs."""
_OF_SPAN = ("gpu_allocated_ratio", "gpu_useful_ratio", "fragmentation_ratio", "tail_ratio")
"""Metrics that divide by the makespan; in a window the first and the third divide by its length."""
_OF_ARRIVALS = ("offered_load", "gpu_allocated_arrival_ratio")
_BY_THE_WINDOW = (*_OF_ARRIVALS, "gpu_allocated_ratio", "fragmentation_ratio")


class Margins:
    """The margins of the metrics `again` of a whole run, or of a window (`in_window`). `jobs`, `usage`: the
    tables as columns. `error_s`: of a difference of two recorded times.

    `skipped`: the metrics that rounding hides altogether.
    """

    def __init__(
        self,
        jobs: Columns,
        usage: Columns,
        gpus: int,
        price: float,
        again: Mapping[str, Any],
        error_s: float,
        *,
        in_window: bool,
    ):
        shortest_s, window_s = _shortest_s(jobs), again["arrival_window_s"] or 0.0
        span_s = again.get("makespan_s") or 0.0
        coarse, brief, short = shortest_s < _TOO_SHORT_S, window_s < _TOO_SHORT_S, 0 < span_s < _TOO_SHORT_S
        of_window, of_span = (_BY_THE_WINDOW, ()) if in_window else (_OF_ARRIVALS, _OF_SPAN)
        self.skipped = (
            *((*_OF_JOBS, "makespan_over_bound", "covers", "tail_jobs") if coarse else ()),
            *((*of_window, "tail_jobs") if brief else ()),
            *(of_span if short else ()),
        )
        count, requested_gpus = len(jobs), float(np.nansum(jobs["gpus"]))
        self._of_times = 2 * error_s
        borderline = has_waited(jobs, -2 * error_s) & ~has_waited(jobs, 2 * error_s)
        self._margins = {
            "waited_ratio": int(borderline.sum()) / max(1, again["jobs"]),
            "lost_gpu_h": 2 * RESOLUTION_S * count / 3600,
            "cost_usd": RESOLUTION_S * count * max(1.0, price / 3600),  # of rounded costs, or a product
        }
        errors_gpu_s = {
            "offered_load": RESOLUTION_S * requested_gpus,
            "gpu_allocated_arrival_ratio": error_s * _changes(usage, "allocated"),
            "gpu_allocated_ratio": error_s * _changes(usage, "allocated"),
            "gpu_useful_ratio": error_s * _changes(usage, "allocated") + 2 * RESOLUTION_S * count,
            "fragmentation_ratio": error_s * _changes(usage, "stranded"),
            "tail_ratio": 2 * error_s * gpus,
        }
        for names, length_s in ((of_window, window_s), (of_span, span_s)):
            for name in names if length_s >= _TOO_SHORT_S else ():
                quotient = abs(again.get(name) or 0.0)
                self._margins[name] = (errors_gpu_s[name] / gpus + quotient * 2 * error_s) / length_s
        if not coarse:
            share = 4 * error_s / shortest_s
            for name in (*_OF_JOBS, "makespan_over_bound"):
                self._margins[name] = share * abs(again.get(name) or 0.0)

    def allow(self, name: str, recorded: Any, value: Any) -> bool:
        """Whether `recorded` is `value`: types are equal, and floats agree within rounding."""
        if type(recorded) in (int, float) and isinstance(value, float):
            sane = abs(recorded) <= 1e300  # larger integers are no floats
            margin = self._margins.get(name, self._of_times)
            return sane and agrees(recorded, value, margin, relative=RELATIVE_OF_SUMS)
        return type(recorded) is type(value) and bool(recorded == value)


def margin_of_part(
    name: str, again: Mapping[str, float | None], count: int, run_s: float, error_s: float
) -> float:
    """The margin of a figure of services or of cores and memory, over `count` jobs in `run_s` seconds."""
    rounding = RESOLUTION_S * count
    quotient = abs(again.get(name) or 0.0)
    if name == "met_ratio" and (demanded_s := 3600 * (again["demanded_gpu_h"] or 0.0)):
        return rounding + 2 * rounding * 3600 / demanded_s
    held = {"cpu_ratio": "cpu_h", "memory_ratio": "memory_gb_h"}.get(name)
    if held is not None and quotient and run_s > 0:
        return quotient * (rounding / (again[held] or inf) + 2 * error_s / run_s)
    return rounding


def _changes(usage: Columns, name: str) -> float:
    """By how many GPUs a column changes, up and down, over the whole run."""
    return float(np.abs(np.diff(usage[name], prepend=0.0)).sum())


def _shortest_s(jobs: Columns) -> float:
    """The shortest of the times that are divided in ratios."""
    finished = jobs.equal("state", FINISHED)
    times = np.concatenate([jobs[name][finished] for name in ("isolated_s", "jct_s")])
    return float(np.min(times, where=~np.isnan(times), initial=inf)) if len(times) else 1.0
