"""What a GPU of each type is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log

__all__ = ["Values"]


class Values:
    """What a GPU of each type is worth, relative to the best one: the geometric mean, over the jobs
    submitted so far, of a job's speed per GPU on the type over that on its fastest type.

    With it GPU time on different types adds up. A job takes the least worth of GPU time on the type that
    suits it best in comparison with the other jobs. A single type is worth 1.

    >>> values = Values(["a100", "h100"])
    >>> values.note({"a100": 1.0, "h100": 4.0})
    >>> values.note({"a100": 2.0, "h100": 2.0})
    >>> print(values.of)
    {'a100': 0.5, 'h100': 1.0}
    """

    def __init__(self, types: Iterable[str]):
        self.of = dict.fromkeys(types, 1.0)
        self._logs = dict.fromkeys(self.of, 0.0)
        self._jobs = dict.fromkeys(self.of, 0)

    def note(self, speeds: Mapping[str, float]) -> None:
        """Count a job with these speeds per GPU (iterations/s) on the types that can run it."""
        if len(self.of) == 1:
            return
        best = max(speeds.values())
        for name, speed in speeds.items():
            self._logs[name] += log(speed / best)
            self._jobs[name] += 1
            self.of[name] = exp(self._logs[name] / self._jobs[name])
