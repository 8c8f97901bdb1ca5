"""The bound of the mean JCT by prices."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

import numpy as np

from .area import alone_s
from .ascent import ascend
from .columns import Columns, Floats
from .first_prices import breakpoints_s, first_ends_s, first_prices, jobs_in_system
from .relaxation import Relaxation

__all__ = ["Prices", "search_prices"]

_SMALL_PRICE = 0.3  # of a GPU that one job delays: 1 / all GPUs
_MANY_STEPS = 20  # from which on some are taken with fewer breakpoints
_FIRST_STEP, _LATE_STEP = 0.4, 0.25  # of the first ascent and of one that goes on from good prices


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
    """The best prices that an ascent of `steps` finds, and their bound (see `Relaxation`). `visits`: how many
    intervals jobs may see in all between their release and a guess of their end; it decides how fine the
    prices are in time. Of many steps, the first five of eight have a quarter of the intervals.

    A job without work has no price to pay: its launch bounds its JCT.
    """
    least_s = alone_s(columns)
    rest_s = fsum(least_s[columns.work <= 0].tolist())
    rows = np.nonzero(columns.work > 0)[0]
    if not len(rows):
        empty = np.zeros((len(columns.gpus), 0))
        return Prices(rest_s / len(columns), np.zeros(0), empty, np.zeros(0))
    chosen = columns.part(rows)
    ends_s = first_ends_s(chosen)
    edges_s, price = np.zeros(0), np.zeros((len(columns.gpus), 0))
    for stage in _stages(steps, visits):
        before_s, edges_s = edges_s, breakpoints_s(chosen, ends_s, stage.visits)
        found = ascend(
            Relaxation(chosen, edges_s),
            _at(price, before_s, edges_s) if len(before_s) else first_prices(chosen, ends_s, edges_s),
            stage.steps,
            least=least_s[rows],
            unit_price=_SMALL_PRICE / float(columns.gpus.sum()),
            first_step=stage.first_step,
        )
        price = found.price
    jobs = jobs_in_system(chosen.release_s, ends_s, edges_s)
    return Prices((found.dual + rest_s) / len(columns), edges_s, price, jobs)


class _Stage(NamedTuple):
    visits: int
    steps: int
    first_step: float


def _stages(steps: int, visits: int) -> list[_Stage]:
    if steps < _MANY_STEPS:
        return [_Stage(visits, steps, _FIRST_STEP)]
    early = steps * 5 // 8
    return [_Stage(visits // 4, early, _FIRST_STEP), _Stage(visits, steps - early, _LATE_STEP)]


def _at(price: Floats, before_s: Floats, edges_s: Floats) -> Floats:
    """`price` between the breakpoints `before_s`, as prices between `edges_s`: those of the middles."""
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    place = np.searchsorted(before_s, middles_s) - 1
    return price[:, place.clip(0, len(before_s) - 2)]
