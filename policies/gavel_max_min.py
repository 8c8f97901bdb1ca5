"""Gavel's max-min fairness, the heterogeneity-aware form of least attained service."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from policies.packing.space_sharing import SpaceSharing
from policies.solvers.packed_shares import packed_grouped
from policies.solvers.time_shares import water_filling

__all__ = ["GavelMaxMin", "equal_time"]

Array = NDArray[np.float64]


class GavelMaxMin(SpaceSharing):
    """Gavel's max-min fairness: the least served job is served as well as possible, then the next one; in
    rounds of `round_s` seconds.

    Narayanan et al., OSDI 2020, section 4.1: maximise over X the minimum over jobs of
    gpus[m] x throughput(m, X) / (weight[m] x throughput(m, X_equal)), where X_equal gives every job the same
    time on each type of GPU. Shares then rise further by water filling, so that no time is left that a job
    could use. Weights are those of the trace: a job of weight 2 is to get twice as much as one of weight 1.
    """

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        requested, weights = [job.requested for job in jobs], [job.weight for job in jobs]
        problem, row_of = packed_grouped(rates, requested, capacity, weights, self.partners)
        required = problem.alone @ equal_time(problem.capacity) / problem.gpus * problem.weights
        return water_filling(problem, required)[row_of]


def equal_time(capacity: Array) -> Array:
    """X_equal (types,): a job's time on each type, in proportion to its GPUs."""
    return capacity / capacity.sum()
