"""The bound of the mean JCT by prices, and the prices."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import numpy as np

from .alone import alone_s
from .ascent import ascend
from .columns import Columns, Floats
from .first_prices import breakpoints_s, first_ends_s, first_prices, jobs_in_system
from .prices import Market

__all__ = ["Prices", "search_prices"]

_SMALL_PRICE = 0.3  # of a GPU that one job delays: 1 / all GPUs
_FIRST_STEP, _LATE_STEP = 0.4, 0.25
_MANY_STEPS = 20


@dataclass(frozen=True, eq=False)
class Prices:
    """What a GPU-second is worth over time, in seconds of JCT: `price` as (GPU type, interval) between the
    breakpoints `edges_s`. `jobs`: the mean number of jobs in the system of the schedule that the search began
    with. `mean_s`: the bound of the mean JCT that the prices prove.
    """

    mean_s: float
    edges_s: Floats
    price: Floats
    jobs: Floats


def search_prices(columns: Columns, steps: int, visits: int) -> Prices:
    """The best prices that an ascent of `steps` finds, and their bound (see `Market`). `visits`: how many
    intervals jobs may see in all between their release and a guess of their end; it decides how fine the
    prices are in time. If there are many
    steps, five of eight are taken with a quarter of the intervals.

    A job without work has no price to pay: its launch bounds its JCT.
    """
    least_s = alone_s(columns)
    rest_s = fsum(least_s[columns.work <= 0].tolist())
    rows = np.nonzero(columns.work > 0)[0]
    if not len(rows):
        empty = np.zeros((len(columns.gpus), 0))
        return Prices(rest_s / len(columns), np.zeros(0), empty, np.zeros(0))
    chosen = columns.part(rows)
    ends_s, unit_price = first_ends_s(chosen), _SMALL_PRICE / float(columns.gpus.sum())
    early = steps * 5 // 8 if steps >= _MANY_STEPS else 0
    stages = [(visits // 4, early, _FIRST_STEP), (visits, steps - early, _LATE_STEP)]
    if not early:
        stages = [(visits, steps, _FIRST_STEP)]
    found, edges_s = None, np.zeros(0)
    for seen, count, first_step in stages:
        before_s, edges_s = edges_s, breakpoints_s(chosen, ends_s, seen)
        price = first_prices(chosen, ends_s, edges_s)
        if found is not None:
            places = np.searchsorted(before_s, (edges_s[1:] + edges_s[:-1]) / 2) - 1
            price = found.price[:, places.clip(0, len(before_s) - 2)]
        found = ascend(
            Market(chosen, edges_s), price, count,
            least=least_s[rows], unit_price=unit_price, first_step=first_step,
        )  # fmt: skip
    assert found is not None
    jobs = jobs_in_system(chosen.release_s, ends_s, edges_s)
    return Prices((found.worth + rest_s) / len(columns), edges_s, found.price, jobs)
