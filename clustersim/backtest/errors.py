"""How far simulated waits and completion times are from those of the log.

| name | formula, over the jobs that started in both |
|---|---|
| error of a job | simulated - logged |
| bias | mean of the errors |
| absolute | mean of the errors' magnitudes |
| distance | the same with both sides sorted: the Wasserstein-1 distance of the two distributions |
| spearman, kendall | rank correlation (tau-b); None where one side is constant |
| score | (absolute + distance) / 2 of waits, over the mean logged wait (at least a second) |

The score is 0 only if every job waits as logged. Its first half asks for the right jobs, its second for the
right distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .logged import Floats, LoggedRun, Rows
from .site import Simulated

__all__ = ["QUANTILES", "compared", "errors_of", "score", "score_of_waits", "times_of"]

QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
_LEAST_S = 1.0


def compared(log: LoggedRun, simulated: Simulated, from_row: int = 0, until_row: int | None = None) -> Rows:
    """The rows of the jobs from one place in the log to another that started in the log and in the
    simulation.
    """
    started = ~np.isnan(log.start_s) & ~np.isnan(simulated.start_s)
    rows: Rows = np.flatnonzero(started).astype(np.int64)
    end_row = len(log.jobs) if until_row is None else until_row
    return rows[(rows >= from_row) & (rows < end_row)]


def times_of(log: LoggedRun, simulated: Simulated, metric: str) -> tuple[Floats, Floats]:
    """Logged and simulated times of all jobs in seconds: `metric` is wait, from when they were eligible, or
    jct, from their submission.
    """
    if metric == "wait":
        return log.wait_s, simulated.wait_s(log)
    return log.jct_s, simulated.end_s - log.submit_s


def errors_of(log: LoggedRun, simulation: Simulated, rows: Rows) -> dict[str, Any]:
    """Waits and JCT of these jobs, compared as in the table of this module, as JSON; times in seconds."""
    errors: dict[str, Any] = {"jobs": len(rows)}
    for metric in ("wait", "jct"):
        logged, simulated = (times[rows] for times in times_of(log, simulation, metric))
        errors[metric] = _errors(logged, simulated)
    errors["score"] = score(log, simulation, rows)
    return errors


def score(log: LoggedRun, simulation: Simulated, rows: Rows) -> float | None:
    """The score of the waits of these jobs; None without a job."""
    if not len(rows):
        return None
    logged, simulated = (times[rows] for times in times_of(log, simulation, "wait"))
    return score_of_waits(logged, simulated)


def score_of_waits(logged: Floats, simulated: Floats) -> float:
    """The score of waits of the same jobs, in seconds; those of another run may stand for simulated ones."""
    absolute_s = float(np.abs(simulated - logged).mean())
    distance_s = float(np.abs(np.sort(simulated) - np.sort(logged)).mean())
    return (absolute_s + distance_s) / 2 / max(float(logged.mean()), _LEAST_S)


def _errors(logged: Floats, simulated: Floats) -> dict[str, Any]:
    ended = ~np.isnan(simulated)
    logged, simulated = logged[ended], simulated[ended]
    if not len(logged):
        return {"logged": None, "simulated": None}
    spearman, kendall = _rank_correlations(logged, simulated)
    return {
        "logged": _distribution(logged),
        "simulated": _distribution(simulated),
        "bias_s": float((simulated - logged).mean()),
        "absolute_s": float(np.abs(simulated - logged).mean()),
        "distance_s": float(np.abs(np.sort(simulated) - np.sort(logged)).mean()),
        "spearman": spearman,
        "kendall": kendall,
    }


def _distribution(times: Floats) -> dict[str, float]:
    quantiles = np.quantile(times, list(QUANTILES.values()))
    return {
        "mean_s": float(times.mean()),
        **{f"{n}_s": float(q) for n, q in zip(QUANTILES, quantiles, strict=True)},
    }


def _rank_correlations(sample_a: Floats, sample_b: Floats) -> tuple[float | None, float | None]:
    if len(sample_a) < 2 or np.ptp(sample_a) == 0 or np.ptp(sample_b) == 0:
        return None, None
    from scipy.stats import kendalltau, spearmanr

    return float(spearmanr(sample_a, sample_b).statistic), float(kendalltau(sample_a, sample_b).statistic)
