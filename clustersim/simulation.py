"""The simulation: what happens when, who is told, and when the policy decides.

Events of SimPy change the state; once all those of an instant have, the policy decides, and what it proposes
is enacted. Nothing happens between two instants: progress is integrated when a job's speed changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from numbers import Real
from typing import cast

import simpy

from traces.job import Job

from .active import ActiveJob
from .adversity import adversity_of
from .capacity import Capacity
from .clock import Clock, Due
from .curve import CannotRun
from .enactment import Enactment
from .garbage import rare_collection
from .livelock import WakeUps
from .questions import Questions
from .recorder import MemoryRecorder, Recorder
from .records import JobRecord, as_row
from .run_setup import RunSetup
from .scheduler import Event, State
from .submissions import Submissions
from .tenancy import Tenancy
from .unfinished import unfinished

__all__ = ["DECLINED", "Simulation"]

DECLINED = "declined by the policy"
"""Why a job that can run is rejected."""


class Simulation:
    """One run of one policy over one trace.

    `jobs` in order of submission (see `traces.submission_order`); each is taken when the simulation reaches
    its submission. Jobs that are not done at the end are recorded as unfinished. Records go to `recorder`, by
    default one in memory. `on_progress` is called with the number of jobs that left the system.

    The order within one instant: completions give their GPUs back, nodes go and come, then submissions are
    admitted or declined, then the policy decides, once.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        setup: RunSetup,
        recorder: Recorder | None = None,
        on_progress: Callable[[int], None] | None = None,
    ):
        cluster = setup.cluster
        self.cluster, self.scheduler, self.speed = cluster, setup.scheduler, setup.speed
        self.overheads = setup.overheads
        self.until_s, self.on_progress = setup.until_s, on_progress
        self.recorder: Recorder = recorder if recorder is not None else MemoryRecorder(cluster)
        self.state = State(cluster, setup.placer, self.overheads, Tenancy(setup.quotas))
        self._submissions = Submissions(jobs)
        first = self._submissions.next
        self.clock = Clock(0.0 if first is None else first.submit_s)
        self.state._now = self.clock.now
        self.questions = Questions(setup.scheduler, self.state, lambda: f" at t={self.clock.now:g} s")
        self.enactment = Enactment(self)
        self._submitted: deque[ActiveJob] = deque()  # and not admitted yet
        self._deciding = False
        self._wake_at: float | None = None
        self._wake_generation = 0
        self._wake_ups = WakeUps(self.state, self.clock.now)
        self._left_system = 0
        self.closed = False
        self._interrupted = self._may_break_off = False
        self._adversity = adversity_of(self, setup.failures, setup.maintenance, setup.seed)
        self._on_submissions_due, self._decide_due = [self._on_submissions], [self._decide]

    def run(self) -> Recorder:
        """Simulate until nothing is left to happen.

        PolicyError if the policy breaks a rule, KeyboardInterrupt after `interrupt`; what was recorded up to
        then stays in the recorder. It is whole if the run is `closed`: not after a KeyboardInterrupt that
        found the engine at work.
        """
        self._expect_submission(self.clock.now)
        if self._adversity is not None:
            self._adversity.begin()
        torn = False
        try:
            with rare_collection():
                if self.until_s is None:
                    self.clock.run()
                elif self.until_s > self.clock.now:
                    self.clock.run(until=self.until_s)
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

    @property
    def capacity(self) -> Capacity:
        """The GPUs that are free in reality."""
        return self.state._capacity

    def interrupt(self) -> None:
        """End the run after this instant; or at once if the policy is thinking, which changes nothing. To be
        called by a signal handler.
        """
        self._interrupted = True
        if self._may_break_off:
            raise KeyboardInterrupt

    # Events: each applies its change and asks for a decision at this instant.

    def _on_submissions(self, _: Due) -> None:
        now = self.clock.now
        self._wake_ups.forget(now)
        for job, order in self._submissions.until(now):
            self._submit(job, order)
        self._expect_submission(now)
        self._decide_now(now)

    def _submit(self, job: Job, order: int) -> None:
        try:
            offers = self.speed.offers(job)
        except CannotRun as reason:
            self.recorder.event(job.submit_s, "submit", job.job_id)
            self._reject(JobRecord.rejected(job, str(reason)), order)
            return
        best = offers[0]
        curve, requested, note = best.curve, best.requested, best.note
        self.recorder.event(job.submit_s, "submit", job.job_id, unit_s=curve.unit_s[requested])
        if self._adversity is None:
            active = ActiveJob(job, order, curve, requested, note, self.state)
        else:
            active = self._adversity.job(job, order, curve, requested, note)
        if self.cluster.mixed:
            active.offers = offers
        self._submitted.append(active)

    def _on_completion(self, event: Due) -> None:
        active, generation = cast("tuple[ActiveJob, int]", event.value)
        if active.generation != generation:
            return  # the job has been stopped or resized since; its completion is expected anew
        now = self.clock.now
        self._wake_ups.forget(now)
        active.settle(now)
        self.enactment.withdraw(active)
        self._leave(active, now, active.fate)
        self._decide_now(now)

    def _leave(self, active: ActiveJob, now: float, fate: str = "") -> None:
        """A job has finished; or it ends unfinished, by its `fate`."""
        if not fate:
            active.work_left = 0.0
            active.finish_s = now
        self.state.events.append(as_row(Event, ("finished", active.view, None)))
        self.recorder.event(now, "fail" if fate else "finish", active.job.job_id, detail=fate)
        record = JobRecord.of(active, "failed" if fate else "finished", fate)
        self.recorder.keep_job(record, active.order)
        active.forget_view()
        self._left()

    def _on_wake_up(self, event: Due) -> None:
        if event.value != self._wake_generation:
            return  # a later request has replaced this one
        self._wake_at = None
        if self._drained() or self._wake_ups.in_vain():
            return
        if fault := self._wake_ups.fault(self.clock.now):
            raise self.questions.error(fault)
        self.state.events.append(as_row(Event, ("woken", None, None)))
        self._decide_now(self.clock.now)

    # The decision: all events of the instant have been applied.

    def _decide_now(self, now: float) -> None:
        """Decide at this instant, once, behind everything else that is due at it."""
        if self._deciding:
            return
        if self.clock.peek() > now:
            self._decide()
        else:
            self._deciding = True
            self.clock.after(0.0, self._decide_due)

    def _decide(self, _: Due | None = None) -> None:
        self._deciding = False
        state = self.state
        state._now = now = self.clock.now
        state._decision += 1
        if self._submitted:
            self._admit()
        self._may_break_off = True
        proposal = self.questions.schedule()
        self._may_break_off = False
        state.events.clear()
        self.enactment.enact(proposal, now)
        if proposal.wake_at is not None:
            self._request_wake_up(proposal.wake_at)
        self.recorder.snapshot(now, state._capacity, len(state._running), len(state._pending), state._down)
        if self._interrupted:
            raise simpy.core.StopSimulation(None)  # what `clock.run` is to return

    def _admit(self) -> None:
        while self._submitted:
            active = self._submitted[0]
            job = active.view
            admitted = self.questions.admit(job)
            self._submitted.popleft()
            if admitted:
                self.questions.add_pending(job)
                self.state.events.append(as_row(Event, ("submitted", job, None)))
            else:
                self._reject(JobRecord.of(active, "rejected", reason=DECLINED), active.order)
                active.forget_view()

    # What is expected to happen

    def _expect_submission(self, now: float) -> None:
        if self._submissions.next is not None:
            self.clock.after(self._submissions.next.submit_s - now, self._on_submissions_due)

    def _request_wake_up(self, wake_at: float) -> None:
        if wake_at == self._wake_at:
            return
        now = self.clock.now
        if not isinstance(wake_at, Real) or not now < wake_at < float("inf"):
            raise self.questions.error(f"wake_at={wake_at!r}: must be a time after now")
        if self._drained():
            return
        self._wake_at = wake_at
        self._wake_generation += 1
        self.clock.after(wake_at - now, [self._on_wake_up], self._wake_generation)

    def _drained(self) -> bool:
        """Whether no job is left, here or to come: waking the policy up can change nothing any more."""
        inside = self._submitted or self.state._running or self.state._pending
        return self._submissions.next is None and not inside

    # Bookkeeping

    def _reject(self, record: JobRecord, order: int) -> None:
        self.recorder.event(self.clock.now, "reject", record.job_id, detail=record.reason)
        self.recorder.keep_job(record, order)
        self._left()

    def _left(self) -> None:
        self._left_system += 1
        if self.on_progress is not None:
            self.on_progress(self._left_system)

    def _close(self) -> None:
        """Record what is still in the system, and what never got there, as unfinished."""
        # A run without an end ends at its last decision: completions that became stale may lie later.
        now = self.clock.now if self.until_s is not None and not self._interrupted else self.state.now
        if self.state._down and not self.state._decision:  # since the start, and nobody was ever asked
            self.recorder.snapshot(self.state.now, self.capacity, 0, 0, self.state._down)
        for record, order in unfinished(self, now):
            self.recorder.keep_job(record, order)
        self.recorder.end_s = now
        self.recorder.oracle_used = self.state._oracle_used
        self.closed = True
