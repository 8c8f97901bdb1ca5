"""AFS's comparison of jobs two by two: one pass over the jobs, each compared with the best so far."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from clustersim.scheduler import JobView

__all__ = ["Gain", "Scan", "gains"]

Gain = tuple[int, float, float]
"""What a step is worth: its GPUs; (p' - p) / p and (p' - p) / p', where p and p' are the job's speeds without
and with one more GPU. Between two sizes speed is taken to grow linearly, so a step is worth as much as its
first GPU.
"""


def gains(job: JobView) -> tuple[Gain, ...]:
    """The steps of a job: from no GPUs to its first size, from the first to the second, and so on.

    >>> class Job:
    ...     sizes = (1, 2)
    ...     def rate(self, gpus): return {1: 1.0, 2: 1.5}[gpus]
    >>> gains(Job())
    ((1, inf, 1.0), (1, 0.5, 0.3333333333333333))
    """
    steps: list[Gain] = [(job.sizes[0], inf, 1.0)]
    for held, size in zip(job.sizes, job.sizes[1:], strict=False):
        speed = job.rate(held)
        growth = (job.rate(size) - speed) / (size - held)
        steps.append((size - held, growth / speed, growth / (speed + growth)))
    return tuple(steps)


class Scan:
    """Jobs in order of submission, of which at most one holds no GPUs, and their next steps.

    A pass keeps the list of jobs that were best for a while. When the last of them takes its step, the
    comparisons before it remain valid, and the next pass resumes there.
    """

    def __init__(self, jobs: Iterable[tuple[JobView, int, tuple[Gain, ...]]]):
        """`jobs`: each with the number of sizes that it has taken, and its `gains`."""
        self._jobs: list[JobView] = []
        self._levels: list[int] = []
        self._gains: list[tuple[Gain, ...]] = []
        self._steps: list[float] = []  # infinite for a job without a next step
        self._end_s: list[float] = []
        self._as_first: list[float] = []
        self._as_second: list[float] = []
        for job, level, steps in jobs:
            self._jobs.append(job)
            self._levels.append(level)
            self._gains.append(steps)
            for column, value in zip(self._columns(), _worth(job, level, steps), strict=True):
                column.append(value)
        self._bests: list[int] = []
        self._seen = 0  # jobs before this index are compared

    def _columns(self) -> tuple[list[float], ...]:
        return self._steps, self._end_s, self._as_first, self._as_second

    def first(self, gpus: int) -> JobView | None:
        """The job to serve among those with a step that fits into `gpus`; None if there is none. `gpus` must
        not grow from call to call.

        Of two jobs, let `a` be the one that ends first on the GPUs it holds. The step goes to the other, `b`,
        if its gain as the second, (p_b' - p_b) / p_b', exceeds that of `a` as the first, (p_a' - p_a) / p_a.
        """
        steps, end_s, as_first, as_second = self._columns()
        for k, i in enumerate(self._bests):
            if steps[i] > gpus:
                self._seen = i
                del self._bests[k:]
                break
        best = self._bests[-1] if self._bests else None
        for i in range(self._seen, len(steps)):
            if steps[i] > gpus:
                continue
            if best is not None:
                if as_first[i] < as_second[best]:
                    continue  # its gain is too small as the first, and smaller still as the second
                if end_s[i] >= end_s[best] and as_second[i] <= as_first[best]:
                    continue
            best = i
            self._bests.append(i)
        self._seen = len(steps)
        return None if best is None else self._jobs[best]

    def take(self) -> tuple[int, int]:
        """Give its step to the job that `first` returned. Returns the GPUs of the step and the number of
        sizes that the job has then taken.
        """
        i = self._seen = self._bests.pop()
        step_count = int(self._steps[i])
        self._levels[i] += 1
        worth = _worth(self._jobs[i], self._levels[i], self._gains[i])
        self._steps[i], self._end_s[i], self._as_first[i], self._as_second[i] = worth
        return step_count, self._levels[i]


def _worth(job: JobView, level: int, steps: tuple[Gain, ...]) -> tuple[float, float, float, float]:
    """The next step of a job that has taken `level` sizes: its GPUs, the seconds to the job's end without it,
    and both gains.
    """
    step, as_first, as_second = steps[level] if level < len(steps) else _NO_STEP
    end_s = job.oracle_remaining(job.sizes[level - 1]) if level else inf
    return step, end_s, as_first, as_second


_NO_STEP = (inf, 0.0, 0.0)
