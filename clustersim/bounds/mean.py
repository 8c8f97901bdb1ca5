"""The bound of the mean JCT by prices."""

from __future__ import annotations

from math import fsum

import numpy as np

from .area import alone_s
from .ascent import ascend
from .columns import Columns
from .first_prices import breakpoints_s, first_ends_s, first_prices
from .relaxation import Relaxation

__all__ = ["mean_by_prices_s"]

_SMALL_PRICE = 0.3  # of a GPU that one job delays: 1 / all GPUs


def mean_by_prices_s(columns: Columns, steps: int, visits: int) -> float:
    """Mean JCT >= what the best prices prove that an ascent of `steps` finds (see `Relaxation`). `visits`:
    how many intervals jobs may see in all between their release and a guess of their end; it decides how fine
    the prices are in time.

    A job without work has no price to pay: its launch bounds its JCT.
    """
    least_s = alone_s(columns)
    rows = np.nonzero(columns.work > 0)[0]
    if not len(rows):
        return fsum(least_s.tolist()) / len(columns)
    chosen = columns.part(rows)
    ends_s = first_ends_s(chosen)
    edges_s = breakpoints_s(chosen, ends_s, visits)
    found = ascend(
        Relaxation(chosen, edges_s),
        first_prices(chosen, ends_s, edges_s),
        steps,
        least=least_s[rows],
        unit_price=_SMALL_PRICE / float(columns.gpus.sum()),
    )
    rest_s = fsum(least_s[columns.work <= 0].tolist())
    return (found.dual + rest_s) / len(columns)
