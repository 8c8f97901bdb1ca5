"""How the work of a job goes on, where its speed changes with its progress.

The user states the rule by which the batch of a job changes, so a scheduler knows the batches of all phases,
and how long past ones were. How long the others are is predicted as in Shockwave (Zheng et al., NSDI 2023,
section 5): past phases keep their length, and the work that they leave is divided evenly among the present
phase and those to come. That is the posterior of its Dirichlet model after the last end of a phase.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustersim.scheduler import JobView

__all__ = ["WorkCourse", "course_of", "predicted_shares"]


class WorkCourse(NamedTuple):
    """How a job goes on, on its requested GPUs. `seconds` from now on and `shares` of the work done by then
    are the corners of a line; `left_s`, `run_s`: seconds of work left, and in all.
    """

    seconds: tuple[float, ...]
    shares: tuple[float, ...]
    run_s: float

    @property
    def done(self) -> float:
        """The share of the work that is done now."""
        return self.shares[0]

    @property
    def left_s(self) -> float:
        return self.seconds[-1]

    def share_after(self, seconds: float) -> float:
        """The share that is done after so many seconds of work."""
        return float(np.interp(seconds, self.seconds, self.shares))

    def shares_after(self, seconds: np.ndarray) -> np.ndarray:
        """The same for several."""
        shares: np.ndarray = np.interp(seconds, self.seconds, self.shares)
        return shares


def predicted_shares(past: list[float], phases: int, done: float) -> list[float]:
    """The shares of the work of all `phases` of a job: those of `past` ones, then predictions. The job has
    done the share `done`, so the present phase is at least as long as it has lasted.

    >>> predicted_shares([0.4], 3, 0.5), predicted_shares([], 2, 0.75)
    ([0.4, 0.3, 0.3], [0.75, 0.25])
    """
    begun, to_come = sum(past), phases - len(past)
    present = max((1.0 - begun) / to_come, done - begun)
    later_share = 0.0 if to_come == 1 else (1.0 - begun - present) / (to_come - 1)
    return [*past, present, *[max(0.0, later_share)] * (to_come - 1)]


def course_of(job: JobView, predicts: bool = True) -> WorkCourse:
    """How `job` goes on. `predicts`: its phases; if not, its present speed stays. Work that the user does not
    state comes from the oracle.
    """
    done, work_left = job.work_done, job.oracle_work_left
    work, gpus = done + work_left, job.requested
    share = done / work
    if not predicts or not job.phases:
        left_s = work_left / job.rate(gpus)
        return WorkCourse((0.0, left_s), (share, 1.0), work / job.rate(gpus))
    phases, present_phase = job.phases, job.phase
    past = [phase.share for phase in phases[:present_phase] if phase.share is not None]
    shares = predicted_shares(past, len(phases), share)
    rates = [1.0 / phase.unit_s[gpus] for phase in phases]
    seconds, corners, end = [0.0], [share], sum(past)
    for length, rate in zip(shares[present_phase:], rates[present_phase:], strict=True):
        begin, end = max(share, end), end + length
        if end > begin:
            seconds.append(seconds[-1] + (end - begin) * work / rate)
            corners.append(end)
    corners[-1] = 1.0
    run_s = sum(length * work / rate for length, rate in zip(shares, rates, strict=True))
    return WorkCourse(tuple(seconds), tuple(corners), run_s)
