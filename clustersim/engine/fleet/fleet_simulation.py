"""One run over the clusters of a fleet: jobs are sent to clusters, which are simulated side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from clustersim.cluster import FleetMember
from clustersim.engine.clock import Arrivals, Course, Due
from clustersim.engine.features import Disruptions, NodeEvents
from clustersim.engine.job_records import rejected_record
from clustersim.engine.setup import RunSetup
from clustersim.engine.simulation import FleetContext, Simulation, arrivals_of, clock_for
from clustersim.failures import Outages
from clustersim.jobs import ActiveJob
from clustersim.records import SUBMIT, MemoryRecorder, Recorder
from clustersim.scheduler import JobView
from clustersim.scheduler.internal import active_of
from clustersim.speed import CannotRun
from traces.job import Job

from .recording import PartRecorder, UseOfParts
from .routing import Destination, Routing, choose

__all__ = ["FleetSimulation"]


class FleetSimulation(Course):
    """As `Simulation`, for a set-up with a routing: each of its `parts` runs on one cluster of the fleet.

    At one instant, completions and changes of nodes come first, then jobs are sent to clusters, then the
    policies decide, in the order of the clusters.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        setup: RunSetup,
        routing: Routing,
        recorder: Recorder | None = None,
        on_progress: Callable[[int], None] | None = None,
    ):
        self._setup, self._routing = setup, routing
        self.arrivals = arrivals_of(jobs, setup)
        super().__init__(clock_for(self.arrivals), setup.until_s)
        self.recorder: Recorder = MemoryRecorder(setup.cluster) if recorder is None else recorder
        self._on_progress, self._departed = on_progress, 0
        self._moves_due = False
        self._left: dict[int, set[str]] = {}  # the clusters that waiting jobs have left, by order
        self._use = UseOfParts(self.recorder, setup.cluster.members)
        self._members = [
            _Member(self, part, own) for part, own in zip(setup.cluster.members, setup.parts, strict=True)
        ]
        self._nodes: NodeEvents | None = None
        features = [feature for member in self._members for feature in member.simulation.features]
        disruptions = [feature for feature in features if isinstance(feature, Disruptions)]
        if disruptions:
            cluster = setup.cluster
            outages = Outages(
                [cluster.size_of(node) for node in range(cluster.nodes)],
                self.clock.now,
                failures=setup.failures,
                maintenance=setup.maintenance,
                spot=setup.spot,
                seed=setup.seed,
            )
            self._nodes = NodeEvents(self.clock, [feature.nodes for feature in disruptions], outages)

    @property
    def policy_wall_s(self) -> float:
        """Wall-clock seconds spent in all policies."""
        return sum(member.simulation.policy_wall_s for member in self._members)

    def run(self) -> Recorder:
        """Simulate until no event is left; see `Course.complete`."""
        self.complete()
        return self.recorder

    def begin(self) -> None:
        for member in self._members:
            for begin in member.simulation.world.at_begin:
                begin()
        self._expect_submissions(self.clock.now)  # behind reservations that are in force already
        if self._nodes is not None:
            self._nodes.begin()
        for member in self._members:
            world = member.simulation.world
            if down := world.facts.nodes.gpus_down:  # from the start, and possibly before any decision
                world.recorder.snapshot(self.clock.now, world.facts.capacity, 0, 0, down)

    def close(self) -> None:
        facts = [member.simulation.world.facts for member in self._members]
        limited = self.until_s is not None and not self.interrupted
        now = self.clock.now if limited else max(fact.now_s for fact in facts)
        arrivals = self.arrivals
        for member in self._members:
            member.simulation.keep_unfinished(now, arrivals)
            arrivals = Arrivals(())
        self._use.report()
        self.recorder.end_s = now
        self.recorder.oracle_used = any(fact.oracle_used for fact in facts)
        self.recorder.idle_stops = sum(fact.idle_stops for fact in facts)
        self.recorder.joins = sum(member.simulation.joins for member in self._members)
        if self.arrivals.predictor is not None:
            self.recorder.predictions = self.arrivals.predictor.errors()

    def _expect_submissions(self, now: float) -> None:
        job = self.arrivals.next
        if job is not None:
            self.clock.after(job.submit_s - now, [self._on_submissions])

    def _on_submissions(self, _: Due) -> None:
        now, reached = self.clock.now, dict.fromkeys(self._members, False)
        for member in self._members:
            member.simulation.world.facts.now_s = now
        for job, order in self.arrivals.until(now):
            if (to := self._send(job, order)) is not None:
                reached[to] = True
        self._expect_submissions(now)
        for member, arrived in reached.items():
            if arrived:
                member.simulation.decide_on_arrivals(now)

    def _send(self, job: Job, order: int) -> _Member | None:
        """Send an arriving job to a cluster; reject it, and return None, if no cluster can run it."""
        able = {member: to for member in self._members if (to := member.destination(job, order)) is not None}
        if not able:
            world = self._members[0].simulation.world
            world.recorder.event(job.submit_s, SUBMIT, job.job_id)
            try:
                self._setup.speed.offers(job)
                reason = "no cluster of the fleet can run it"
            except CannotRun as why:
                reason = str(why)
            world.reject(rejected_record(job, reason), order)
            self._use.keep(job.submit_s)  # as a cluster does that decides after it has rejected a job
            return None
        lasting = {member: to for member, to in able.items() if to.ever_fits()}
        able = lasting or able
        to = choose(self._routing, job, list(able.values()))
        member = next(member for member in able if able[member] is to)
        member.simulation.submit(member.own(job), order, f"sent to {to.name}: {self._routing.by}")
        return member

    # Jobs that move while they wait

    def decided(self) -> None:
        """A cluster has decided: jobs that still wait may move when all clusters have."""
        if self._routing.move and not self._moves_due:
            self._moves_due = True
            self.clock.after(0.0, [self._on_moves])

    def _on_moves(self, _: Due) -> None:
        self._moves_due = False
        now, reached = self.clock.now, dict.fromkeys(self._members, False)
        for member in self._members:
            member.simulation.world.facts.now_s = now
        for member in self._members:
            for view in list(member.simulation.world.facts.waiting.in_order()):
                to = None if view.started else self._elsewhere(active_of(view), member)
                if to is not None:
                    self._left.setdefault(view.order, set()).add(member.part.name)
                    member.give_up(view)
                    active = active_of(view)
                    to.simulation.submit(
                        to.own(active.job), view.order, f"moved to {to.part.name}", True, active.eligibility
                    )
                    reached[member] = reached[to] = True
        for member, changed in reached.items():
            if changed:
                member.simulation.decide_on_arrivals(now)

    def _elsewhere(self, active: ActiveJob, at: _Member) -> _Member | None:
        """The first other cluster that has room for a waiting job, and runs it as fast on as many GPUs: its
        records state the run time that it had where it was submitted. A job returns to none that it left:
        where policies decide in rounds, it would otherwise go back and forth between free GPUs.
        """
        job, unit_s = active.job, active.curve.unit_s[active.requested]
        left = self._left.get(active.order, ())
        for member in self._members:
            if member is at or member.part.name in left or not member.simulation.world.policy.admits_all:
                continue
            to = member.destination(job, active.order)
            if to is None or (to.offers[0].requested, to.offers[0].unit_s) != (active.requested, unit_s):
                continue
            if to.has_room():
                return member
        return None

    def count_departure(self, _: int) -> None:
        """A job has left one of the clusters."""
        self._departed += 1
        if self._on_progress is not None:
            self._on_progress(self._departed)


class _Member:
    """One cluster of the fleet and its simulation."""

    def __init__(self, fleet: FleetSimulation, part: FleetMember, setup: RunSetup):
        self.part = part
        recorder = PartRecorder(fleet.recorder, part, fleet._use, fleet.decided)
        context = FleetContext(fleet, fleet.arrivals, part.first)
        self.simulation = Simulation((), setup, recorder, fleet.count_departure, context)
        self._asked: dict[str | None, str | None] = {None: None, part.name: None}
        for pool in part.cluster.pools:
            for name in pool.names:
                self._asked |= {name: name, f"{part.name}/{name}": name}

    def own(self, job: Job) -> Job:
        """The job as the cluster sees it, which knows nothing of the fleet."""
        gpu_type = self._asked[job.gpu_type]
        return job if gpu_type == job.gpu_type else replace(job, gpu_type=gpu_type)

    def destination(self, job: Job, order: int) -> Destination | None:
        """The cluster as a destination of a job; None if it cannot run the job. `order`: of submission."""
        if job.gpu_type not in self._asked:
            return None
        job, world, cluster = self.own(job), self.simulation.world, self.part.cluster
        try:
            offers = self.simulation.setup.speed.offers(job)
        except CannotRun:
            return None
        candidate = ActiveJob(job, order, offers[0].curve, offers[0].requested, offers[0].note)
        candidate.demand = cluster.demand_of(job.cpus, job.host_memory_gb, job.gpus)
        if cluster.mixed:
            candidate.offers = offers
        return Destination(self.part.name, world.facts, world.submitted, candidate, offers)

    def give_up(self, view: JobView) -> None:
        """A waiting job leaves for another cluster."""
        self.simulation.world.hand_over(view)
