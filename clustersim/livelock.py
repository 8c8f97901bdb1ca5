"""Policies that wake up again and again and get nothing done."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scheduler import State

__all__ = ["WakeUps"]

_MOST_IDLE, _LEAST_ADVANCE_S = 10_000, 1.0


class WakeUps:
    """Counts a policy's wake-ups in a row, with nothing else happening in between."""

    __slots__ = ("_checked_left", "_checked_s", "_count", "_state")

    def __init__(self, state: State, now: float):
        self._state = state
        self.forget(now)

    def forget(self, now: float) -> None:
        """Something else has happened."""
        self._count = 0
        self._checked_s: float = now
        self._checked_left: float | None = None

    def in_vain(self) -> bool:
        """Count one. True if it can change nothing, after many: no waiting job has room until something else
        happens.
        """
        self._count += 1
        return self._count >= _MOST_IDLE and not self._state._running and not self._anyone_fits()

    def _anyone_fits(self) -> bool:
        """Whether a waiting job could have what it asks for: nodes may be out of service, or gone."""
        draft = self._state.proposal()
        return any(draft.start(job) for job in self._state._pending)

    def fault(self, now: float) -> str:
        """What is wrong with a policy that got nothing done in very many of them, up to `now`; else empty."""
        if self._count % _MOST_IDLE:
            return ""
        state, before_s = self._state, self._checked_s
        left = fsum(job._job.work_left_at(now) for job in (*state.running, *state._pending))
        if left == self._checked_left or now - before_s < _LEAST_ADVANCE_S:
            running, waiting = len(state._running), len(state._pending)
            return (
                f"woke up {_MOST_IDLE} times since t={before_s:g} s and got nothing done, "
                f"with {running} jobs running and {waiting} jobs waiting"
            )
        self._checked_s, self._checked_left = now, left
        return ""
