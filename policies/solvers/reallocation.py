"""GPUs for each of several jobs at the largest sum of values, by a dynamic program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["Option", "best_division"]

Option = tuple[int, float]
"""(GPUs, value) of one way to serve a job."""


def best_division(options: Sequence[Sequence[Option]], gpus: int) -> list[int]:
    """The index of an option for each job such that their GPUs add up to at most `gpus` and their values to
    the most that is possible.

    With S(i, j) the most that the first i jobs are worth on j GPUs, S(i, j) = max over the options (n, v) of
    job i of S(i - 1, j - n) + v: He et al., "Unicron" (2024), section 5. Options listed first win ties, and
    so do jobs listed first. Every job needs an option without GPUs. ValueError if one has none.

    >>> best_division([[(0, 0.0), (1, 3.0), (2, 5.0)], [(0, 0.0), (2, 4.0)]], 3)
    [1, 1]
    """
    best = np.zeros(gpus + 1)
    taken = np.zeros((len(options), gpus + 1), dtype=np.int16)
    for i, job in enumerate(options):
        if all(count for count, _ in job):
            raise ValueError(f"job {i} has no option without GPUs: {list(job)}")
        before, best = best, np.full(gpus + 1, -np.inf)
        for k, (count, value) in enumerate(job):
            if count <= gpus:
                total = before[: gpus + 1 - count] + value
                better = total > best[count:]
                best[count:][better] = total[better]
                taken[i, count:][better] = k
    chosen, left = [0] * len(options), gpus
    for i in reversed(range(len(options))):
        chosen[i] = int(taken[i, left])
        left -= options[i][chosen[i]][0]
    return chosen
