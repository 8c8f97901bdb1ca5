"""Themis' partial allocation auction.

GPUs go to the bidders so that the product of their values is largest, less a hidden payment that makes honest
bids the best ones. Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, section 5;
the mechanism is that of Cole, Gkatzelis, Goel, EC 2013.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

__all__ = ["Award", "auction"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Award:
    """What a bidder wins: `gpus` GPUs, of which it may keep the fraction `kept`."""

    gpus: int
    kept: float


def auction(bids: Sequence[Mapping[int, float]], gpus: int) -> list[Award]:
    """The awards of the bidders, in their order.

    A bid states the logarithm of the bidder's value by GPU count, including 0; values grow with the count.
    The counts won maximise the sum of the logarithms, that is, the product of the values. Of equal choices it
    is the one that gives the last bidders the fewest GPUs. Let w_i be the sum over the bidders other than i,
    and W_i the largest sum that they could have without i. Bidder i keeps exp(w_i - W_i) of its GPUs.
    """
    tables_before, counts = _best(bids, gpus)
    behind = [table[::-1] for table in _best(bids[::-1], gpus)[0][::-1]]  # [i][g]: bids i.. on gpus - g
    awards: list[Award] = []
    remaining, total = gpus, float(tables_before[-1][gpus])
    for i in reversed(range(len(bids))):
        won = int(counts[i][remaining])
        remaining -= won
        welfare_without = float((tables_before[i] + behind[i + 1]).max())
        awards.append(Award(won, min(1.0, exp(total - bids[i][won] - welfare_without))))
    return awards[::-1]


def _best(bids: Sequence[Mapping[int, float]], gpus: int) -> tuple[list[Array], list[NDArray[np.int64]]]:
    """For the first i bids on at most g GPUs: the largest sum, tables[i][g], and the count that the last of
    them gets in it, counts[i - 1][g].
    """
    tables, counts = [np.zeros(gpus + 1)], []
    for bid in bids:
        best = tables[-1] + bid[0]
        count = np.zeros(gpus + 1, dtype=np.int64)
        for n in sorted(bid):
            if 0 < n <= gpus:
                table = tables[-1][: gpus + 1 - n] + bid[n]
                better = table > best[n:] + 1e-9
                best[n:][better] = table[better]
                count[n:][better] = n
        tables.append(best)
        counts.append(count)
    return tables, counts
