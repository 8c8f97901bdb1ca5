"""The Gittins index: who is most likely to finish soon, given the service attained so far."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number, positive
from policies.toolkit.rounds import TimeSlices

__all__ = ["Gittins", "gittins_index"]

_MOST_SIZES = 1000  # of a sample: more would cost time and say little more
_LEAST_SAMPLE = 8
_GROWTH = 1.25  # the sample is looked at anew when it has grown by this factor


def gittins_index(attained: float, sizes: np.ndarray, least: float = 0.0) -> float:
    """The Gittins index of a job that has attained `attained` of a size drawn from `sizes` (ascending):
    sup over d >= `least` of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]; 0 beyond the largest size.

    Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue", Queueing Systems 2009. The supremum
    is taken at `least` or where d ends at a size: in between the numerator stays and the denominator grows.
    `least` is the service of a turn: of a sample, shorter looks ahead would only see where its points lie.

    >>> [round(gittins_index(a, np.array([4.0, 8.0, 12.0])), 6) for a in (0, 4, 8)]
    [0.125, 0.166667, 0.25]
    """
    left = sizes[np.searchsorted(sizes, attained, side="right") :] - attained
    if not len(left):
        return 0.0
    within = int(np.searchsorted(left, least, side="right"))  # the sizes that a turn reaches
    spans = np.append(least, left[within:])
    done = np.arange(within, len(left) + 1)
    served = np.append(np.sum(left[:within]), np.sum(left[:within]) + np.cumsum(left[within:]))
    cost = served + (len(left) - done) * spans
    return float(np.max(np.divide(done, cost, out=np.zeros(len(cost)), where=cost > 0)))


class Gittins(Scheduler):
    """Highest Gittins index first, of the service (GPU-seconds) that jobs need, preemptive, in rounds of
    `quantum_s` seconds; a job that does not fit is skipped.

    Gittins, "Bandit processes and dynamic allocation indices", JRSS B 1979: no policy that does not know
    the sizes has a smaller mean completion time on one server with Poisson arrivals. On many GPUs, by
    GPU-seconds, it is the 2D-Gittins of Tiresias (NSDI 2019). `sizes_gpu_s` is a sample of the distribution;
    without one it is learned from the jobs that have finished, with least attained service until there are 8.
    """

    def __init__(self, sizes_gpu_s: Sequence[float] | None = None, quantum_s: float = 600.0):
        self.quantum_s = number("quantum_s", quantum_s, least=1)
        self.sizes_gpu_s = None if sizes_gpu_s is None else positive("sizes_gpu_s", sizes_gpu_s)
        self._sizes = _distribution(self.sizes_gpu_s or ())
        self._finished: list[float] = []
        self._learn_at = _LEAST_SAMPLE if self.sizes_gpu_s is None else inf
        self._slices = TimeSlices(self.quantum_s)
        self._rank: dict[JobView, tuple[float, float]] = {}

    def schedule(self, state: State) -> Proposal:
        self._see_finished(state)
        for job in self._slices.expired(state):
            self._rank[job] = self._claim(job)
        proposal = state.proposal()
        proposal.run_by(self._standing)
        self._slices.request_wake_up(proposal, state)
        return proposal

    def _claim(self, job: JobView) -> tuple[float, float]:
        """Beyond all known sizes, and before any is known, the least attained service comes first."""
        turn_gpu_s = self.quantum_s * job.requested
        return -gittins_index(job.attained, self._sizes, turn_gpu_s), job.attained

    def _standing(self, job: JobView) -> tuple[float, float]:
        """While a job runs, its claim when its turn began."""
        rank = self._rank.get(job)
        if rank is None or (not job.running and rank[1] != job.attained):
            rank = self._rank[job] = self._claim(job)
        return rank

    def _see_finished(self, state: State) -> None:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._rank.pop(event.job, None)
                if self._learn_at < inf:
                    self._finished.append(event.job.attained)
        if len(self._finished) >= self._learn_at:
            self._learn_at = ceil(self._learn_at * _GROWTH)
            self._learn(state)

    def _learn(self, state: State) -> None:
        """Take the finished jobs' service for the distribution, rank by it those who run as they stand now,
        and sort the waiting jobs anew.
        """
        ranking, waiting = state.pending_by(self._standing), list(state.pending)
        for job in waiting:
            ranking.remove(job)
        self._sizes = _distribution(self._finished)
        self._rank = {job: self._claim(job) for job in state.running}
        for job in waiting:
            ranking.add(job)


def _distribution(sizes: Sequence[float]) -> np.ndarray:
    """Sizes in ascending order; of a large sample, `_MOST_SIZES` quantiles."""
    ordered = np.sort(np.array(sizes, dtype=float))
    if len(ordered) <= _MOST_SIZES:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, _MOST_SIZES).round().astype(int)]
