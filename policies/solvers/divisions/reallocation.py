"""GPUs for each of several jobs at the largest sum of values, by a dynamic program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Options", "best_division"]

Options = tuple[Sequence[int], Sequence[float] | NDArray[np.float64]]
"""The ways to serve a job: the GPUs of each, and its value."""


def best_division(jobs: Sequence[Options], gpus: int) -> list[int]:
    """The index of an option for each job such that their GPUs add up to at most `gpus` and their values to
    the most that is possible.

    With S(i, j) the most that the first i jobs are worth on j GPUs, S(i, j) = max over the options (n, v) of
    job i of S(i - 1, j - n) + v: He et al., "Unicron" (2024), section 5. Options listed first win ties, and
    so do jobs listed first. Every job needs an option without GPUs. ValueError if one has none.

    >>> best_division([((0, 1, 2), (0.0, 3.0, 5.0)), ((0, 2), (0.0, 4.0))], 3)
    [1, 1]
    """
    most_gpus = min(gpus, max((max(counts) for counts, _ in jobs), default=0))
    # S(i, 0) stands at `most`, after as many impossible places as a job takes GPUs.
    best = np.full((len(jobs) + 1, most_gpus + gpus + 1), -np.inf)
    best[0, most_gpus:] = 0.0
    totals = np.empty((max((len(counts) for counts, _ in jobs), default=0), gpus + 1))
    for i, (counts, values) in enumerate(jobs):
        if 0 not in counts:
            raise ValueError(f"job {i} has no option without GPUs: {counts}")
        row = 0
        for count, value in zip(counts, values, strict=True):
            if count <= gpus:
                np.add(best[i, most_gpus - count : most_gpus - count + gpus + 1], value, out=totals[row])
                row += 1
        totals[:row].max(axis=0, out=best[i + 1, most_gpus:])
    option_indices, budget = [0] * len(jobs), most_gpus + gpus
    for i in reversed(range(len(jobs))):
        counts, values = jobs[i]
        option_indices[i] = next(
            k for k, count in enumerate(counts)
            if count <= gpus and best[i, budget - count] + values[k] == best[i + 1, budget]
        )  # fmt: skip
        budget -= counts[option_indices[i]]
    return option_indices
