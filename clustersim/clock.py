"""Simulated time: SimPy's environment, with bare callbacks instead of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

__all__ = ["Clock", "Due"]


class Due:
    """Something that is to happen: what SimPy's loop looks at in an event, and no more.

    `callbacks` are called with it; the list may serve many events.
    """

    __slots__ = ("callbacks", "value")
    _ok = True

    def __init__(self, callbacks: Sequence[Callable[[Due], None]], value: object):
        self.callbacks, self.value = callbacks, value


class Clock(simpy.Environment):
    """What is due, in order of time; what is due at the same time, in the order in which it was asked for."""

    def after(self, delay_s: float, callbacks: Sequence[Callable[[Due], None]], value: object = None) -> None:
        """Call `callbacks` in `delay_s` seconds, behind what is due by then; at once if that is negative. It
        cannot be taken back: whoever may change his mind passes a `value` by which to tell what is stale.
        """
        due = Due(callbacks, value)
        self.schedule(due, delay=delay_s if delay_s > 0.0 else 0.0)  # type: ignore[arg-type]
