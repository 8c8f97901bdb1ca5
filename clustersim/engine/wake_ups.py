"""When the policy is called apart from events: wake-ups that it requests, with the detection of policies that
wake up without making progress, and rounds of decisions.
"""

from __future__ import annotations

from math import floor, fsum, inf
from numbers import Real

from clustersim.records import as_row
from clustersim.scheduler import Event
from clustersim.scheduler.internal import active_of

from .clock import Due
from .world import World

__all__ = ["DecisionRounds", "WakeUps"]

_MOST_IDLE, _LEAST_ADVANCE_S = 10_000, 1.0
_INSTANT_S = 1e-6  # a round this close is reached: the clock adds up differences


class WakeUps:
    """Wakes the policy up when it asks for it, and counts wake-ups in a row without any other event."""

    def __init__(self, world: World):
        self._world = world
        self._wake_at: float | None = None
        self._generation = 0  # counts requests, so that a replaced one is recognised as stale
        self._checked_s = self._checked_work = 0.0

    def request(self, wake_at: float) -> None:
        """Wake the policy up at this time, and at no time requested earlier."""
        if wake_at == self._wake_at:
            return
        world, now = self._world, self._world.clock.now
        if not isinstance(wake_at, Real) or not now < wake_at < inf:
            raise world.policy.error(f"wake_at={wake_at!r}: must be a time after now")
        if world.drained():
            return
        self._wake_at = wake_at
        self._generation += 1
        world.clock.after(wake_at - now, [self._on_wake_up], self._generation)

    def _on_wake_up(self, event: Due) -> None:
        if event.value != self._generation:
            return  # a later request has replaced this one
        self._wake_at = None
        world = self._world
        if world.drained() or self._has_no_effect():
            return
        now = world.clock.now
        if fault := self._fault(now):
            raise world.policy.error(fault)
        world.events.append(as_row(Event, ("woken", None, None)))
        world.decide_at_this_instant(now)

    def _has_no_effect(self) -> bool:
        """Count a wake-up. True after many if no waiting job fits until something else happens."""
        self._world.wake_ups += 1
        return (
            self._world.wake_ups >= _MOST_IDLE and not self._world.facts.running and not self._any_job_fits()
        )

    def _any_job_fits(self) -> bool:
        """Whether a waiting job fits as requested; nodes may be out of service, or removed."""
        draft = self._world.state.proposal()
        return any(draft.start(job) for job in self._world.facts.waiting.jobs)

    def _fault(self, now: float) -> str:
        """The error of a policy that made no progress in very many wake-ups up to `now`; else empty."""
        wake_ups, facts = self._world.wake_ups, self._world.facts
        if wake_ups % _MOST_IDLE:
            return ""
        is_first = wake_ups == _MOST_IDLE  # nothing was checked since the last other event
        before_s = self._world.last_event_s if is_first else self._checked_s
        running, waiting = facts.running, facts.waiting.jobs
        work = fsum(active_of(job).work_left_at(now) for job in (*running, *waiting))
        if (work == self._checked_work and not is_first) or now - before_s < _LEAST_ADVANCE_S:
            return (
                f"woke up {_MOST_IDLE} times since t={before_s:g} s and got nothing done, "
                f"with {len(running)} jobs running and {len(waiting)} jobs waiting"
            )
        self._checked_s, self._checked_work = now, work
        return ""


class DecisionRounds:
    """Says when a decision has to wait, and asks for it at the next multiple of `interval_s` on the trace's
    clock. Rounds without any event before them cost nothing.
    """

    def __init__(self, world: World, interval_s: float):
        self._world, self._interval_s = world, interval_s
        self._on_round_due = [self._on_round]
        self._expected = False

    def must_wait(self, now: float) -> bool:
        """Whether the decision due at `now` waits for the next round. It does not once no job is left."""
        nearest_s = round(now / self._interval_s) * self._interval_s
        if abs(now - nearest_s) <= _INSTANT_S or self._world.drained():
            return False
        if not self._expected:
            self._expected = True
            next_s = (floor(now / self._interval_s) + 1) * self._interval_s
            self._world.clock.after(next_s - now, self._on_round_due)
        return True

    def _on_round(self, _: Due) -> None:
        self._expected = False
        if not self._world.drained():  # else the run has ended before the round, with its last job
            self._world.decide_at_this_instant(self._world.clock.now)
