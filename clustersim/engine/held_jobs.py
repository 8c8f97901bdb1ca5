"""Jobs in the system that are not to be run yet: the policy does not see them."""

from __future__ import annotations

from typing import cast

from clustersim.jobs import ActiveJob
from clustersim.records import ELIGIBLE, FAIL, FAILED, HOLD, NOTE, UNFINISHED
from clustersim.scheduler import Event

from .clock import Due
from .job_records import record_of
from .world import World

__all__ = ["HeldJobs"]


class HeldJobs:
    """Holds jobs, and lets the policy have them when they are eligible.

    A job that was never eligible is then submitted to the policy, which may decline it. One that was requeued
    waits again.
    """

    def __init__(self, world: World):
        self._world = world
        self._on_time_due = [self._on_time]
        world.at_end.append(self._record_unfinished)

    def hold(self, active: ActiveJob, reason: str, until_s: float | None = None) -> None:
        """A job without GPUs is not to be run, for a reason. `until_s`: the end of the hold, if it is known;
        else `release` ends it.
        """
        world = self._world
        active.hold_back()
        world.held[active] = reason
        world.recorder.event(world.clock.now, HOLD, active.job.job_id, detail=reason)
        if until_s is not None:
            world.clock.after(until_s - world.clock.now, self._on_time_due, (active, active.generation))

    def release(self, active: ActiveJob) -> None:
        """A held job is eligible from now on; the caller asks for a decision."""
        world, now = self._world, self._world.clock.now
        del world.held[active]
        active.become_eligible(now)
        world.recorder.event(now, ELIGIBLE, active.job.job_id)
        view = world.views.get(active)
        if view is None:
            world.submitted.append(active)
        else:
            world.policy.add_waiting(view)
            world.tell(Event("eligible", view))

    def leave(self, active: ActiveJob, reason: str) -> None:
        """A held job leaves the system for good."""
        world, now = self._world, self._world.clock.now
        del world.held[active]
        world.views.pop(active, None)
        active.settle_held(now)
        world.recorder.event(now, FAIL, active.job.job_id, detail=reason)
        world.depart(record_of(active, state=FAILED, reason=reason), active.order)

    def cancel(self, active: ActiveJob, reason: str) -> bool:
        """A job leaves the system if it waits, held or not. Returns whether it did."""
        world, now = self._world, self._world.clock.now
        view = world.views.get(active)
        if active in world.held:
            self.leave(active, reason)
        elif active in world.submitted:
            world.submitted.remove(active)
            active.settle(now)
            world.recorder.event(now, FAIL, active.job.job_id, detail=reason)
            world.depart(record_of(active, state=FAILED, reason=reason), active.order)
        elif view is not None and view in world.facts.waiting.jobs:
            active.settle(now)
            world.facts.waiting.remove(view)
            world.leave(active, now, reason)
        else:
            return False
        return True

    def note(self, active: ActiveJob, text: str) -> None:
        """Record something about a job."""
        active.policy_note = text
        self._world.recorder.event(self._world.clock.now, NOTE, active.job.job_id, detail=text)

    def _on_time(self, event: Due) -> None:
        active, generation = cast("tuple[ActiveJob, int]", event.value)
        world, now = self._world, self._world.clock.now
        if active not in world.held or active.generation != generation:
            return  # it left the system meanwhile
        self.release(active)
        world.last_event_s, world.wake_ups = now, 0
        world.decide_at_this_instant(now)

    def _record_unfinished(self, now: float) -> None:
        for active, reason in self._world.held.items():
            active.settle_held(now)
            record = record_of(active, UNFINISHED, f"still held when the run ended: {reason}")
            self._world.recorder.keep_job(record, active.order)
