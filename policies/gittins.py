"""The Gittins index: which job is most likely to finish soon, given the service it has attained."""

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
_GROWTH = 1.25  # the sample is evaluated anew when it has grown by this factor


def gittins_index(attained: float, sizes: np.ndarray, least_size: float = 0.0) -> float:
    """The Gittins index of a job that has attained the service a = `attained`, its size S drawn from `sizes`
    (ascending): sup over d >= `least_size` of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]; 0 beyond the
    largest size.

    Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue", Queueing Systems 2009. The supremum
    is attained at `least_size` or where a + d is a size: in between, the numerator is constant and the
    denominator grows. `least_size` is the service of one time slice: shorter spans would only reflect where
    the sample's points happen to lie.

    >>> [round(gittins_index(a, np.array([4.0, 8.0, 12.0])), 6) for a in (0, 4, 8)]
    [0.125, 0.166667, 0.25]
    """
    remaining = sizes[np.searchsorted(sizes, attained, side="right") :] - attained
    if not len(remaining):
        return 0.0
    slice_end = int(np.searchsorted(remaining, least_size, side="right"))  # sizes reached in one time slice
    spans = np.append(least_size, remaining[slice_end:])
    done = np.arange(slice_end, len(remaining) + 1)
    served = np.append(
        np.sum(remaining[:slice_end]), np.sum(remaining[:slice_end]) + np.cumsum(remaining[slice_end:])
    )
    cost = served + (len(remaining) - done) * spans
    return float(np.max(np.divide(done, cost, out=np.zeros(len(cost)), where=cost > 0)))


class Gittins(Scheduler):
    """Highest Gittins index first, of the service (GPU-seconds) that jobs need, preemptive, in rounds of
    `quantum_s` seconds; a job that does not fit is skipped.

    Gittins, "Bandit processes and dynamic allocation indices", JRSS B 1979: no policy that does not know
    the sizes has a smaller mean completion time on one server with Poisson arrivals. On many GPUs, by
    GPU-seconds, it is the 2D-Gittins of Tiresias (NSDI 2019). `sizes_gpu_s` is a sample of the distribution.
    Without it, the sample is the jobs that have finished, and least attained service rules until there are 8.
    For its example of three jobs Tiresias prints a mean of 10 s, where this index has 9.3 s: its authors'
    code divides by whole sizes instead of what is left of them.
    """

    def __init__(self, sizes_gpu_s: Sequence[float] | None = None, quantum_s: float = 600.0):
        self.quantum_s = number("quantum_s", quantum_s, minimum=1)
        self.sizes_gpu_s = None if sizes_gpu_s is None else positive("sizes_gpu_s", sizes_gpu_s)
        self._sizes = _distribution(self.sizes_gpu_s or ())
        self._finished: list[float] = []
        self._learn_at = _LEAST_SAMPLE if self.sizes_gpu_s is None else inf
        self._slices = TimeSlices(self.quantum_s)
        self._rank: dict[JobView, tuple[float, float]] = {}

    def schedule(self, state: State) -> Proposal:
        self._note_finished(state)
        for job in self._slices.expired(state):
            self._rank[job] = self._rank_now(job)
        proposal = state.proposal()
        proposal.run_by(self._standing)
        self._slices.request_wake_up(proposal, state)
        return proposal

    def _rank_now(self, job: JobView) -> tuple[float, float]:
        """The job's rank, lowest first. Beyond all known sizes, and before any is known, the least attained
        service comes first.
        """
        slice_gpu_s = self.quantum_s * job.requested
        return -gittins_index(job.attained, self._sizes, slice_gpu_s), job.attained

    def _standing(self, job: JobView) -> tuple[float, float]:
        """The rank to sort by; that of a running job is fixed for its time slice."""
        rank = self._rank.get(job)
        if rank is None or (not job.running and rank[1] != job.attained):
            rank = self._rank[job] = self._rank_now(job)
        return rank

    def _note_finished(self, state: State) -> None:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._rank.pop(event.job, None)
                if self._learn_at < inf:
                    self._finished.append(event.job.attained)
        if len(self._finished) >= self._learn_at:
            self._learn_at = ceil(self._learn_at * _GROWTH)
            self._learn(state)

    def _learn(self, state: State) -> None:
        """Take the service of the finished jobs as the sample, rank the running jobs by it, and sort the
        waiting jobs anew.
        """
        self._sizes = _distribution(self._finished)
        self._rank = {job: self._rank_now(job) for job in state.running}
        ranking = state.pending_by(self._standing)
        for job in state.pending:
            ranking.rerank(job)


def _distribution(sizes: Sequence[float]) -> np.ndarray:
    """The sizes in ascending order, or `_MOST_SIZES` quantiles of a larger sample."""
    ordered = np.sort(np.array(sizes, dtype=float))
    if len(ordered) <= _MOST_SIZES:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, _MOST_SIZES).round().astype(int)]
