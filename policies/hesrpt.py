"""heSRPT: the best fixed division for jobs that scale alike."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .parameters import number
from .placing import available, run_elastic

__all__ = ["HeSrpt", "fractions"]


def fractions(jobs: int, exponent: float) -> list[float]:
    """The share of the cluster of each of `jobs` jobs, the longest first; they add up to 1.

    theta_i = (i / m) ^ (1 / (1 - p)) - ((i - 1) / m) ^ (1 / (1 - p)), Berg et al. 2020, theorem 1 for mean
    flow time.

    >>> fractions(2, 0.5)
    [0.25, 0.75]
    """
    power = 1 / (1 - exponent)
    return [(i / jobs) ** power - ((i - 1) / jobs) ** power for i in range(1, jobs + 1)]


class HeSrpt(Scheduler):
    """heSRPT: all jobs run, the less work is left the more GPUs; optimal for mean completion time when all
    jobs are there from the start and speed grows as GPUs^`exponent`; at every event.

    Berg, Vesilo, Harchol-Balter, "heSRPT: Parallel scheduling to minimize mean slowdown", Performance
    Evaluation 2020. `exponent` from 0 (equal shares) to 0.99 (nearly everything to the shortest). Run times
    that users do not state come from the oracle.
    """

    def __init__(self, exponent: float = 0.6):
        self.exponent = number("exponent", exponent, 0.0, 0.99)

    def schedule(self, state: State) -> Proposal:
        jobs = sorted([*state.running, *state.pending], key=lambda job: (_gpu_seconds_left(job), job.order))
        gpus = available(state)
        shares = self._rounded(jobs, gpus)
        left = gpus - sum(shares.values())
        return run_elastic(state, _raised(jobs, shares, left))

    def _rounded(self, jobs: Sequence[JobView], gpus: int) -> dict[JobView, int]:
        """The fractions as counts that jobs can use: what the shortest cannot use falls to the next."""
        shares, budget = {}, 0.0
        for job, fraction in zip(jobs, reversed(fractions(len(jobs), self.exponent)), strict=True):
            budget += fraction * gpus
            size = max((size for size in job.sizes if size <= budget + 1e-9), default=0)
            if size:
                shares[job] = size
                budget -= size
        return shares


def _raised(jobs: Sequence[JobView], shares: dict[JobView, int], left: int) -> dict[JobView, int]:
    """The shares, and what is left over, to the shortest jobs first."""
    wanted = {}
    for job in jobs:
        held = shares.get(job, 0)
        size = max((size for size in job.sizes if size <= held + left), default=0)
        left -= size - held
        if size:
            wanted[job] = size
    return wanted


def _gpu_seconds_left(job: JobView) -> float:
    """Work left, as GPU-seconds on the fewest GPUs that the job can use."""
    return job.sizes[0] * job.oracle_remaining(job.sizes[0])
