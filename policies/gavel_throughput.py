"""Gavel's maximum total throughput."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as brief

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from policies.packing.space_sharing import SpaceSharing
from policies.solvers.packed_shares import packed_grouped
from policies.solvers.time_shares import in_turn, most_throughput

__all__ = ["GavelThroughput"]

Array = NDArray[np.float64]


class GavelThroughput(SpaceSharing):
    """Gavel's maximum throughput: the total progress of all jobs is as large as possible; in rounds of
    `round_s` seconds.

    Narayanan et al., OSDI 2020: maximise over X the sum over jobs of
    throughput(m, X) / throughput(m, X_fastest). Progress is relative to each job's best GPU type, as
    iterations of different models do not add up. Jobs of few GPUs make most progress per GPU and come first,
    so large jobs may starve while there are enough small ones. Equal jobs are served in order of submission.
    `rates="raw"` adds up iterations/s as Gavel's program does, so models of short iterations come first.
    """

    def __init__(
        self, round_s: float = 360.0, recompute_every_round: bool = False, rates: str = "relative",
        packing: bool = False,
    ):  # fmt: skip
        super().__init__(round_s, recompute_every_round, packing)
        if rates not in ("relative", "raw"):
            raise ValueError(f"rates={brief(rates)}: must be relative or raw")
        self.rates = rates

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        best = rates.max(axis=1).tolist() if self.rates == "raw" else None
        requested = [job.requested for job in jobs]
        problem, row_of = packed_grouped(rates, requested, capacity, best, self.partners)
        return in_turn(most_throughput(problem, problem.weights), row_of)
