"""Gavel's minimum makespan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from policies.packing.space_sharing import SpaceSharing
from policies.solvers.packed_shares import packed_each
from policies.solvers.time_shares import largest_level, most_throughput

__all__ = ["GavelMakespan"]

Array = NDArray[np.float64]


class GavelMakespan(SpaceSharing):
    """Gavel's makespan: the last of the present jobs finishes as early as possible; in rounds of `round_s`
    seconds.

    Narayanan et al., OSDI 2020, section 4.2: minimise over X the maximum over jobs of
    remaining[m] / throughput(m, X). The time that this leaves goes to the jobs so that the sum of their
    relative progress, weighted by GPUs, is largest. Run times that users do not state come from the oracle.
    """

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        problem = packed_each(rates, [job.requested for job in jobs], capacity, self.partners)
        required = np.array([max(job.oracle_remaining(), 1e-3) for job in jobs])
        best = largest_level(problem, required)
        return most_throughput(problem, problem.gpus, best.level * required * (1 - 1e-6))
