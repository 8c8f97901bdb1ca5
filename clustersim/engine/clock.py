"""Simulated time, which is SimPy's environment with bare callbacks instead of processes, the jobs to be
submitted as time goes on, and the course of a run from its first event to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import simpy

from clustersim.gctuning import collect_less_often
from traces.estimates import Predictor
from traces.job import Job

from .links import Links, TasksOfArray

__all__ = ["Arrivals", "Clock", "Course", "Due"]


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
        event = Due(callbacks, value)
        self.schedule(event, delay=delay_s if delay_s > 0.0 else 0.0)  # type: ignore[arg-type]


class Arrivals:
    """Jobs in order of submission (see `traces.submission_order`), each with its position in that order.

    `next`: the next job to be submitted, None after the last. `predictor`: of their run times, if these are
    predicted. `links`: the dependencies between them, which a feature keeps; None if there are none.
    `arrays`: the tasks of arrays by their names, which it keeps, too.
    """

    def __init__(self, jobs: Iterable[Job], predictor: Predictor | None = None, links: Links | None = None):
        self.predictor, self.links = predictor, links
        self.arrays: dict[str, TasksOfArray] = {}
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


class Course:
    """A run on a clock: until no event is left, until `until_s`, or until it is interrupted.

    `may_break_off`: whether an interrupt may end the run at once, because only a policy is at work.
    `interrupted`: whether a user ended the run. `closed`: whether the records are complete.
    """

    def __init__(self, clock: Clock, until_s: float | None):
        self.clock, self.until_s = clock, until_s
        self.may_break_off = self.interrupted = self.closed = False

    def begin(self) -> None:
        """Expect the first events."""
        raise NotImplementedError

    def close(self) -> None:
        """Record what is not done at the end."""
        raise NotImplementedError

    def complete(self) -> None:
        """Simulate until no event is left, and close the records.

        PolicyError if the policy breaks a rule, KeyboardInterrupt after `interrupt`; the records up to then
        stay in the recorder. They are complete if the run is `closed`: not after a KeyboardInterrupt
        that interrupted the engine itself.
        """
        self.begin()
        engine_interrupted = False
        try:
            with collect_less_often():
                if self.until_s is None:
                    self.clock.run()
                elif self.until_s > self.clock.now:
                    self.clock.run(until=self.until_s)
        except KeyboardInterrupt:
            self.interrupted, engine_interrupted = True, not self.may_break_off
            raise
        finally:
            self.may_break_off = False
            if not engine_interrupted:
                self.close()
                self.closed = True
        if self.interrupted:
            raise KeyboardInterrupt

    def interrupt(self) -> None:
        """End the run after this instant; at once while the policy decides, since no change is under way
        then. For a signal handler.
        """
        self.interrupted = True
        if self.may_break_off:
            raise KeyboardInterrupt
