"""Nodes that go out of service and come back while jobs run on them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from clustersim.cluster import Placement
from clustersim.engine.clock import Clock, Due
from clustersim.engine.enactment import Enactment
from clustersim.engine.world import World
from clustersim.failures import NodeChange, Notice, Outages
from clustersim.jobs import ActiveJob
from clustersim.records import GIVEN_UP, INTERRUPT, NODE_DOWN, NODE_UP
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.internal import active_of

__all__ = ["NodeEvents", "NodesOfCluster", "is_on"]

_MOST_IDLE_CHANGES = 10_000


class NodeEvents:
    """Applies the changes of `outages` to a simulation: to its nodes, or to those of the clusters of a fleet,
    in the order of their nodes.
    """

    def __init__(self, clock: Clock, parts: Sequence[NodesOfCluster], outages: Outages):
        self._clock, self._parts, self._outages = clock, parts, outages
        self._firsts = [part.first for part in parts]
        self._next = outages.next_or_notice()
        self._idle = 0  # changes in a row while no job ran and none was to be submitted
        for part in parts:
            part.expect_removals(outages)

    def begin(self) -> None:
        """Apply the changes that hold from the start, and expect the others."""
        clock = self._clock
        changed = self._apply_until(clock.now)
        if len(self._parts) > 1:  # the first job may go to another cluster; without a fleet it decides here
            for part in changed:
                part.world.decide_at_this_instant(clock.now)
        self._expect_next()
        for time_s in self._outages.last_removals_s():
            if time_s > clock.now:
                clock.after(time_s - clock.now, [self._on_removal])

    def _on_removal(self, _: Due) -> None:
        """Some nodes will never return; they may have been out of service before. The policy decides again,
        so that jobs do not wait for these nodes.
        """
        for part in self._parts:
            part.world.facts.stamp += 1
            if not part.world.drained():
                part.world.decide_at_this_instant(self._clock.now)

    def _apply_until(self, now: float) -> list[NodesOfCluster]:
        """Apply the changes up to `now`. Returns the parts that they concern."""
        changed: list[NodesOfCluster] = []
        while self._next is not None and self._next.time_s <= now:
            part = self._parts[bisect_right(self._firsts, self._next.node) - 1]
            if isinstance(self._next, Notice):
                part.announce(self._next)
            else:
                part.apply(self._next)
            if part not in changed:
                changed.append(part)
            self._next = self._outages.next_or_notice()
        return changed

    def _expect_next(self) -> None:
        if self._next is not None:
            self._clock.after(self._next.time_s - self._clock.now, [self._on_change])

    def _on_change(self, _: Due) -> None:
        if all(part.world.drained() for part in self._parts) or self._ends_here():
            return
        now = self._clock.now
        if not self._idle:
            for part in self._parts:
                part.world.last_event_s, part.world.wake_ups = now, 0
        for part in self._apply_until(now):
            part.world.decide_at_this_instant(now)
        self._expect_next()

    def _ends_here(self) -> bool:
        """Whether further changes of nodes have no effect: the remaining jobs have no place on the nodes that
        were left before the one due now, or the policy does not run them.
        """
        idle = all(part.is_idle() for part in self._parts)
        self._idle = self._idle + 1 if idle else 0
        before_s = math.nextafter(self._clock.now, -math.inf)  # the change that is due is not made yet
        return idle and (
            self._idle > _MOST_IDLE_CHANGES or all(part.all_too_large(before_s) for part in self._parts)
        )


class NodesOfCluster:
    """The nodes of one cluster, which go out of service and come back.

    Jobs on a node that fails lose the work that no checkpoint holds. Before a planned outage they save, and
    before a reclaim if its notice leaves the time. In all cases the jobs wait again, and the policy restarts
    them. A job that failures have stopped more than `retries` times is given up. `first`: the number of its
    node 0 in the fleet, 0 outside a fleet.
    """

    def __init__(self, world: World, enactment: Enactment, retries: int, first: int = 0):
        self.world, self.first = world, first
        self._enactment, self._retries = enactment, retries

    def expect_removals(self, outages: Outages) -> None:
        """Some nodes will be removed for good, as `outages` say."""
        nodes, first = self.world.facts.cluster.nodes, self.first

        def gone(now: float) -> frozenset[int]:
            return frozenset(node - first for node in outages.gone(now) if first <= node < first + nodes)

        self.world.facts.nodes.removed_by = gone

    def is_idle(self) -> bool:
        """Whether no job runs and none is to be submitted."""
        world = self.world
        jobs_apart = world.waiting_apart or world.running_apart or world.held
        jobs_inside = world.submitted or world.facts.running or jobs_apart
        return world.arrivals.next is None and not jobs_inside

    def all_too_large(self, time_s: float) -> bool:
        """Whether no waiting job has a place on the nodes that remained at a time, on any number of GPUs."""
        facts = self.world.facts
        return not any(facts.ever_fits(active_of(job), _sizes_of(job), time_s) for job in facts.waiting.jobs)

    def announce(self, notice: Notice) -> None:
        """A node is to be reclaimed; the policy may move its jobs before."""
        world, node = self.world, notice.node - self.first
        world.facts.nodes.leaving[node] = notice.leaves_s
        world.tell(Event("reclaim_notice", None, node))

    def apply(self, change: NodeChange) -> None:
        """Take a node out of service, or put it back. `change.node` counts the nodes of the fleet."""
        world, facts, node = self.world, self.world.facts, change.node - self.first
        size = facts.cluster.size_of(node)
        in_use = facts.capacity.free_on(node) < size
        facts.nodes.leaving.pop(node, None)
        if change.up:
            facts.capacity.open(node)
            facts.nodes.gpus_down -= size
        else:
            facts.capacity.close(node)
            facts.nodes.gpus_down += size
        kind = NODE_UP if change.up else NODE_DOWN
        world.recorder.event(world.clock.now, kind, "", placement=((node, size),), detail=change.kind)
        world.tell(Event(kind, None, node))
        if not change.up and in_use:
            running = [active_of(view) for view in facts.running]
            for active in [active for active in running if is_on(active.placement or (), node)]:
                self._stop(active, change, node)
            for stop_on in world.on_node_loss:
                stop_on(node, f"{change.kind} on node {change.node}")

    def _stop(self, active: ActiveJob, change: NodeChange, node: int) -> None:
        saves = change.planned and change.notice_s >= self._to_save_s(active)
        self.stop(active, f"{change.kind} on node {change.node}", node, saves=saves)

    def stop(self, active: ActiveJob, reason: str, node: int, *, saves: bool) -> None:
        """A running job loses its GPUs; if it does not save, also the work since its last checkpoint."""
        world, now = self.world, self.world.clock.now
        if active.done_s <= now and not active.ends_phase:
            return  # its completion is due at this very instant
        active.settle(now)
        if saves:
            view = world.views[active]
            world.facts.capacity.release(active.placement or (), active.demand)
            self._enactment.preempt(active, reason)
            world.tell(Event("stopped", view, node))
        else:
            self._crash(active, reason, node)

    def _to_save_s(self, active: ActiveJob) -> float:
        """Seconds to save what the job would lose."""
        owed_share = active.save_owed_at(self.world.clock.now)
        nodes = len(active.placement or ())
        return owed_share * self.world.overheads.save_s(active.curve.parameters, nodes) if owed_share else 0.0

    def _crash(self, active: ActiveJob, reason: str, node: int) -> None:
        world, now, view = self.world, self.world.clock.now, self.world.views[active]
        assert active.checkpoints is not None
        lost_s = active.crash()
        self._enactment.free_gpus(active)
        world.recorder.event(now, INTERRUPT, active.job.job_id, overhead_s=lost_s, detail=reason)
        if active.checkpoints.interruptions > self._retries:
            world.leave(active, now, f"{GIVEN_UP} after {active.checkpoints.interruptions} failures")
            return
        world.policy.add_waiting(view)
        world.tell(Event("interrupted", view, node))


def _sizes_of(job: JobView) -> Iterator[tuple[str, int]]:
    """What a job can run on, by GPU type."""
    for gpu_type in job.gpu_types:
        for gpus in job.sizes_on(gpu_type):
            yield gpu_type, gpus


def is_on(placement: Placement, node: int) -> bool:
    """Whether a job runs on a node. Placements are sorted by node."""
    i = bisect_left(placement, (node,))
    return i < len(placement) and placement[i][0] == node
