"""The simulation: which events happen when, and when the policy decides.

SimPy's events change the state. After all events of an instant the policy decides, and its proposal is
enacted. Nothing happens between two instants: progress is integrated when a job's speed changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple, cast

import simpy

from clustersim.jobs import ActiveJob, Eligibility
from clustersim.records import REJECTED, SUBMIT, MemoryRecorder, Recorder, as_row
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState, GpuSharing
from clustersim.scheduler.internal import active_of
from clustersim.speed import CannotRun, RunningSpeeds
from traces.job import Job

from .clock import Arrivals, Clock, Course, Due
from .enactment import Enactment
from .features import features_of
from .job_records import record_of, rejected_record, unfinished
from .links import links_of
from .policy_calls import PolicyCalls
from .setup import RunSetup
from .wake_ups import DecisionRounds, WakeUps
from .world import World

__all__ = ["FleetContext", "Simulation", "arrivals_of", "clock_for"]


class FleetContext(NamedTuple):
    """What the simulation of one cluster of a fleet shares with the others. `first_node`: the node of the
    fleet that is its node 0; None for a simulation that is no part of a fleet. The course submits the jobs,
    and applies what takes nodes out of service.
    """

    course: Course
    arrivals: Arrivals
    first_node: int | None


class Simulation(Course):
    """One run of one policy over one trace.

    `jobs` in order of submission (see `traces.submission_order`); each is read when time reaches it. Jobs
    that are not done at the end are recorded as unfinished. Records go to `recorder`, by default one in
    memory. `on_progress` is called with the number of jobs that have left the system. `context`: if it is a
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
        context: FleetContext | None = None,
    ):
        if context is None:
            arrivals = arrivals_of(jobs, setup)
            super().__init__(clock_for(arrivals), setup.until_s)
            context = FleetContext(self, arrivals, first_node=None)
        else:
            super().__init__(context.course.clock, setup.until_s)
        self.setup, self._course, clock = setup, context.course, self.clock
        facts = state_before(setup, clock.now)
        self.world = world = World(
            clock=clock,
            facts=facts,
            policy=PolicyCalls(
                setup.scheduler, facts, lambda: f" at t={clock.now:g} s", setup.check_all_keys
            ),
            recorder=recorder if recorder is not None else MemoryRecorder(setup.cluster),
            arrivals=context.arrivals,
            decide=self._decide,
            on_progress=on_progress,
        )
        self.enactment = Enactment(world, speeds_of(setup), self._on_completion, setup.prices)
        self._wake_ups: WakeUps | None = None  # until the policy asks for the first one
        self.features = features_of(setup, world, self.enactment, context.first_node)
        columns = [column for feature in self.features for column in feature.columns]
        self._fields, self._no_fields = attrgetter(*columns), (None,) * len(columns)
        self._receive_all = not all(feature.columns for feature in self.features)
        interval_s = setup.decision_interval_s
        self._rounds = DecisionRounds(world, interval_s) if interval_s else None
        # Bound once: they are called for every job or at every decision.
        self._offers, self._mixed = setup.speed.offers, setup.cluster.mixed
        self._schedule, self._enact = world.policy.schedule, self.enactment.enact
        self._snapshot = world.recorder.snapshot
        self._on_submissions_due = [self._on_submissions]

    @property
    def recorder(self) -> Recorder:
        return self.world.recorder

    @property
    def policy_wall_s(self) -> float:
        """Wall-clock seconds spent in the policy."""
        return self.world.policy.wall_s

    @property
    def joins(self) -> int:
        """How often the policy put a job on GPUs that another one held."""
        return 0 if self.enactment.joins is None else self.enactment.joins.count

    def run(self) -> Recorder:
        """Simulate until no event is left; see `Course.complete`."""
        self.complete()
        return self.recorder

    def begin(self) -> None:
        self._expect_submissions(self.clock.now)
        for begin in self.world.at_begin:
            begin()

    # Events: each applies its change and asks for a decision at this instant.

    def _expect_submissions(self, now: float) -> None:
        job = self.world.arrivals.next
        if job is not None:
            self.world.clock.after(job.submit_s - now, self._on_submissions_due)

    def _on_submissions(self, _: Due) -> None:
        now = self.clock.now
        for job, order in self.world.arrivals.until(now):
            self.submit(job, order)
        self._expect_submissions(now)
        self.decide_on_arrivals(now)

    def decide_on_arrivals(self, now: float) -> None:
        """Decide at this instant, at which jobs were submitted."""
        world = self.world
        world.last_event_s, world.wake_ups = now, 0
        world.decide_at_this_instant(now)

    def submit(
        self,
        job: Job,
        order: int,
        note: str = "",
        again: bool = False,
        eligibility: Eligibility | None = None,
    ) -> None:
        """A job arrives; the next decision admits or declines it. `note`: why it came to this cluster of a
        fleet. `again`: it was submitted to another before, with this `eligibility`.
        """
        world = self.world
        try:
            offers = self._offers(job)
        except CannotRun as reason:
            world.recorder.event(job.submit_s, SUBMIT, job.job_id)
            world.reject(rejected_record(job, str(reason)), order)
            return
        best = offers[0]
        if not again:
            curve, gpus = best.curve, best.requested
            unit_s = curve.work_s(gpus) if curve.phases else curve.unit_s[gpus]
            world.recorder.event(job.submit_s, SUBMIT, job.job_id, unit_s=unit_s)
            world.recorder.request(job.job_id, best.requested)
        active = ActiveJob(job, order, best.curve, best.requested, best.note)
        if self._mixed:
            active.offers = offers
        if eligibility is not None:
            active.take_over(eligibility)
        if note:
            self.enactment.note(active, note)
        # What the job has beside its work, and whether a feature runs it instead of the policy. Where no
        # feature concerns every job, one comparison tells for most jobs that none concerns them.
        if self._receive_all or self._fields(job) != self._no_fields:
            for feature in self.features:
                columns = feature.columns
                concerned = not columns or any(getattr(job, column) is not None for column in columns)
                if concerned and feature.receive(active):
                    return
        world.submitted.append(active)

    def _on_completion(self, event: Due) -> None:
        active, generation = cast("tuple[ActiveJob, int]", event.value)
        if active.generation != generation:
            return  # the job was stopped, resized or slowed down since; a later completion is expected
        world, now = self.world, self.world.clock.now
        world.last_event_s, world.wake_ups = now, 0
        if active.ends_phase:
            self.enactment.begin_phase(active, now)
            world.decide_at_this_instant(now)
            return
        active.settle(now)
        if active.eligibility is not None and active.eligibility.earlier_runs:
            self.enactment.end_run(active)
        else:
            self.enactment.free_gpus(active)
            world.leave(active, now, active.failure)
        world.decide_at_this_instant(now)

    # The decision: all events of the instant have been applied.

    def _decide(self) -> None:
        world, facts = self.world, self.world.facts
        facts.now_s = now = world.clock.now
        facts.decision += 1
        for prepare in world.before_decisions:
            prepare(now)
        if self._rounds is not None and self._rounds.must_wait(now):
            self._note_changes(now)
            return
        if world.submitted:
            self._admit()
        course = self._course
        course.may_break_off = True
        proposal = self._schedule()
        course.may_break_off = False
        world.events.clear()
        self._enact(proposal, now)
        for job, text in proposal.notes:
            self.enactment.note(active_of(job), text)
        if proposal.wake_at is not None:
            if self._wake_ups is None:
                self._wake_ups = WakeUps(world)
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
        world, facts = self.world, self.world.facts
        waiting = len(facts.waiting.jobs) + len(world.submitted) + world.waiting_apart
        self._snapshot(
            now, facts.capacity, len(facts.running) + world.running_apart, waiting, facts.nodes.gpus_down
        )

    def _admit(self) -> None:
        world = self.world
        submitted = world.submitted
        while submitted:
            active = submitted[0]
            view = JobView(active, world.facts)
            reason = world.policy.why_declined(view)
            submitted.popleft()
            if not reason:
                world.views[active] = view
                world.policy.add_waiting(view)
                world.tell(as_row(Event, ("submitted", view, None)))
            else:
                if self._rounds is not None:
                    active.settle(world.clock.now)  # it waited for the round
                world.reject(record_of(active, state=REJECTED, reason=reason), active.order)

    def close(self) -> None:
        """Record the jobs in the system, and those never submitted, as unfinished."""
        world, facts = self.world, self.world.facts
        # A run without an end ends at its last decision: completions that became stale may lie later.
        limited = self.until_s is not None and not self.interrupted
        now = world.clock.now if limited else facts.now_s
        if facts.nodes.gpus_down and not facts.decision:
            # Nodes were down from the start, and no decision followed.
            world.recorder.snapshot(facts.now_s, facts.capacity, 0, 0, facts.nodes.gpus_down)
        self.keep_unfinished(now, world.arrivals)
        world.recorder.end_s = now
        world.recorder.oracle_used = facts.oracle_used
        world.recorder.idle_stops = facts.idle_stops
        world.recorder.joins = self.joins

    def keep_unfinished(self, now: float, arrivals: Arrivals) -> None:
        """Record the jobs in the system and those of `arrivals`, which the run never reached."""
        world = self.world
        for record, order in unfinished(
            world.state,
            world.submitted,
            arrivals,
            now,
            interrupted=self._course.interrupted,
            ends_early=self._course.until_s is not None,
        ):
            world.recorder.keep_job(record, order)
        for close in world.at_end:
            close(now)


def arrivals_of(jobs: Iterable[Job], setup: RunSetup) -> Arrivals:
    """The jobs of a run as they arrive, with the work that their users state, or with its predictor."""
    links = links_of(jobs)
    if (estimates := setup.estimates) is None:
        return Arrivals(jobs, links=links)
    jobs = (estimates.applied_to(job, setup.seed) for job in jobs)
    return Arrivals(jobs, estimates.new_predictor(), links)


def clock_for(arrivals: Arrivals) -> Clock:
    """A clock at the first submission; at 0 without any."""
    return Clock(0.0 if arrivals.next is None else arrivals.next.submit_s)


def state_before(setup: RunSetup, now: float) -> ClusterState[JobView]:
    """The cluster of a run before its first job."""
    facts: ClusterState[JobView] = ClusterState(setup.cluster, setup.placer, setup.overheads, setup.quotas)
    facts.now_s, facts.curves.failures = now, setup.failures
    facts.type_slowdown = setup.type_slowdown
    if setup.node_speeds is not None:
        facts.node_factor = setup.node_speeds.factor
    if setup.interference is not None:
        facts.sharing = GpuSharing(setup.scheduler.packs, setup.interference)
    return facts


def speeds_of(setup: RunSetup) -> RunningSpeeds[ActiveJob]:
    """The speeds of the running jobs of a run, of which there are none yet."""
    return RunningSpeeds(setup.cluster, setup.speed, sharing=setup.interference, slowdown=setup.slowdown)
