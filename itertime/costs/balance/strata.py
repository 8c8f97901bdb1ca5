"""Strata: bins of lengths from which every rank takes a fixed number of samples.

Samsung's MLPerf runs presort the data set by four bins of equal width. A rank then takes 6, 3, 2 and 5 of its
16 samples from them (`--split_batch_cnt 6 3 2 5`), or 4, 2, 2 and 4 of 12 (mlcommons/training_results_v1.1).
The numbers here follow from the shares of the bins by the method of equal proportions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from itertime.errors import UserError
from itertime.spec import STRATA, Lengths


def bin_edges(seq_len: int) -> list[int]:
    """The longest length of each bin.

    >>> bin_edges(512)
    [128, 256, 384, 512]
    """
    return [seq_len * number // STRATA for number in range(1, STRATA + 1)]


def bin_shares(lengths: Lengths, seq_len: int) -> list[float]:
    """The share of the samples in each bin. UserError if a sample is longer than `seq_len`."""
    lengths.check(seq_len)
    edges = [0, *bin_edges(seq_len)]
    return [
        math.fsum(
            share
            for t, share in zip(lengths.tokens, lengths.shares, strict=True)
            if edges[i] < t <= edges[i + 1]
        )
        for i in range(STRATA)
    ]


def stratified_counts(lengths: Lengths, samples: int, seq_len: int) -> list[int]:
    """How many of a rank's `samples` come from each bin: at least one, and in all `samples`.

    UserError for a bin without samples, and for fewer samples than bins.
    """
    shares = bin_shares(lengths, seq_len)
    edges = [0, *bin_edges(seq_len)]
    for number, share in enumerate(shares):
        if not share > 0:
            raise UserError(
                f"{lengths.source}: no sample has {edges[number] + 1} to {edges[number + 1]} tokens: a "
                f"stratified balance takes samples of every quarter of seq_len={seq_len}; choose another one"
            )
    if samples < STRATA:
        raise UserError(
            f"samples of a rank={samples}: a stratified balance takes at least one from each of {STRATA} "
            f"bins of lengths; enlarge the batch or choose another balance"
        )
    return apportioned(shares, samples)


def apportioned(shares: Sequence[float], seats: int) -> list[int]:
    """Whole numbers in proportion to `shares` that sum to `seats`: the method of equal proportions.

    Every share gets one; each further seat goes to the largest share / sqrt(n (n + 1)), n being what it has
    (Huntington 1928, "The apportionment of representatives in Congress"). No move of a seat then makes two
    shares more equal in relative terms. Of equal quotients the first wins. Needs at least as many seats as
    shares, all of them positive.

    >>> apportioned([0.3694, 0.1969, 0.1173, 0.3164], 16)
    [6, 3, 2, 5]
    >>> apportioned([0.3694, 0.1969, 0.1173, 0.3164], 12)
    [4, 2, 2, 4]
    """
    assert seats >= len(shares)
    assert all(share > 0 for share in shares)
    counts = [1] * len(shares)
    queue = [(-share / math.sqrt(2), number) for number, share in enumerate(shares)]
    heapq.heapify(queue)
    for _ in range(seats - len(shares)):
        number = heapq.heappop(queue)[1]
        counts[number] += 1
        heapq.heappush(queue, (-shares[number] / math.sqrt(counts[number] * (counts[number] + 1)), number))
    return counts
