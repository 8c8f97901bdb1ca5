"""Simulated time, which is SimPy's environment with bare callbacks instead of processes, and the jobs to be
submitted as time goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import simpy

from traces.job import Job

__all__ = ["Arrivals", "Clock", "Due"]


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


class Arrivals:
    """Jobs in order of submission (see `traces.submission_order`), each with its position in that order.

    `next`: the next job to be submitted, None after the last.
    """

    def __init__(self, jobs: Iterable[Job]):
        self._jobs = iter(jobs)
        self.next = next(self._jobs, None)
        self._order = 0

    def until(self, now: float) -> Iterator[tuple[Job, int]]:
        """The jobs submitted at `now` or before. `next` moves on when the following one is asked for."""
        job = self.next
        while job is not None and job.submit_s <= now:
            yield job, self._order
            self.next = job = next(self._jobs, None)
            self._order += 1
