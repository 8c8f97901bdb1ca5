"""Periodic checkpoints: how often a job saves, and how saves slow its progress, in closed form.

An undisturbed job goes through cycles: `interval_s` seconds of work, then `save_s` seconds in which it writes
and makes no progress. A complete save holds the work done up to its beginning. Checkpoints are no events of
the simulation: the position of a job in its cycles follows from how long it has run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

__all__ = ["Cycle"]

_EQUAL = 1e-12  # relative: work this close to a whole number of intervals needs no further save


@dataclass(frozen=True, slots=True)
class Cycle:
    """Work for `interval_s`, then save for `save_s`, repeatedly. With an interval of 0 all work is saved at
    all times at no cost; with an infinite one a job never saves.

    All methods count seconds from the beginning of a cycle.

    >>> hourly = Cycle(interval_s=3600.0, save_s=60.0)
    >>> hourly.worked_s(3650.0), hourly.worked_s(3670.0), hourly.saved_s(3670.0), hourly.elapsed_s(7200.0)
    (3600.0, 3610.0, 3600.0, 7260.0)
    """

    interval_s: float = inf
    save_s: float = 0.0

    @property
    def never(self) -> bool:
        """Whether a job makes progress all the time, because it never stops to save."""
        return self.interval_s == inf or not self.interval_s

    def _whole(self, elapsed_s: float) -> tuple[int, float]:
        """Complete cycles, and seconds since the last one."""
        period_s = self.interval_s + self.save_s
        count = floor(elapsed_s / period_s)
        return count, max(0.0, elapsed_s - count * period_s)

    def worked_s(self, elapsed_s: float) -> float:
        """Seconds of work in the first `elapsed_s`."""
        if self.never:
            return elapsed_s
        count, rest_s = self._whole(elapsed_s)
        return count * self.interval_s + min(rest_s, self.interval_s)

    def saved_s(self, elapsed_s: float) -> float:
        """Seconds of work in the first `elapsed_s` that the last complete save holds."""
        if self.never:
            return elapsed_s if not self.interval_s else 0.0
        return self._whole(elapsed_s)[0] * self.interval_s

    def elapsed_s(self, work_s: float) -> float:
        """Seconds until `work_s` seconds of work are done; a save follows every interval but the last."""
        if self.never or work_s <= 0:
            return max(0.0, work_s)
        saves = ceil(work_s / self.interval_s * (1 - _EQUAL)) - 1
        return work_s + saves * self.save_s

    def offset_s(self, elapsed_s: float) -> float:
        """Seconds since the last complete cycle."""
        return 0.0 if self.never else self._whole(elapsed_s)[1]
