"""The simulation: which events happen when, and when the policy decides.

SimPy's events change the state. After all events of an instant the policy decides, and its proposal is
enacted. Nothing happens between two instants: progress is integrated when a job's speed changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import simpy

from clustersim.jobs import ActiveJob, PhasedJob
from clustersim.records import DECLINED, NOTE, REJECTED, SUBMIT, MemoryRecorder, Recorder, as_row
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.speed import CannotRun, Offer, RunningSpeeds
from traces.job import Job

from .clock import Arrivals, Clock, Course, Due
from .disruptions import Disruptions
from .enactment import Enactment
from .job_records import record_of, rejected_record, unfinished
from .kernel import Kernel
from .policy_calls import PolicyCalls
from .services import Services
from .setup import RunSetup
from .wake_ups import DecisionRounds, WakeUps

__all__ = ["Shared", "Simulation", "arrivals_of", "clock_for"]


class Shared(NamedTuple):
    """What the simulation of one cluster of a fleet shares with the others. `first`: the node of the fleet
    that is its node 0. The course submits the jobs, and applies what takes nodes out of service.
    """

    course: Course
    arrivals: Arrivals
    first: int


class Simulation(Course):
    """One run of one policy over one trace.

    `jobs` in order of submission (see `traces.submission_order`); each is read when time reaches it. Jobs
    that are not done at the end are recorded as unfinished. Records go to `recorder`, by default one in
    memory. `on_progress` is called with the number of jobs that have left the system. `shared`: if it is a
    part of a fleet, which has its own `jobs`.

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
        shared: Shared | None = None,
    ):
        self.setup = setup
        facts: ClusterState[JobView] = ClusterState(
            setup.cluster, setup.placer, setup.overheads, setup.quotas
        )
        facts.type_slowdown, facts.node_speeds = setup.type_slowdown, setup.nodes
        facts.packs, facts.interference = setup.scheduler.packs, setup.interference or facts.interference
        arrivals = arrivals_of(jobs, setup) if shared is None else shared.arrivals
        clock = clock_for(arrivals) if shared is None else shared.course.clock
        super().__init__(clock, setup.until_s)
        self._course = self if shared is None else shared.course
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
        speeds = RunningSpeeds[ActiveJob](
            setup.cluster,
            setup.speed,
            sharing=setup.interference,
            slowdown=setup.slowdown,
        )
        self.enactment = Enactment(kernel, speeds, self._on_completion, setup.prices)
        self._wake_ups = WakeUps(kernel)
        self.disruptions = Disruptions.of(
            kernel,
            self.enactment,
            self._wake_ups,
            setup,
            first=None if shared is None else shared.first,
        )
        interval_s = setup.decision_interval_s
        self._rounds = DecisionRounds(kernel, interval_s) if interval_s else None
        self._offers, self._mixed = setup.speed.offers, setup.cluster.mixed
        self._services: Services | None = None  # those of the trace, from the first on
        # Bound once: they are called at every decision.
        self._schedule, self._enact, self._snapshot = (
            kernel.policy.schedule, self.enactment.enact, kernel.recorder.snapshot,
        )  # fmt: skip
        self._on_submissions_due = [self._on_submissions]

    @property
    def recorder(self) -> Recorder:
        return self.kernel.recorder

    @property
    def policy_wall_s(self) -> float:
        """Wall-clock seconds spent in the policy."""
        return self.kernel.policy.wall_s

    def run(self) -> Recorder:
        """Simulate until no event is left; see `Course.complete`."""
        self.complete()
        return self.recorder

    def begin(self) -> None:
        self._expect_submissions(self.clock.now)
        if self.disruptions is not None:
            self.disruptions.begin()

    # Events: each applies its change and asks for a decision at this instant.

    def _expect_submissions(self, now: float) -> None:
        job = self.kernel.arrivals.next
        if job is not None:
            self.kernel.clock.after(job.submit_s - now, self._on_submissions_due)

    def _on_submissions(self, _: Due) -> None:
        now = self.clock.now
        for job, order in self.kernel.arrivals.until(now):
            self.submit(job, order)
        self._expect_submissions(now)
        self.decide_on_arrivals(now)

    def decide_on_arrivals(self, now: float) -> None:
        """Decide at this instant, at which jobs were submitted."""
        self._wake_ups.reset(now)
        self.kernel.decide_at_this_instant(now)

    def submit(self, job: Job, order: int, sent: str = "", again: bool = False) -> None:
        """A job arrives; the next decision admits or declines it. `sent`: a note on why it came to this
        cluster of a fleet. `again`: it was submitted to another before.
        """
        kernel = self.kernel
        try:
            offers = self._offers(job)
        except CannotRun as reason:
            kernel.recorder.event(job.submit_s, SUBMIT, job.job_id)
            kernel.reject(rejected_record(job, str(reason)), order)
            return
        best = offers[0]
        curve, requested, note = best.curve, best.requested, best.note
        if not again:
            kernel.recorder.event(job.submit_s, SUBMIT, job.job_id, unit_s=curve.work_s(requested))
            kernel.recorder.request(job.job_id, requested)
        if job.phases is not None:
            active = self._in_phases(job, order, offers)
        elif self.disruptions is None or job.service is not None:
            active = ActiveJob(job, order, curve, requested, note)
        else:
            active = self.disruptions.job(job, order, curve, requested, note)
        if self._mixed and job.phases is None:
            active.offers = offers
        if job.cpus is not None or job.host_memory_gb is not None:
            self._demand_of(active)
        if (predictor := kernel.predictor) is not None and job.service is None:
            active.predict(predictor.predict(job, requested))
        if sent:
            active.noted = sent
            kernel.recorder.event(self.clock.now, NOTE, job.job_id, detail=sent)
        if job.service is not None:
            self._services_for(active)
            return
        kernel.submitted.append(active)

    def _demand_of(self, active: ActiveJob) -> None:
        """Note what a job that was just submitted needs beside its GPUs, where the cluster limits that."""
        job, facts = active.job, self.kernel.facts
        active.demand = facts.cluster.demand_of(job.cpus, job.host_memory_gb, job.gpus)
        facts.limits_host |= active.demand is not None

    def _in_phases(self, job: Job, order: int, offers: tuple[Offer, ...]) -> ActiveJob:
        best, by_type = offers[0], offers if self._mixed else ()
        if self.disruptions is not None:
            return self.disruptions.job(job, order, best.curve, best.requested, best.note, by_type)
        return PhasedJob(job, order, best.curve, best.requested, best.note, offers=by_type)

    def _services_for(self, active: ActiveJob) -> None:
        """Serve an instance of a service that was just submitted."""
        setup = self.setup
        if self._services is None:
            self._services = Services(self.kernel, self.enactment, setup.prices, setup.services_preempt)
            self.kernel.services = self._services
        self._services.add(active)

    def _on_completion(self, event: Due) -> None:
        active, generation = cast("tuple[ActiveJob, int]", event.value)
        if active.generation != generation:
            return  # the job was stopped, resized or slowed down since; a later completion is expected
        kernel, now = self.kernel, self.kernel.clock.now
        self._wake_ups.reset(now)
        if active.ends_phase:
            self.enactment.begin_phase(active, now)
            kernel.decide_at_this_instant(now)
            return
        active.settle(now)
        self.enactment.withdraw(active)
        kernel.leave(active, now, active.failure)
        kernel.decide_at_this_instant(now)

    # The decision: all events of the instant have been applied.

    def _decide(self) -> None:
        kernel, facts = self.kernel, self.kernel.facts
        facts.now_s = now = kernel.clock.now
        facts.decision += 1
        if self._services is not None:
            self._services.serve(now)
        if self._rounds is not None and self._rounds.must_wait(now):
            self._note_changes(now)
            return
        if kernel.submitted:
            self._admit()
        course = self._course
        course.may_break_off = True
        proposal = self._schedule()
        course.may_break_off = False
        kernel.events.clear()
        self._enact(proposal, now)
        if proposal.notes:
            self.enactment.note(proposal.notes, now)
        if proposal.wake_at is not None:
            self._wake_ups.request(proposal.wake_at)
        self._note_use(now)
        if course.interrupted:
            raise simpy.core.StopSimulation(None)  # the value that `clock.run` returns

    def _note_changes(self, now: float) -> None:
        """What changed at this instant, between two rounds of decisions, changes speeds and the records."""
        self.enactment.share_links()
        self._note_use(now)
        if self._course.interrupted:
            raise simpy.core.StopSimulation(None)

    def _note_use(self, now: float) -> None:
        kernel, facts = self.kernel, self.kernel.facts
        waiting, running = len(facts.waiting.jobs) + len(kernel.submitted), len(facts.running)
        if (services := self._services) is not None:
            waiting, running = waiting + len(services) - services.serving, running + services.serving
        self._snapshot(now, facts.capacity, running, waiting, facts.gpus_down)

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
                if self._rounds is not None:
                    active.settle(kernel.clock.now)  # it waited for the round
                kernel.reject(record_of(active, state=REJECTED, reason=DECLINED), active.order)

    def close(self) -> None:
        """Record the jobs in the system, and those never submitted, as unfinished."""
        kernel, facts = self.kernel, self.kernel.facts
        # A run without an end ends at its last decision: completions that became stale may lie later.
        limited = self.until_s is not None and not self.interrupted
        now = kernel.clock.now if limited else facts.now_s
        if facts.gpus_down and not facts.decision:  # nodes were down from the start, and no decision followed
            kernel.recorder.snapshot(facts.now_s, facts.capacity, 0, 0, facts.gpus_down)
        self.keep_unfinished(now, kernel.arrivals)
        kernel.recorder.end_s = now
        kernel.recorder.oracle_used = facts.oracle_used
        if kernel.predictor is not None:
            kernel.recorder.predictions = kernel.predictor.errors()

    def keep_unfinished(self, now: float, arrivals: Arrivals) -> None:
        """Record the jobs in the system and those of `arrivals`, which the run never reached."""
        kernel = self.kernel
        for record, order in unfinished(
            kernel.state, kernel.submitted, arrivals, now,
            interrupted=self._course.interrupted, ends_early=self._course.until_s is not None,
        ):  # fmt: skip
            kernel.recorder.keep_job(record, order)
        for record, order in () if self._services is None else self._services.unfinished(now):
            kernel.recorder.keep_job(record, order)


def arrivals_of(jobs: Iterable[Job], setup: RunSetup) -> Arrivals:
    """The jobs of a run as they arrive, with the work that their users state, or with its predictor."""
    if (estimates := setup.estimates) is None:
        return Arrivals(jobs)
    jobs = (estimates.applied_to(job, setup.seed) for job in jobs)
    return Arrivals(jobs, estimates.new_predictor())


def clock_for(arrivals: Arrivals) -> Clock:
    """A clock at the first submission; at 0 without any."""
    return Clock(0.0 if arrivals.next is None else arrivals.next.submit_s)
