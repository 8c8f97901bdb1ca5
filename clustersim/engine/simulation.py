"""The simulation: which events happen when, and when the policy decides.

SimPy's events change the state. After all events of an instant the policy decides, and its proposal is
enacted. Nothing happens between two instants: progress is integrated when a job's speed changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import simpy

from clustersim.gctuning import collect_less_often
from clustersim.jobs import ActiveJob
from clustersim.records import DECLINED, REJECTED, SUBMIT, MemoryRecorder, Recorder, as_row
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.speed import CannotRun
from traces.job import Job

from .clock import Arrivals, Clock, Due
from .disruptions import Disruptions
from .enactment import Enactment
from .job_records import record_of, rejected_record, unfinished
from .kernel import Kernel
from .policy_calls import PolicyCalls
from .setup import RunSetup
from .wake_ups import DecisionRounds, WakeUps

__all__ = ["Simulation"]


class Simulation:
    """One run of one policy over one trace.

    `jobs` in order of submission (see `traces.submission_order`); each is read when time reaches it. Jobs
    that are not done at the end are recorded as unfinished. Records go to `recorder`, by default one in
    memory. `on_progress` is called with the number of jobs that have left the system.

    The order within one instant: completions release their GPUs, nodes go out of service and return,
    submissions are admitted or declined, then the policy decides, once. With an interval of decisions the
    last two wait for the next round.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        setup: RunSetup,
        recorder: Recorder | None = None,
        on_progress: Callable[[int], None] | None = None,
    ):
        self.setup = setup
        facts: ClusterState[JobView] = ClusterState(
            setup.cluster, setup.placer, setup.overheads, setup.quotas
        )
        facts.type_slowdown = setup.type_slowdown
        if (estimates := setup.estimates) is not None:
            jobs = (estimates.applied_to(job, setup.seed) for job in jobs)
        arrivals = Arrivals(jobs)
        clock = Clock(0.0 if arrivals.next is None else arrivals.next.submit_s)
        facts.now_s = clock.now
        self.kernel = kernel = Kernel(
            clock=clock,
            facts=facts,
            policy=PolicyCalls(
                setup.scheduler, facts, lambda: f" at t={clock.now:g} s", setup.check_all_keys
            ),
            recorder=recorder if recorder is not None else MemoryRecorder(setup.cluster),
            arrivals=arrivals,
            decide=self._decide,
            on_progress=on_progress,
        )
        self.enactment = Enactment(
            kernel, setup.speed, self._on_completion, setup.cluster.prices(setup.price_usd_per_gpu_h),
            step_times=setup.step_times, seed=setup.seed,
        )  # fmt: skip
        self._wake_ups = WakeUps(kernel)
        self._disruptions = Disruptions.of(
            kernel,
            self.enactment,
            self._wake_ups,
            failures=setup.failures,
            maintenance=setup.maintenance,
            seed=setup.seed,
        )
        interval_s = setup.decision_interval_s
        self._rounds = DecisionRounds(kernel, interval_s) if interval_s else None
        self._offers, self._mixed, self._until_s = setup.speed.offers, setup.cluster.mixed, setup.until_s
        self.closed = False
        self._interrupted = self._may_break_off = False
        # Bound once: they are called at every decision.
        self._schedule, self._enact, self._snapshot = (
            kernel.policy.schedule, self.enactment.enact, kernel.recorder.snapshot,
        )  # fmt: skip
        self._on_submissions_due = [self._on_submissions]

    @property
    def recorder(self) -> Recorder:
        return self.kernel.recorder

    def run(self) -> Recorder:
        """Simulate until no event is left.

        PolicyError if the policy breaks a rule, KeyboardInterrupt after `interrupt`; the records up to then
        stay in the recorder. They are complete if the run is `closed`: not after a KeyboardInterrupt
        that interrupted the engine itself.
        """
        clock = self.kernel.clock
        self._expect_submissions(clock.now)
        if self._disruptions is not None:
            self._disruptions.begin()
        torn = False
        try:
            with collect_less_often():
                if self._until_s is None:
                    clock.run()
                elif self._until_s > clock.now:
                    clock.run(until=self._until_s)
        except KeyboardInterrupt:
            self._interrupted, torn = True, not self._may_break_off
            raise
        finally:
            self._may_break_off = False
            if not torn:
                self._close()
        if self._interrupted:
            raise KeyboardInterrupt
        return self.recorder

    def interrupt(self) -> None:
        """End the run after this instant; at once while the policy decides, since no change is under way
        then. For a signal handler.
        """
        self._interrupted = True
        if self._may_break_off:
            raise KeyboardInterrupt

    # Events: each applies its change and asks for a decision at this instant.

    def _expect_submissions(self, now: float) -> None:
        job = self.kernel.arrivals.next
        if job is not None:
            self.kernel.clock.after(job.submit_s - now, self._on_submissions_due)

    def _on_submissions(self, _: Due) -> None:
        kernel, now = self.kernel, self.kernel.clock.now
        self._wake_ups.reset(now)
        for job, order in kernel.arrivals.until(now):
            self._submit(job, order)
        self._expect_submissions(now)
        kernel.decide_at_this_instant(now)

    def _submit(self, job: Job, order: int) -> None:
        kernel = self.kernel
        try:
            offers = self._offers(job)
        except CannotRun as reason:
            kernel.recorder.event(job.submit_s, SUBMIT, job.job_id)
            kernel.reject(rejected_record(job, str(reason)), order)
            return
        best = offers[0]
        curve, requested, note = best.curve, best.requested, best.note
        kernel.recorder.event(job.submit_s, SUBMIT, job.job_id, unit_s=curve.unit_s[requested])
        if self._disruptions is None:
            active = ActiveJob(job, order, curve, requested, note)
        else:
            active = self._disruptions.job(job, order, curve, requested, note)
        if self._mixed:
            active.offers = offers
        kernel.submitted.append(active)

    def _on_completion(self, event: Due) -> None:
        active, generation = cast("tuple[ActiveJob, int]", event.value)
        if active.generation != generation:
            return  # the job was stopped, resized or slowed down since; a later completion is expected
        kernel, now = self.kernel, self.kernel.clock.now
        self._wake_ups.reset(now)
        active.settle(now)
        self.enactment.withdraw(active)
        kernel.leave(active, now, active.failure)
        kernel.decide_at_this_instant(now)

    # The decision: all events of the instant have been applied.

    def _decide(self) -> None:
        kernel, facts = self.kernel, self.kernel.facts
        facts.now_s = now = kernel.clock.now
        facts.decision += 1
        if self._rounds is not None and self._rounds.must_wait(now):
            self._note_changes(now)
            return
        if kernel.submitted:
            self._admit()
        self._may_break_off = True
        proposal = self._schedule()
        self._may_break_off = False
        kernel.events.clear()
        self._enact(proposal, now)
        if proposal.notes:
            self.enactment.note(proposal.notes, now)
        if proposal.wake_at is not None:
            self._wake_ups.request(proposal.wake_at)
        self._note_use(now)
        if self._interrupted:
            raise simpy.core.StopSimulation(None)  # the value that `clock.run` returns

    def _note_changes(self, now: float) -> None:
        """What changed at this instant, between two rounds of decisions, changes speeds and the records."""
        self.enactment.share_links()
        self._note_use(now)
        if self._interrupted:
            raise simpy.core.StopSimulation(None)

    def _note_use(self, now: float) -> None:
        kernel, facts = self.kernel, self.kernel.facts
        waiting = len(facts.waiting.jobs) + len(kernel.submitted)
        self._snapshot(now, facts.capacity, len(facts.running), waiting, facts.gpus_down)

    def _admit(self) -> None:
        kernel = self.kernel
        submitted = kernel.submitted
        while submitted:
            active = submitted[0]
            view = JobView(active, kernel.facts)
            admitted = kernel.policy.admit(view)
            submitted.popleft()
            if admitted:
                kernel.views[active] = view
                kernel.policy.add_waiting(view)
                kernel.events.append(as_row(Event, ("submitted", view, None)))
            else:
                kernel.reject(record_of(active, state=REJECTED, reason=DECLINED), active.order)

    def _close(self) -> None:
        """Record the jobs in the system, and those never submitted, as unfinished."""
        kernel, facts = self.kernel, self.kernel.facts
        # A run without an end ends at its last decision: completions that became stale may lie later.
        limited = self._until_s is not None and not self._interrupted
        now = kernel.clock.now if limited else facts.now_s
        if facts.gpus_down and not facts.decision:  # nodes were down from the start, and no decision followed
            kernel.recorder.snapshot(facts.now_s, facts.capacity, 0, 0, facts.gpus_down)
        for record, order in unfinished(
            kernel.state, kernel.submitted, kernel.arrivals, now,
            interrupted=self._interrupted, ends_early=self._until_s is not None,
        ):  # fmt: skip
            kernel.recorder.keep_job(record, order)
        kernel.recorder.end_s = now
        kernel.recorder.oracle_used = facts.oracle_used
        self.closed = True
