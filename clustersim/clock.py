"""Simulated time: SimPy's environment, with bare callbacks instead of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

__all__ = ["Clock", "Due"]


class Due:
    """A due event: the attributes that SimPy's loop reads, and no more.

    `callbacks` are called with the event; several events may share one list.
    """

    __slots__ = ("callbacks", "value")
    _ok = True

    def __init__(self, callbacks: Sequence[Callable[[Due], None]], value: object):
        self.callbacks, self.value = callbacks, value


class Clock(simpy.Environment):
    """Due events in order of time; those due at the same time in the order of the requests."""

    def after(self, delay_s: float, callbacks: Sequence[Callable[[Due], None]], value: object = None) -> None:
        """Call `callbacks` in `delay_s` seconds, behind everything already due at that time; at once if the
        delay is negative. A request cannot be cancelled: pass a `value` by which to recognise a stale one.
        """
        due = Due(callbacks, value)
        self.schedule(due, delay=delay_s if delay_s > 0.0 else 0.0)  # type: ignore[arg-type]
