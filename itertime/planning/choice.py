"""The optimism of choosing the best of many plans by prediction.

Predictions err, and the plan that looks best is more likely than others to be one that is predicted too fast.
So its prediction is too low on average, though each prediction alone is not: the optimizer's curse (Smith and
Winkler, The Optimizer's Curse, Management Science 52(3), 2006). An error that all plans of a model on a
system share changes no order and plays no part. What counts is the error of one plan beside others.

The estimate is a parametric bootstrap. The predicted values stand for the true ones; each draw makes
predictions of them with log-normal errors, takes the best, and compares it with the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array

DRAWS = 400
REACH = 7.0  # standard deviations: no error lets a plan win that is predicted to be further behind
Z = 1.6448536269514722  # quantile 0.95 of the normal distribution, so that two sides leave 90 %
_CELLS = 2_000_000  # random numbers at a time


@dataclass(frozen=True)
class PlanChoice:
    """The choice of the best among plans.

    `rivals`: how many plans can be the best in truth, the chosen one included. `optimism`: by how much the
    true value of the chosen plan exceeds its prediction on average for having been chosen. `regret`: by how
    much it exceeds that of the truly best plan on average. Both are shares. `margin`: a predicted lead of
    this share or less is within the error of a comparison of two plans, at 90 %; `tied` plans besides the
    first are that close to it.
    """

    rivals: int
    optimism: float
    regret: float
    margin: float
    tied: int


def choice_among(values: ArrayLike, sd: float, *, seed: int = 0, draws: int = DRAWS) -> PlanChoice:
    """The choice of the smallest of predicted `values` (seconds, dollars), which are above 0.

    `sd`: standard deviation of a plan's error beside other plans, as the logarithm of true over predicted
    values. Errors of different plans are independent, which is the worst case. `draws`: of the bootstrap.
    """
    logs = np.sort(np.log(np.asarray(values, dtype=float)))
    log_gaps = logs - logs[0]
    margin = Z * math.sqrt(2) * sd
    log_gaps = log_gaps[log_gaps <= REACH * sd]
    true_logs, errors = _picked(log_gaps, sd, np.random.default_rng([seed, *b"choice"]), draws)
    return PlanChoice(
        rivals=len(log_gaps),
        optimism=float(np.exp(errors - sd**2 / 2).mean() - 1) if len(log_gaps) > 1 else 0.0,
        regret=float(np.expm1(true_logs).mean()),
        margin=math.expm1(margin),
        tied=int((log_gaps <= margin).sum()) - 1,
    )


def _picked(log_gaps: Array, sd: float, random: np.random.Generator, draws: int) -> tuple[Array, Array]:
    """The true values (logarithms, the best is 0) and the errors of the plans that `draws` choices pick."""
    true_logs, errors = [], []
    block = max(_CELLS // len(log_gaps), 1)
    for start in range(0, draws, block):
        errors_drawn = random.normal(0.0, sd, (min(block, draws - start), len(log_gaps)))
        picked = (log_gaps - errors_drawn).argmin(axis=1)
        true_logs.append(log_gaps[picked])
        errors.append(np.take_along_axis(errors_drawn, picked[:, None], axis=1)[:, 0])
    return np.concatenate(true_logs), np.concatenate(errors)
