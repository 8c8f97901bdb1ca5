"""The storage of checkpoints, shared by the jobs that load at the same time.

The bandwidth is shared max-min fairly (Bertsekas and Gallager, Data Networks, section 6.5.2): every load gets
an equal part, but no more than its nodes can take, and the others share the rest. Between two changes all
rates are constant, so the only events are the beginning and the end of loads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["SharedStorage", "fair_rates"]

Key = TypeVar("Key", bound=Hashable)


def fair_rates(limits: Mapping[Key, float], total: float) -> dict[Key, float]:
    """The max-min fair shares of `total`, each at most its limit, by progressive filling.

    >>> fair_rates({"a": 2.0, "b": 8.0, "c": 9.0}, 12.0)
    {'a': 2.0, 'b': 5.0, 'c': 5.0}
    """
    rates = dict.fromkeys(limits, 0.0)
    remaining, waiting = total, len(limits)
    for key in sorted(limits, key=lambda k: limits[k]):
        rates[key] = min(limits[key], remaining / waiting)
        remaining -= rates[key]
        waiting -= 1
    return rates


@dataclass(slots=True)
class _Load:
    remaining_bytes: float
    limit: float
    rate: float = 0.0


class SharedStorage(Generic[Key]):
    """Loads in progress, by a key of the caller's choice. `now` must never decrease from call to call."""

    def __init__(self, bytes_per_s: float, now: float = 0.0):
        self.bytes_per_s, self._now = bytes_per_s, now
        self._loads: dict[Key, _Load] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._loads

    def begin(self, key: Key, size_bytes: float, limit: float, now: float) -> None:
        """Start to load `size_bytes`, at no more than `limit` bytes/s."""
        self._advance(now)
        self._loads[key] = _Load(size_bytes, limit)
        self._share()

    def end(self, key: Key, now: float) -> None:
        """Remove a load, complete or not."""
        self._advance(now)
        del self._loads[key]
        self._share()

    def next_end(self) -> tuple[float, Key] | None:
        """When the next load is complete, and its key; of simultaneous ones the load that began first."""
        first_end: tuple[float, Key] | None = None
        for key, load in self._loads.items():
            end_s = self._now + load.remaining_bytes / load.rate
            if first_end is None or end_s < first_end[0]:
                first_end = (end_s, key)
        return first_end

    def remaining_s(self, key: Key, now: float) -> float:
        """Remaining seconds of a load if no other load begins or ends."""
        load = self._loads[key]
        return max(0.0, load.remaining_bytes / load.rate - (now - self._now))

    def _advance(self, now: float) -> None:
        for load in self._loads.values():
            load.remaining_bytes = max(0.0, load.remaining_bytes - load.rate * (now - self._now))
        self._now = now

    def _share(self) -> None:
        limits = {key: load.limit for key, load in self._loads.items()}
        plenty = sum(limits.values()) <= self.bytes_per_s
        rates = limits if plenty else fair_rates(limits, self.bytes_per_s)
        for key, load in self._loads.items():
            load.rate = rates[key]
