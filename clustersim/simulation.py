"""The simulation: SimPy carries arrivals, completions and wake-ups; a policy decides once per instant;
progress is integrated in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from numbers import Real
from time import perf_counter
from typing import cast

import simpy

from itertime.errors import UserError
from traces.job import Job

from .active import ActiveJob, JobView
from .adversity import adversity_of
from .calendar import Calendar
from .capacity import Capacity
from .cluster import Cluster, Placement
from .errors import PolicyError, blame, place_of
from .failures import Failures
from .garbage import rare_collection
from .livelock import WakeUps
from .network import Network
from .overheads import Overheads
from .placement import Placer, placer
from .proposal import not_ours
from .records import JobRecord, Recorder, as_row
from .scheduler import Event, Proposal, Scheduler, State
from .speed import CannotRun, Speed
from .tenancy import Tenancy

__all__ = ["DECLINED", "Due", "Simulation"]

DECLINED = "declined by the policy"
"""Why a job that can run is rejected."""


class Due:
    """Something that is to happen: what SimPy's loop looks at in an event, and no more.

    `callbacks` are called with it; the list may serve many events.
    """

    __slots__ = ("callbacks", "value")
    _ok = True

    def __init__(self, callbacks: list[Callable[[Due], None]], value: object):
        self.callbacks, self.value = callbacks, value


class Simulation:
    """One run of one policy over one trace.

    `jobs` in order of submission (see `traces.submission_order`); they are taken one by one, as time gets to
    them. `until_s` ends the run early, on the trace's clock; jobs that are not done by then are recorded as
    unfinished. `on_progress` is called with the number of jobs that left the system. `failures` and
    `calendar` say when nodes are out of service, drawn by `seed`.

    The order within one instant: completions give their GPUs back, nodes go and come, then submissions are
    admitted or declined, then the policy decides, once.
    """

    def __init__(
        self, jobs: Iterable[Job], cluster: Cluster, scheduler: Scheduler, speed: Speed, *,
        overheads: Overheads | None = None, placement: str | Placer = "pack", until_s: float | None = None,
        recorder: Recorder | None = None, on_progress: Callable[[int], None] | None = None,
        tenancy: Tenancy | None = None, failures: Failures | None = None, calendar: Calendar | None = None,
        seed: int = 0,
    ):  # fmt: skip
        if cluster.mixed and scheduler.one_gpu_type:
            types = ", ".join(cluster.gpu_types)
            name = type(scheduler).__name__
            refused = f"policy {name} plans with one GPU type, the cluster has {types}"
            raise UserError(f"{refused}; choose another policy, or a cluster of one type")
        self.cluster, self.scheduler, self.speed = cluster, scheduler, speed
        self.overheads = overheads if overheads is not None else Overheads()
        self.until_s, self.on_progress = until_s, on_progress
        self.recorder = recorder if recorder is not None else Recorder(cluster)
        chosen = placer(placement) if isinstance(placement, str) else placement
        self.state = State(cluster, chosen, self.overheads, tenancy)
        self._to_come = iter(jobs)
        self._next = next(self._to_come, None)
        self._next_order = 0
        start_s = self._next.submit_s if self._next is not None else 0.0
        self.env = simpy.Environment(initial_time=start_s)
        self.state._now = start_s
        self.policy_wall_s = 0.0
        self._admits_all = type(scheduler).admit is Scheduler.admit
        self._network: Network[ActiveJob] | None = None
        if cluster.network != "ideal":
            self._network = Network(cluster, speed)
        self._submitted: deque[ActiveJob] = deque()
        self._deciding = False
        self._wake_at: float | None = None
        self._wake_generation = 0
        self._wake_ups = WakeUps(self.state, start_s)
        self._left_system = 0
        self.closed = False
        self._interrupted = self._may_break_off = False
        self._adversity = adversity_of(self, failures, calendar, seed)
        self._on_submissions_due, self._on_completion_due = [self._on_submissions], [self._on_completion]

    def run(self) -> Recorder:
        """Simulate until nothing is left to happen.

        PolicyError if the policy breaks a rule, KeyboardInterrupt after `interrupt`; what was recorded up to
        then stays in the recorder. It is whole if the run is `closed`: not after a KeyboardInterrupt that
        found the engine at work.
        """
        self._expect_submission(self.env.now)
        if self._adversity is not None:
            self._adversity.begin()
        torn = False
        try:
            with rare_collection():
                if self.until_s is None:
                    self.env.run()
                elif self.until_s > self.env.now:
                    self.env.run(until=self.until_s)
        except KeyboardInterrupt:
            self._interrupted, torn = True, not self._may_break_off
            raise
        finally:
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
        now = self.env.now
        self._wake_ups.forget(now)
        job = self._next
        while job is not None and job.submit_s <= now:
            self._submit(job, self._next_order)
            job = self._next = next(self._to_come, None)
            self._next_order += 1
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
        now = self.env.now
        self._wake_ups.forget(now)
        active.settle(now)
        self._withdraw(active)
        self._leave(active, now, active.fate)
        self._decide_now(now)

    def _withdraw(self, active: ActiveJob) -> None:
        """Take its GPUs from a running job."""
        assert active.placement is not None
        self.capacity.release(active.placement)
        active.let_go()
        if self._network is not None:
            self._network.leave(active)
        del self.state._running[active.view]

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
        if fault := self._wake_ups.fault(self.env.now):
            raise self._policy_error(fault)
        self.state.events.append(as_row(Event, ("woken", None, None)))
        self._decide_now(self.env.now)

    # The decision: all events of the instant have been applied.

    def _decide_now(self, now: float) -> None:
        """Decide at this instant, once, behind everything else that is due at it."""
        if self._deciding:
            return
        if self.env.peek() > now:
            self._decide()
        else:
            self._deciding = True
            self._after(0.0, self._decide)

    def _decide(self, _: Due | None = None) -> None:
        self._deciding = False
        state = self.state
        state._now = now = self.env.now
        state._decision += 1
        if self._submitted:
            self._admit()
        self._may_break_off = True
        proposal = self._ask("schedule", self.scheduler.schedule, state)
        self._may_break_off = False
        if fault := not_ours(proposal, state):
            raise self._policy_error(f"{fault} ({place_of(self.scheduler.schedule)})")
        assert isinstance(proposal, Proposal)
        state.events.clear()
        if proposal._changes or self._network is not None:
            self._enact(proposal, now)
        if proposal.wake_at is not None:
            self._request_wake_up(proposal.wake_at)
        self.recorder.snapshot(now, state._capacity, len(state._running), len(state._pending), state._down)
        if self._interrupted:
            raise simpy.core.StopSimulation(None)  # what `env.run` is to return

    def _admit(self) -> None:
        while self._submitted:
            active = self._submitted[0]
            job = active.view
            admitted = self._admits_all or self._ask("admit", self.scheduler.admit, job, self.state)
            self._submitted.popleft()
            if not isinstance(admitted, bool):
                raise self._policy_error(f"admit(job {job.id}) returned {admitted!r}; return True or False")
            if admitted:
                self._wait(job)
                self.state.events.append(as_row(Event, ("submitted", job, None)))
            else:
                self._reject(JobRecord.of(active, "rejected", reason=DECLINED), active.order)
                active.forget_view()

    def _enact(self, proposal: Proposal, now: float) -> None:
        """Turn the difference between the proposal and reality into starts, preemptions, resizes and
        migrations.
        """
        changes = proposal._changes
        self.state._adopt(proposal)
        speeds: dict[ActiveJob, float] = {}
        if self._network is not None:
            speeds = self._network.after({job._job: placement for job, placement in changes.items()})
        for job, placement in changes.items():
            active = job._job
            active.settle(now)
            if placement is None:
                self._preempt(active)
            else:
                self._give(active, placement, now, speeds.pop(active, None))
        for active, unit_s in speeds.items():
            self._change_speed(active, unit_s)

    def _preempt(self, active: ActiveJob, why: str = "") -> None:
        active.let_go()
        if self._network is not None:
            self._network.leave(active)
        active.preemptions += 1
        del self.state._running[active.view]
        self._wait(active.view)
        self.recorder.event(self.env.now, "preempt", active.job.job_id, detail=why)

    def _give(self, active: ActiveJob, placement: Placement, now: float, unit_s: float | None) -> None:
        """`unit_s`: what the network makes of it; None where it says nothing."""
        gpus = sum([count for _, count in placement])
        kind = self._classify(active, gpus)
        overhead_s = active.overhead_s(self.overheads, kind, gpus, len(placement))
        if active.placement is None:
            self.state._drop_pending(active.view)
            self.state._running[active.view] = None
            if active.start_s is None:
                active.start_s = now
        curve = active.curve_at(placement)
        unit_s = curve.unit_s[gpus] if unit_s is None else unit_s
        self._expect_completion(active, active.hold(placement, gpus, unit_s, now, overhead_s), now)
        plan = curve.plans.get(gpus, "")
        given = self.recorder.event(
            now, kind, active.job.job_id, gpus, placement, plan, overhead_s, unit_s=unit_s
        )
        if plan:
            self.recorder.plan(active.job, given)

    def _classify(self, active: ActiveJob, gpus: int) -> str:
        if active.start_s is None:
            return "start"
        if active.placement is None:
            active.restarts += 1
            return "restart"
        if active.gpus != gpus:
            active.resizes += 1
            return "resize"
        active.migrations += 1
        return "migrate"

    def _change_speed(self, active: ActiveJob, unit_s: float) -> None:
        """A running job goes on at another speed, on the GPUs that it holds."""
        now = self.env.now
        self._expect_completion(active, active.change_speed(unit_s, now), now)
        self.recorder.event(now, "rate", active.job.job_id, unit_s=unit_s)

    # What is expected to happen

    def _expect_submission(self, now: float) -> None:
        if self._next is not None:
            delay_s = max(0.0, self._next.submit_s - now)
            self.env.schedule(Due(self._on_submissions_due, None), delay=delay_s)  # type: ignore[arg-type]

    def _expect_completion(self, active: ActiveJob, done_s: float, now: float) -> None:
        if done_s == inf:
            return  # it still loads, for a time that is not known yet
        due = Due(self._on_completion_due, (active, active.generation))  # type: ignore[arg-type]
        self.env.schedule(due, delay=max(0.0, done_s - now))  # type: ignore[arg-type]

    def _request_wake_up(self, wake_at: float) -> None:
        if wake_at == self._wake_at:
            return
        now = self.env.now
        if not isinstance(wake_at, Real) or not now < wake_at < float("inf"):
            raise self._policy_error(f"wake_at={wake_at!r}: must be a time after now")
        if self._drained():
            return
        self._wake_at = wake_at
        self._wake_generation += 1
        self._after(wake_at - now, self._on_wake_up, self._wake_generation)

    def _after(self, delay_s: float, callback: Callable[[Due], None], value: object = None) -> None:
        self.env.schedule(Due([callback], value), delay=max(0.0, delay_s))  # type: ignore[arg-type]

    def _drained(self) -> bool:
        """Whether no job is left, here or to come: waking the policy up can change nothing any more."""
        return self._next is None and not (self._submitted or self.state._running or self.state._pending)

    # Bookkeeping

    def _wait(self, job: JobView) -> None:
        if self.state._rankings:  # their keys are the policy's
            self._ask("the key of pending_by", self.state._add_pending, job)
        else:
            self.state._add_pending(job)

    def _ask(self, call: str, question: Callable[..., object], *arguments: object) -> object:
        """Call into the policy: time it, and turn what it raises into a PolicyError that names the place."""
        began = perf_counter()
        try:
            return question(*arguments)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise self._policy_error(blame(error, call)) from error
        finally:
            self.policy_wall_s += perf_counter() - began

    def _policy_error(self, text: str) -> PolicyError:
        return PolicyError(f"policy {type(self.scheduler).__name__} at t={self.env.now:g} s: {text}")

    def _reject(self, record: JobRecord, order: int) -> None:
        self.recorder.event(self.env.now, "reject", record.job_id, detail=record.reason)
        self.recorder.keep_job(record, order)
        self._left()

    def _left(self) -> None:
        self._left_system += 1
        if self.on_progress is not None:
            self.on_progress(self._left_system)

    def _close(self) -> None:
        """Record what is still in the system, and what never got there, as unfinished."""
        # A run without an end ends at its last decision: completions that became stale may lie later.
        now = self.env.now if self.until_s is not None and not self._interrupted else self.state.now
        if self.state._down and not self.state._decision:  # since the start, and nobody was ever asked
            self.recorder.snapshot(self.state.now, self.capacity, 0, 0, self.state._down)
        for view in self._still_inside():
            view._job.settle(now)
            record = JobRecord.of(view._job, "unfinished", reason=self._why_unfinished(view))
            self.recorder.keep_job(record, view.order)
        for active in self._submitted:
            self.recorder.keep_job(JobRecord.of(active, "unfinished", reason="the run ended"), active.order)
        while self._next is not None:
            self.recorder.keep_job(JobRecord.not_submitted(self._next), self._next_order)
            self._next = next(self._to_come, None)
            self._next_order += 1
        self.recorder.end_s = now
        self.recorder.oracle_used = self.state._oracle_used
        self.closed = True

    def _still_inside(self) -> Iterable[JobView]:
        return [*self.state.running, *self.state.pending]

    def _why_unfinished(self, job: JobView) -> str:
        if self._interrupted:
            return f"still {'running' if job.running else 'waiting'} when the run was interrupted"
        if job.running:
            return "still running when the run ended"
        if not self.state.ever_fits(job):
            return f"no place for {job.requested} GPUs on the nodes that were left for good"
        return (
            "still waiting when the run ended"
            if self.until_s is not None
            else "the policy never ran it again, and nothing more was to happen"
        )
