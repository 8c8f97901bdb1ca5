"""What is left of work that may be misstated."""

from __future__ import annotations

from clustersim.scheduler import LEAST_LEFT

__all__ = ["StatedWork"]

_ROUNDING = 1e-9


class StatedWork:
    """The work left of one job, as far as its statement and its progress tell.

    A job that has done all that it stated, and more, states a tenth of that to be left for as long as it
    runs. A rule that serves short jobs first would take it for one that is done soon. So once it has done all
    and still runs, it counts as having half of what it stated left.

    `stated`: units, as of the job's submission. `again`: the share of them that a job still has to do when it
    has done them all.

    >>> work = StatedWork(100.0)
    >>> [work.left(left, done, rate=1.0) for left, done in [(60.0, 40.0), (10.0, 95.0), (10.0, 100.0)]]
    [60.0, 5.0, 50.0]
    """

    __slots__ = ("_again_left", "_gpu_s", "_least", "_rest", "_rounding")

    def __init__(self, stated_work: float, again: float = 0.5):
        self._least, self._again_left = LEAST_LEFT * stated_work, again * stated_work
        self._rounding = _ROUNDING * stated_work
        self._rest, self._gpu_s = stated_work, 0.0  # what was left at the last look

    def left(self, stated_left: float, gpu_s: float, rate: float) -> float:
        """Units left. `stated_left`: those that the job states now. `gpu_s`: GPU-seconds in which it has
        worked so far. `rate`: units per GPU-second since the last call.
        """
        before_s, self._gpu_s = self._gpu_s, gpu_s
        if abs(stated_left - self._least) > self._rounding:
            self._rest = stated_left
            return stated_left
        self._rest -= (gpu_s - before_s) * rate
        return self._rest if self._rest > self._rounding else self._again_left
