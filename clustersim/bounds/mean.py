"""The bound of the mean JCT by prices."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import numpy as np

from .area import alone_s
from .ascent import ascend
from .columns import Floats, OptionColumns
from .first_prices import breakpoints_s, first_prices, first_schedule, jobs_in_system
from .relaxation import Relaxation

__all__ = ["DualPrices", "search_prices"]

_SMALL_PRICE = 0.3  # of a GPU that one job delays: 1 / all GPUs


@dataclass(frozen=True, eq=False)
class DualPrices:
    """What a GPU-second is worth over time, in seconds of JCT: `price` as (GPU type, interval) between the
    breakpoints `edges_s`. `jobs`: the mean number of jobs in the system of the schedule that the search began
    with. `mean_s`: the bound of the mean JCT that the prices prove.
    """

    mean_s: float
    edges_s: Floats
    price: Floats
    jobs: Floats


def search_prices(
    columns: OptionColumns, steps: int, visits: int, *, near_steps: int | None = None, known_s: float = 0.0
) -> DualPrices:
    """The best prices that an ascent of `steps` finds, and their bound (see `Relaxation`). `near_steps`: how
    many it takes where the first prices are near (`FirstSchedule`). `visits`: how many intervals jobs may see
    in all between their release and a guess of their end; it decides how fine the prices are in time.
    `known_s`: a bound of the mean JCT that is proved already; a search that will hardly come so far ends
    early.

    A job without work has no price to pay: its launch bounds its JCT.
    """
    least_s = alone_s(columns)
    rows = np.nonzero(columns.work > 0)[0]
    if not len(rows):
        empty = np.zeros((len(columns.gpus), 0))
        return DualPrices(fsum(least_s.tolist()) / len(columns), np.zeros(0), empty, np.zeros(0))
    job_columns = columns.part(rows)
    schedule = first_schedule(job_columns)
    edges_s = breakpoints_s(job_columns, schedule.ends_s, visits)
    rest_s = fsum(least_s[columns.work <= 0].tolist())
    ascent = ascend(
        Relaxation(job_columns, edges_s, schedule.ends_s),
        first_prices(job_columns, schedule, edges_s),
        near_steps or steps if schedule.near else steps,
        lower_bounds=least_s[rows],
        unit_price=_SMALL_PRICE / float(columns.gpus.sum()),
        known=known_s * len(columns) - rest_s,
    )
    jobs = jobs_in_system(job_columns.release_s, schedule.ends_s, edges_s)
    return DualPrices((ascent.dual + rest_s) / len(columns), edges_s, ascent.price, jobs)
