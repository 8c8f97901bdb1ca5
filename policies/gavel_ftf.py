"""Gavel's finish-time fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from policies.packing.space_sharing import SpaceSharing
from policies.solvers.finish_time import isolated_shares, least_ratio
from policies.solvers.packed_shares import packed_each
from policies.solvers.time_shares import most_throughput

__all__ = ["GavelFtf"]

Array = NDArray[np.float64]


class GavelFtf(SpaceSharing):
    """Gavel's finish-time fairness: the job that is worst off, compared with running alone on 1/N of the
    GPUs, is as well off as possible; in rounds of `round_s` seconds.

    Narayanan et al., OSDI 2020, section 4.2: minimise over X the maximum over jobs of rho_T(m, X)
    (`solvers/finish_time.py`), with N the number of jobs. The time that this leaves goes to the jobs so that
    the sum of their relative progress, weighted by GPUs, is largest. Run times that users do not state come
    from the oracle.
    """

    def __init__(self, round_s: float = 360.0, recompute_every_round: bool = False, packing: bool = False):
        super().__init__(round_s, recompute_every_round, packing)
        self._alone: dict[JobView, _Alone] = {}

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        problem = packed_each(rates, [job.requested for job in jobs], capacity, self.partners)
        remaining = np.array([max(job.oracle_remaining(), 1e-3) for job in jobs])
        alone = (isolated_shares(problem, len(jobs)) * problem.alone).sum(axis=1)
        elapsed = np.array([now - job.submit_s for job in jobs])
        _, need = least_ratio(problem, elapsed, remaining, self._isolated_s(jobs, remaining, alone))
        return most_throughput(problem, problem.gpus, need * (1 - 1e-6))

    def _isolated_s(self, jobs: Sequence[JobView], remaining: Array, alone: Array) -> Array:
        """Seconds from submission to finish of each job alone on its share of the cluster: the work done
        counts at the shares of its time, the rest at the present share.
        """
        old_times, self._alone = self._alone, {}
        for job, work_s, rate in zip(jobs, remaining.tolist(), alone.tolist(), strict=True):
            last_time = old_times.get(job)
            done_s = last_time.done_s + (last_time.remaining - work_s) / last_time.rate if last_time else 0.0
            self._alone[job] = _Alone(done_s, work_s, rate)
        return np.array([entry.done_s for entry in self._alone.values()]) + remaining / alone


@dataclass(frozen=True)
class _Alone:
    """A job at the last solution: `done_s` is the time that the work done until then would have taken it
    alone, `remaining` the work left, in seconds on its best type, `rate` its relative throughput alone.
    """

    done_s: float
    remaining: float
    rate: float
