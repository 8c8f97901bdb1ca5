"""Every possible draw of a node's samples, where there are few: small cases are exact."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import numpy as np

from .order_statistics import Array
from .sampling import Indices
from .slowest import UnitPart

__all__ = ["MOST_POOLS", "pools_of"]

MOST_POOLS = 2_000


def pools_of(parts: Sequence[UnitPart], ranks: int) -> tuple[Indices, Array] | None:
    """The different pools that `ranks` ranks can draw from all parts, pools x units, and their probabilities.

    A unit is its index in all parts, one part after the other. The order of the draws does not matter, so the
    probabilities are those of multinomial distributions. None for more than `MOST_POOLS` pools.
    """
    sizes = [(len(part.shares), ranks * part.number) for part in parts]
    if math.prod(math.comb(units + drawn - 1, drawn) for units, drawn in sizes) > MOST_POOLS:
        return None
    start = 0
    choices = []
    for part, (units, drawn) in zip(parts, sizes, strict=True):
        choices.append(list(_draws((part.shares / part.shares.sum()).tolist(), drawn, start)))
        start += units
    pools = [[unit for units, _ in choice for unit in units] for choice in product(*choices)]
    chances = [math.prod(chance for _, chance in choice) for choice in product(*choices)]
    return np.array(pools, dtype=np.int32), np.array(chances)


def _draws(shares: Sequence[float], drawn: int, start: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every multiset of `drawn` units, as indices from `start` on, with its probability."""
    for units in combinations_with_replacement(range(len(shares)), drawn):
        counts = [units.count(unit) for unit in range(len(shares))]
        orders = math.lgamma(drawn + 1) - math.fsum(math.lgamma(count + 1) for count in counts)
        log_chance = math.fsum(count * math.log(share) for share, count in zip(shares, counts, strict=True))
        yield tuple(start + unit for unit in units), math.exp(orders + log_chance)
