"""The instances of services in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from clustersim.cluster import Capacity, Placement
from clustersim.engine.clock import Due
from clustersim.engine.enactment import Enactment
from clustersim.engine.job_records import record_of
from clustersim.engine.world import World
from clustersim.jobs import ActiveJob
from clustersim.placement import Room
from clustersim.records import PREEMPT, RESTART, SERVED, START, UNFINISHED
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of

__all__ = ["Services"]


@dataclass(eq=False)
class Services:
    """The instances that need GPUs now, those with GPUs and those without, in order of submission.

    At every instant, before the policy decides, waiting instances get GPUs: those of higher priority first,
    then in order of submission; one that does not fit keeps no other out. With `preempts`, running jobs are
    stopped for an instance that does not fit, the last started first, and only those whose nodes it needs;
    they keep their progress. An instance whose node goes out of service waits again. `prices`: as for
    `Enactment`.
    """

    columns: ClassVar[tuple[str, ...]] = ("service",)

    _world: World
    _enactment: Enactment
    _facts: ClusterState[JobView]
    _prices: Mapping[str, float] | None
    _preempts: bool
    _waiting: dict[ActiveJob, None] = field(default_factory=dict, init=False)
    _serving: dict[ActiveJob, None] = field(default_factory=dict, init=False)

    def receive(self, active: ActiveJob) -> bool:
        """An instance was submitted now; it leaves when its time is over."""
        world = self._world
        if self._serve not in world.before_decisions:  # the first instance of the trace
            world.before_decisions.append(self._serve)
            world.on_node_loss.append(self._stop_on)
            world.at_end.append(self._record_unfinished)
        self._waiting[active] = None
        self._count()
        world.clock.after(active.job.submit_s + active.work - world.clock.now, [self._on_end], active)
        return True

    def _count(self) -> None:
        """Say how many instances are in the system."""
        self._world.waiting_apart, self._world.running_apart = len(self._waiting), len(self._serving)

    def _serve(self, now: float) -> None:
        """Give GPUs to waiting instances, and first let those leave their nodes that are closed to them."""
        for active in list(self._serving) if self._facts.nodes.may_close else ():
            closed = self._room_for(active).closed
            if any(closed >> node & 1 for node, _ in active.placement or ()):
                self._stop(active, now, "its node is closed to it")
        for active in sorted(self._waiting, key=lambda active: (-active.job.priority, active.order)):
            placement = self._place(active, self._facts.capacity)
            if placement is None and self._preempts:
                placement = self._make_room(active, now)
            if placement is not None:
                self._start(active, placement, now)

    def _stop_on(self, node: int, reason: str) -> None:
        """Instances on a node that goes out of service wait again."""
        for active in [a for a in self._serving if any(place == node for place, _ in a.placement or ())]:
            self._stop(active, self._world.clock.now, reason)

    def _stop(self, active: ActiveJob, now: float, reason: str) -> None:
        """An instance waits again."""
        active.settle(now)
        self._release(active)
        active.preemptions += 1
        self._waiting[active] = None
        self._count()
        self._world.recorder.event(now, PREEMPT, active.job.job_id, detail=reason)

    def _room_for(self, active: ActiveJob, gpu_type: str | None = None) -> Room:
        """Which nodes an instance may use, of one GPU type or of any."""
        return self._facts.room_for(JobView(active, self._facts), gpu_type)

    def _record_unfinished(self, now: float) -> None:
        """Record the instances that need GPUs when the run ends."""
        for active in [*self._serving, *self._waiting]:
            state = "running" if active in self._serving else "waiting"
            active.settle(now)
            record = record_of(active, UNFINISHED, f"still {state} when the run ended")
            self._world.recorder.keep_job(record, active.order)

    def _place(self, active: ActiveJob, capacity: Capacity) -> Placement | None:
        """Where an instance would run, on the first GPU type with room, on nodes that are open to it."""
        place = self._facts.placer.place
        if not active.offers:
            return place(self._room_for(active).open(capacity), active.requested)
        for offer in active.offers:
            placement = place(self._room_for(active, offer.gpu_type).open(capacity), offer.requested)
            if placement is not None:
                return placement
        return None

    def _make_room(self, active: ActiveJob, now: float) -> Placement | None:
        """Stop running jobs until an instance fits. Returns where, None (and no change) if it never does."""
        facts = self._facts
        capacity, stopped_jobs = facts.capacity.copy(), []
        placement = None
        for view in reversed(facts.running):
            stopped_jobs.append(view)
            capacity.release(active_of(view).placement or (), active_of(view).demand)
            placement = self._place(active, capacity)
            if placement is not None:
                break
        if placement is None:
            return None
        nodes = {node for node, _ in placement}
        for view in stopped_jobs:
            if facts.capacity.has_room(placement, active.demand):
                break
            job = active_of(view)
            if any(node in nodes for node, _ in job.placement or ()):
                job.settle(now)
                facts.capacity.release(job.placement or (), job.demand)
                self._enactment.preempt(job, f"for service {active.job.service}")
                self._world.tell(Event("stopped", view))
        return placement

    def _start(self, active: ActiveJob, placement: Placement, now: float) -> None:
        world, facts = self._world, self._facts
        del self._waiting[active]
        self._serving[active] = None
        self._count()
        facts.capacity.take(placement, active.demand)
        gpus = sum([count for _, count in placement])
        kind = START if active.start_s is None else RESTART
        active.settle(now)
        if kind == START:
            active.start_s = now
        else:
            active.restarts += 1
        if self._prices is not None:
            active.set_price(self._prices[facts.cluster.type_of(placement[0][0])])
        overhead_s = world.overheads.start_s(gpus)
        active.hold(placement, gpus, 1.0, now, overhead_s)
        facts.nodes.serve(placement, 1)
        world.tell(Event("services", None))
        world.recorder.event(now, kind, active.job.job_id, gpus, placement, "", overhead_s, unit_s=1.0)

    def _release(self, active: ActiveJob) -> None:
        assert active.placement is not None
        self._facts.capacity.release(active.placement, active.demand)
        self._facts.nodes.serve(active.placement, -1)
        del self._serving[active]
        active.let_go()
        self._world.tell(Event("services", None))

    def _on_end(self, event: Due) -> None:
        """The time of an instance is over, whether it has GPUs or not."""
        active, world, now = event.value, self._world, self._world.clock.now
        assert isinstance(active, ActiveJob)
        active.settle(now)
        if active in self._serving:
            self._release(active)
        else:
            del self._waiting[active]
        self._count()
        active.finish_s = now
        world.recorder.event(now, SERVED, active.job.job_id)
        world.depart(record_of(active, state=SERVED), active.order)
        world.decide_at_this_instant(now)
