"""A bound of how many jobs meet their deadlines."""

from __future__ import annotations

from math import floor, inf

import numpy as np

from .area import alone_s, areas, type_weights
from .ascent import ascend
from .columns import Columns, Floats
from .first_prices import jobs_in_system, spread_evenly
from .relaxation import Relaxation

__all__ = ["met_at_most"]

_ERROR = 1e-9  # relative, of times
_TRIAL_STEPS = 12  # after which the search goes on only if prices prove that some jobs are late


def met_at_most(
    columns: Columns, deadline_s: Floats, *, steps: int, visits: int, enough: float = -inf
) -> int:
    """How many of the jobs can be done by their deadline at most; NaN: a job has none.

    `steps`: of the ascent; 0 counts the jobs that meet it alone. `visits`: how many intervals jobs may see in
    all. The search ends once at most `enough` jobs are left.

    *Statement.* Take prices lam >= 0. Let K_j be the least price of the GPU-seconds of a plan of job j that
    ends by its deadline, infinite if there is none. The number of jobs that meet their deadline is at most
    the price of all GPUs over all time + sum over jobs of max(0, 1 - K_j).

    *Proof.* Let y_j = 1 for jobs that meet it, else 0. Their plans hold no more than all GPUs, so the sum of
    y_j is at most itself + the price of the GPU-seconds that they leave. That is the price of all GPUs + the
    sum of y_j (1 - price of what j holds), and what j holds costs at least K_j. Jobs that are late only hold
    more. []

    A plan may hold nothing for a while before it ends. So plans that end exactly at the deadline cover those
    that end earlier, and K_j is computed over them (`Relaxation`). A job with K_j > 1 adds nothing. The count
    is rounded down.
    """
    slack_s = _ERROR * np.abs(deadline_s - columns.release_s) + columns.clock_error_s
    least_s = alone_s(columns)
    able = columns.release_s + least_s <= deadline_s + slack_s  # False for NaN
    possible = int(able.sum())
    rows = np.nonzero(able & (columns.work > 0))[0]
    if not steps or not len(rows) or possible <= enough:
        return possible
    chosen = columns.part(rows)
    until_s = (deadline_s + slack_s)[rows]
    edges_s = spread_evenly(chosen.release_s, until_s, visits)
    weights = type_weights(chosen)[-1]
    gpus = float(weights @ chosen.gpus)
    area = areas(chosen, weights)
    unit_price = 1.0 / float(np.percentile(area, 90))
    demand = jobs_in_system(chosen.release_s, until_s, edges_s, area / (until_s - chosen.release_s)) / gpus
    price = np.outer(weights, unit_price * (demand - 0.5).clip(0.0, 1.0))
    relaxation, nothing = Relaxation(chosen, edges_s, until_s), np.zeros(len(rows))
    most = possible
    for part in (min(steps, _TRIAL_STEPS), steps - _TRIAL_STEPS):
        if part <= 0:
            break
        found = ascend(
            relaxation,
            price,
            part,
            least=nothing,
            unit_price=0.1 * unit_price,
            enough=possible - enough - 1 + 1e-6,
        )
        most = min(most, floor(possible - found.dual + 1e-6))
        if found.dual <= 0 or most <= enough:
            break  # without any sign of contention more steps find none
        price = found.price
    return most
