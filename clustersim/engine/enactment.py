"""Enacts proposals: starts, preemptions, resizes and migrations, and their overheads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from clustersim.cluster import Joins, Placement
from clustersim.jobs import ActiveJob
from clustersim.records import (
    CANCELLED,
    MIGRATE,
    NOTE,
    PREEMPT,
    RATE,
    REPLAN,
    REQUEUE,
    RESIZE,
    RESTART,
    START,
)
from clustersim.scheduler import Event, JobView, Proposal
from clustersim.scheduler.internal import active_of, adopt
from clustersim.scheduler.searches import is_packed
from clustersim.speed import RunningSpeeds
from itertime.spec import at_depth

from .clock import Due
from .held_jobs import HeldJobs
from .world import World

__all__ = ["Enactment"]


class Enactment:
    """Gives GPUs to the jobs of a simulation, takes GPUs from them, and records both."""

    def __init__(
        self,
        world: World,
        speeds: RunningSpeeds[ActiveJob],
        on_completion: Callable[[Due], None],
        prices: Mapping[str, float] | None = None,
    ):
        """`on_completion` is called when a job may be done, with (job, generation of its allocation).
        `prices`: US dollars per GPU-hour by GPU type, None if the cluster states none.
        """
        self.speeds, self._prices = speeds, prices
        self.joins = Joins() if world.facts.sharing.packs > 1 else None
        self._world, self._facts, self._clock = world, world.facts, world.clock
        self.held_jobs = HeldJobs(world)
        self._views, self._recorder = world.views, world.recorder
        self._on_completion_due = [on_completion]

    def enact(self, proposal: Proposal, now: float) -> None:
        """Turn the difference between the proposal and reality into starts, preemptions, resizes and
        migrations.
        """
        changes, batches, withdrawals = proposal.changes, proposal.batches, proposal.withdrawals
        if changes or batches or withdrawals:
            self._facts.stamp += 1
        elif self.speeds.independent:
            return
        self._facts.capacity = adopt(proposal, self._facts.capacity)
        changed_jobs = self._new_batches(batches) if batches else []
        speeds: dict[ActiveJob, float] = {}
        if not self.speeds.independent:
            # First all speeds, since those of the jobs that move depend on each other. Then each job, as the
            # log has it: it is settled at its old speed before it gets the new one.
            speeds = self.speeds.move({active_of(job): placement for job, placement in changes.items()})
        for job, placement in changes.items():
            active = active_of(job)
            active.settle(now)
            if placement is None:
                if job in withdrawals:
                    self._withdraw(job, active, withdrawals[job], now)
                    continue
                self._count_idle(active)
                self.preempt(active)
            else:
                self._allocate(job, active, placement, now, speeds.pop(active, None))
        if withdrawals:
            for job, withdrawal in withdrawals.items():
                if job not in changes:
                    self._withdraw(job, active_of(job), withdrawal, now)
        # The other speeds are those of jobs that stay, but share links or GPUs with jobs that moved.
        self._change_speeds(speeds)
        for job in changed_jobs:
            if job not in changes:
                self._replan(active_of(job), now)

    def _withdraw(self, job: JobView, active: ActiveJob, withdrawal: float | str, now: float) -> None:
        """Requeue or cancel a job, as the policy asks. The GPUs of a running job are free already."""
        if isinstance(withdrawal, float):
            self.requeue(active, "by the policy", withdrawal)
            return
        if active.placement is not None:
            self._let_go(active)
        else:
            active.settle(now)
            self._facts.waiting.remove(job)
        self._world.leave(active, now, f"{CANCELLED} the policy: {withdrawal}")

    def requeue(self, active: ActiveJob, reason: str, eligible_in_s: float) -> None:
        """Let a running job, just settled, begin anew; its GPUs are free already. It is held for
        `eligible_in_s` seconds, and then waits again.
        """
        world, now, view = self._world, self._clock.now, self._views[active]
        lost_s = active.begin_anew()
        self._let_go(active)
        self._recorder.event(now, REQUEUE, active.job.job_id, overhead_s=lost_s, detail=reason)
        if eligible_in_s > 0.0:
            self.held_jobs.hold(active, "requeued", now + eligible_in_s)
        else:
            world.policy.add_waiting(view)
        world.tell(Event("interrupted", view))

    def end_run(self, active: ActiveJob) -> None:
        """A run of a job, just settled, is over that was not its last: the job begins anew."""
        assert active.placement is not None
        self._facts.capacity.release(active.placement, active.demand)
        run = active.end_run()
        self.requeue(active, run.reason, run.pause_s)

    def _new_batches(self, batches: Mapping[JobView, int]) -> list[JobView]:
        """Let jobs train with these batches from now on. Returns the running jobs that change theirs, whose
        speed is still to be set.
        """
        changed_jobs = []
        for job, batch in batches.items():
            active = active_of(job)
            assert active.phases is not None
            if batch != active.phases.batch:
                active.train_with(batch)
                if active.placement is not None:
                    changed_jobs.append(job)
        return changed_jobs

    def share_links(self) -> None:
        """Let the running jobs have what those that left leave them of GPUs and of the network's links."""
        self._change_speeds(self.speeds.move({}))

    def _change_speeds(self, speeds: Mapping[ActiveJob, float]) -> None:
        for active, unit_s in speeds.items():
            self.change_speed(active, unit_s)

    def note(self, active: ActiveJob, text: str) -> None:
        """Record what the policy, or a fleet, says about a job."""
        active.policy_note = text
        self._recorder.event(self._clock.now, NOTE, active.job.job_id, detail=text)

    def preempt(self, active: ActiveJob, reason: str = "") -> None:
        """Let a running job wait again, with its progress; its GPUs are free already."""
        self._let_go(active)
        active.preemptions += 1
        self._world.policy.add_waiting(self._views[active])
        self._recorder.event(self._clock.now, PREEMPT, active.job.job_id, detail=reason)

    def _count_idle(self, active: ActiveJob) -> None:
        """Count a job that the policy stops while no other job gets any of its GPUs."""
        assert active.placement is not None
        if not is_packed(active) and self._facts.capacity.has_room(active.placement, active.demand):
            self._facts.idle_stops += 1

    def free_gpus(self, active: ActiveJob) -> None:
        """Free the GPUs of a running job that ends or was interrupted."""
        assert active.placement is not None
        self._facts.capacity.release(active.placement, active.demand)
        self._let_go(active)

    def change_speed(self, active: ActiveJob, unit_s: float) -> None:
        """Let a running job continue at another speed, on the same GPUs."""
        now = self._clock.now
        self._facts.stamp += 1
        self._world.note_change(active)
        self.expect_completion(active, active.change_speed(unit_s, now), now)
        self._recorder.event(now, RATE, active.job.job_id, unit_s=unit_s)

    def expect_completion(self, active: ActiveJob, done_s: float, now: float) -> None:
        """The job will be done at `done_s` unless its GPUs change. Infinite while it loads a checkpoint for
        an unknown time.
        """
        if done_s < inf:
            self._clock.after(done_s - now, self._on_completion_due, (active, active.generation))

    def _let_go(self, active: ActiveJob) -> None:
        if self.joins is not None:
            self.joins.end(active.placement or ())
        active.let_go()
        if not self.speeds.independent:
            self.speeds.forget(active)
        del self._facts.running[self._views[active]]

    def _allocate(
        self, job: JobView, active: ActiveJob, placement: Placement, now: float, unit_s: float | None
    ) -> None:
        """Give a job GPUs, on which a unit of its work takes `unit_s` seconds; None where no job's speed
        depends on other jobs.
        """
        # The overhead depends on the state of the job before the change.
        gpus = placement[0][1] if len(placement) == 1 else sum([count for _, count in placement])
        kind = _classify(active, gpus)
        overhead_s = active.charge(self._world.overheads, kind, gpus, len(placement))
        if self.joins is not None:
            self.joins.end(active.placement or ())
            self.joins.begin(placement, packed=not active.millionths)
        # From here on the job runs in `placement`.
        if active.placement is None:
            self._facts.waiting.remove(job)
            self._facts.running[job] = active.generation
            if active.start_s is None:
                active.start_s = now
                if self._world.on_start:
                    for observe in self._world.on_start:
                        observe(active)
        if self._prices is not None:
            active.set_price(self._prices[self._facts.cluster.type_of(placement[0][0])])
        if unit_s is None:
            unit_s = self.speeds.alone_s(active, gpus, placement)
        self.expect_completion(active, active.hold(placement, gpus, unit_s, now, overhead_s), now)
        self._record(active, kind, now, overhead_s, unit_s)

    def begin_phase(self, active: ActiveJob, now: float) -> None:
        """A phase of a running job ends at `now`. The job goes on on its GPUs, at the speed of the next."""
        active.next_phase(now)
        self._replan(active, now)
        self._world.tell(Event("phase", self._views[active]))

    def _replan(self, active: ActiveJob, now: float) -> None:
        """A running job goes on on its GPUs with the plan of its present phase and batch. What
        is left of an overhead is still to be paid.
        """
        assert active.placement is not None
        view = self._views[active]
        speeds = self.speeds.move({active: active.placement})
        unit_s = speeds.pop(active)
        self.expect_completion(active, active.change_speed(unit_s, now), now)
        owed_s = active.ready_s - now if now < active.ready_s < inf else 0.0
        self._record(active, REPLAN, now, owed_s, unit_s)
        running = self._facts.running
        del running[view]  # what a policy knew of its speed does not hold any more, as after a start
        running[view] = active.generation
        self._change_speeds(speeds)

    def _record(self, active: ActiveJob, kind: str, now: float, overhead_s: float, unit_s: float) -> None:
        """Record that a job begins to run in `placement`, or goes on there with another plan."""
        job, gpus, placement = active.job, active.gpus, active.placement
        assert placement is not None
        curve = active.curve_on(self._facts.cluster, placement[0][0]) if active.offers else active.curve
        plan = curve.plans.get(gpus, "")
        detail = ""
        if active.phases is not None:
            detail = active.phases.words()
            model = job.model and at_depth(job.model, active.phases.layers)
            job = replace(job, phases=None, model=model, global_batch=active.phases.batch)  # what trains
        event = self._recorder.event(now, kind, job.job_id, gpus, placement, plan, overhead_s, detail, unit_s)
        if plan:
            self._recorder.plan(job, event)


def _classify(active: ActiveJob, gpus: int) -> str:
    """The kind of change for a job that gets `gpus` GPUs; counts it."""
    if active.start_s is None:
        return START
    if active.placement is None:
        active.restarts += 1
        return RESTART
    if active.gpus != gpus:
        active.resizes += 1
        return RESIZE
    active.migrations += 1
    return MIGRATE
