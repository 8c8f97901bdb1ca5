"""heSRPT: the best fixed division for jobs that scale alike."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .parameters import number
from .placing import run_elastic

__all__ = ["HeSrpt", "fractions"]

_ROUNDING = 1e-9  # GPUs: fractions are added up


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

    one_gpu_type = True

    def __init__(self, exponent: float = 0.6):
        self.exponent = number("exponent", exponent, 0.0, 0.99)
        self._waiting: list[tuple[float, int, JobView]] = []  # by work left; kept between decisions

    def schedule(self, state: State) -> Proposal:
        left, came = state.pending_by(_gpu_seconds_left).changes()
        for entry in left:
            del self._waiting[bisect_left(self._waiting, entry)]
        for entry in came:
            insort(self._waiting, entry)
        running = [(_gpu_seconds_left(job), job.order, job) for job in state.running]
        jobs = [job for _, _, job in sorted([*running, *self._waiting])]
        return run_elastic(state, _raised(jobs, self._rounded(jobs, state.in_service), state.in_service))

    def _rounded(self, jobs: Sequence[JobView], gpus: int) -> dict[JobView, int]:
        """The fractions as counts that jobs can use: what the shortest cannot use falls to the next."""
        shares, budget = {}, 0.0
        for job, fraction in zip(jobs, reversed(fractions(len(jobs), self.exponent)), strict=True):
            budget += fraction * gpus
            sizes = job.sizes
            if sizes[0] <= budget + _ROUNDING:
                shares[job] = size = sizes[bisect_right(sizes, budget + _ROUNDING) - 1]
                budget -= size
        return shares


def _raised(jobs: Sequence[JobView], shares: dict[JobView, int], gpus: int) -> dict[JobView, int]:
    """The shares, and what is left over of the GPUs, to the shortest jobs first."""
    wanted: dict[JobView, int] = {}
    left = gpus - sum(shares.values())
    for i, job in enumerate(jobs):
        if not left:
            return wanted | {job: shares[job] for job in jobs[i:] if job in shares}
        held, sizes = shares.get(job, 0), job.sizes
        at = bisect_right(sizes, held + left)
        if at:
            left -= sizes[at - 1] - held
            wanted[job] = sizes[at - 1]
    return wanted


def _gpu_seconds_left(job: JobView) -> float:
    """Work left, as GPU-seconds on the fewest GPUs that the job can use."""
    least = job.sizes[0]
    return least * job.oracle_remaining(least)
