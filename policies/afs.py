"""AFS: apathetic future share."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .placing import available, run_elastic

__all__ = ["Afs", "apathetic_shares"]

Array = NDArray[np.float64]


class Afs(Scheduler):
    """AFS-L: each GPU to the job that, of two, lowers their mean completion time more if what is freed later
    is not thought about; at every event.

    Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning", NSDI 2021, section 4. Of two jobs
    let `a` be the one that ends first on what it holds. A GPU goes to `b` if
    (p_b' - p_b) / p_b' > (p_a' - p_a) / p_a, where p and p' are the speeds without and with it, else to `a`;
    of two without GPUs, to the shorter one. Run times that users do not state come from the oracle.
    """

    def schedule(self, state: State) -> Proposal:
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        return run_elastic(state, apathetic_shares(jobs, available(state)))


def apathetic_shares(jobs: Sequence[JobView], gpus: int) -> dict[JobView, int]:
    """GPUs by job, in the order of `jobs`; those that get none are left out.

    Jobs grow by whole steps of `sizes`; between two sizes speed is taken to grow evenly, so that a step is
    worth as much as its first GPU.
    """
    jobs = _reachable(jobs, gpus)
    scan = _Scan(jobs)
    while gpus and (i := scan.first(gpus)) is not None:
        gpus -= scan.take(i)
    return {job: job.sizes[level - 1] for job, level in zip(jobs, scan.level, strict=True) if level}


def _reachable(jobs: Sequence[JobView], gpus: int) -> list[JobView]:
    """Those who may get GPUs: of jobs with equal smallest sizes the shortest are served first, and no more of
    them than fit.
    """
    lengths: dict[int, list[tuple[float, int]]] = {}
    for i, job in enumerate(jobs):
        lengths.setdefault(job.sizes[0], []).append((job.oracle_remaining(job.sizes[0]), i))
    kept = (i for size, ranked in lengths.items() for _, i in nsmallest(gpus // size, ranked))
    return [jobs[i] for i in sorted(kept)]


class _Scan:
    """All jobs side by side: their next steps, and the scan of the paper's algorithm for the one to serve."""

    def __init__(self, jobs: Sequence[JobView]):
        self.jobs = jobs
        self.level = [0] * len(jobs)  # sizes held: sizes[level - 1]
        self.step = np.zeros(len(jobs))  # GPUs of the next step; infinite if there is none
        self.end_s = np.zeros(len(jobs))  # on what it holds; for those that hold nothing, see `idle`
        self.idle = np.ones(len(jobs), dtype=bool)
        self.as_first = np.zeros(len(jobs))  # (p' - p) / p
        self.as_second = np.zeros(len(jobs))  # (p' - p) / p'
        for i in range(len(jobs)):
            self._look(i)

    def take(self, i: int) -> int:
        """Give job `i` its next step; returns its GPUs."""
        taken = int(self.step[i])
        self.level[i] += 1
        self._look(i)
        return taken

    def first(self, gpus: int) -> int | None:
        """The job to serve among those whose step fits into `gpus`; None if no step does.

        The jobs are gone through once, each compared with the best so far; what comes between two changes of
        the best is skipped over in one go.
        """
        fitting = np.flatnonzero(self.step <= gpus)
        if not len(fitting):
            return None
        best, rest = fitting[0], fitting[1:]
        while len(rest):
            wins = np.flatnonzero(self._beats(rest, best))
            if not len(wins):
                break
            best, rest = rest[wins[0]], rest[wins[0] + 1 :]
        return int(best)

    def _beats(self, others: NDArray[np.intp], best: int) -> NDArray[np.bool_]:
        """Which of `others`, all later in the order of submission, deserve the GPU more than `best`."""
        both_idle = self.idle[others] & self.idle[best]
        other_first = (self.idle[best] & ~self.idle[others]) | (
            (self.idle[best] == self.idle[others]) & (self.end_s[others] < self.end_s[best])
        )
        as_first = self.as_second[best] <= self.as_first[others]
        as_second = self.as_second[others] > self.as_first[best]
        return np.where(both_idle, other_first, np.where(other_first, as_first, as_second))

    def _look(self, i: int) -> None:
        """Work out what a job's next step is and what it is worth."""
        job, level = self.jobs[i], self.level[i]
        held = job.sizes[level - 1] if level else 0
        self.idle[i] = not level
        self.end_s[i] = job.oracle_remaining(held or job.sizes[0])
        if level == len(job.sizes):
            self.step[i] = np.inf
            return
        size = job.sizes[level]
        self.step[i] = size - held
        speed = job.rate(held) if held else 0.0
        growth = (job.rate(size) - speed) / (size - held)  # with one GPU more
        self.as_first[i] = growth / speed if speed else np.inf
        self.as_second[i] = growth / (speed + growth)
