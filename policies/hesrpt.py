"""heSRPT: the best fixed division for jobs that scale alike."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number
from policies.toolkit.rounds import Rounds

__all__ = ["HeSrpt", "fractions"]

_Entry = tuple[float, int, tuple[int, ...], JobView]  # work left, order of submission, sizes, job
_ROUNDING = 1e-9  # GPUs: fractions are added up


def fractions(jobs: int, exponent: float) -> list[float]:
    """The share of the cluster of each of `jobs` jobs, the longest first; they add up to 1.

    theta_i = (i / m) ^ (1 / (1 - p)) - ((i - 1) / m) ^ (1 / (1 - p)): Berg et al. 2020, for mean flow
    time.

    >>> fractions(2, 0.5)
    [0.25, 0.75]
    """
    power = 1 / (1 - exponent)
    return [(i / jobs) ** power - ((i - 1) / jobs) ** power for i in range(1, jobs + 1)]


class HeSrpt(Scheduler):
    """heSRPT: all jobs run, and those with less work left on more GPUs; optimal for mean completion time when
    all jobs are present from the start and speed grows as GPUs^`exponent`; divided in rounds, or at every
    event.

    Berg, Vesilo, Harchol-Balter, "heSRPT: Parallel scheduling to minimize mean slowdown", Performance
    Evaluation 2020. `exponent`, from 0 (equal shares) to 0.99 (nearly all GPUs to the shortest job); 0.6 is
    our choice. `round_s`, from 0 to 1e7: seconds between divisions; 60, because restarts cost time. 0 divides
    anew at every event, as in the paper, where restarts cost nothing. Run times that users do not state come
    from the oracle.
    """

    one_gpu_type = True
    elastic = True

    def __init__(self, exponent: float = 0.6, round_s: float = 60.0):
        self.exponent = number("exponent", exponent, 0.0, 0.99)
        self.round_s = number("round_s", round_s, 0.0, 1e7)
        self._rounds = Rounds(self.round_s) if self.round_s else None
        self._waiting: list[_Entry] = []  # sorted; kept between decisions
        self._running: list[tuple[int, tuple[int, ...], JobView]] = []  # in the order of the last decision
        self._parts: list[float] = []  # GPUs by rank at the last decision, the shortest job first
        self._parts_of: tuple[int, int] = (0, 0)  # the jobs and GPUs that they are for

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if self._rounds is None or self._rounds.begins(state):
            proposal.run(self._shares(state), let_settle=True)
        return proposal if self._rounds is None else self._rounds.until_end(proposal, state)

    def _shares(self, state: State) -> dict[JobView, int]:
        """GPUs by job when the cluster is divided anew."""
        departed, arrived = state.pending_by(_gpu_seconds_left).changes()
        for key, order, job in departed:
            del self._waiting[bisect_left(self._waiting, (key, order, job.sizes, job))]
        for key, order, job in arrived:
            insort(self._waiting, (key, order, job.sizes, job))
        running = [
            (sizes[0] * job.oracle_remaining(sizes[0]), order, sizes, job)
            for order, sizes, job in self._running_as_before(state)
        ]
        running.sort()
        self._running = [entry[1:] for entry in running]
        jobs = sorted([*running, *self._waiting])
        return _raised(jobs, self._rounded(jobs, state.in_service), state.in_service)

    def _running_as_before(self, state: State) -> list[tuple[int, tuple[int, ...], JobView]]:
        """The running jobs in the order of the last decision, which is nearly the present one."""
        running = state.running
        entries = [entry for entry in self._running if entry[2] in running]
        entered_jobs = {job for _, _, job in entries}
        return entries + [(job.order, job.sizes, job) for job in running if job not in entered_jobs]

    def _rounded(self, jobs: Sequence[_Entry], gpus: int) -> dict[JobView, int]:
        """The fractions as counts that jobs can use. GPUs that a job cannot use go to the next one. A job
        with less than its smallest size gets that size, and the next jobs get less.
        """
        if self._parts_of != (len(jobs), gpus):
            self._parts_of = len(jobs), gpus
            self._parts = [fraction * gpus for fraction in reversed(fractions(len(jobs), self.exponent))]
        shares, budget, remaining = {}, 0.0, gpus
        for (_, _, sizes, job), part in zip(jobs, self._parts, strict=True):
            if not remaining:
                break
            budget += part
            if budget > _ROUNDING and sizes[0] <= remaining:
                size_index = bisect_right(sizes, budget + _ROUNDING)  # never more than remain
                shares[job] = size = sizes[size_index - 1] if size_index else sizes[0]
                budget -= size
                remaining -= size
        return shares


def _raised(jobs: Sequence[_Entry], shares: dict[JobView, int], gpus: int) -> dict[JobView, int]:
    """`shares`, with the remaining GPUs added, to the shortest jobs first."""
    remaining = gpus - sum(shares.values())
    joined = False
    for _, _, sizes, job in jobs:
        if not remaining:
            break
        held = shares.get(job, 0)
        if held or sizes[0] <= remaining:
            size = sizes[bisect_right(sizes, held + remaining) - 1]
            if size > held:
                shares[job] = size
                remaining -= size - held
                joined |= not held
    return {job: shares[job] for *_, job in jobs if job in shares} if joined else shares


def _gpu_seconds_left(job: JobView) -> float:
    """Work left, as GPU-seconds on the fewest GPUs that the job can use."""
    least_gpus = job.sizes[0]
    return least_gpus * job.oracle_remaining(least_gpus)
