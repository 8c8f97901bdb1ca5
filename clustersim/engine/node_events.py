"""Nodes that go out of service and come back while jobs run on them."""

from __future__ import annotations

from bisect import bisect_left

from clustersim.cluster import Placement
from clustersim.failures import NodeChange, Outages
from clustersim.jobs import ActiveJob, CheckpointedJob
from clustersim.records import GIVEN_UP, INTERRUPT, NODE_DOWN, NODE_UP
from clustersim.scheduler import Event
from clustersim.scheduler.job_view import active_of

from .enactment import Enactment
from .kernel import Kernel
from .wake_ups import WakeUps

__all__ = ["NodeEvents"]

_MOST_IDLE_CHANGES = 10_000


class NodeEvents:
    """Applies the changes of `outages` to a simulation.

    Jobs on a node that fails lose the work that no checkpoint holds. Before a planned outage they save. In
    both cases the jobs wait again, and the policy restarts them. A job that failures have stopped more than
    `retries` times is given up.
    """

    def __init__(
        self, kernel: Kernel, enactment: Enactment, wake_ups: WakeUps, outages: Outages, retries: int
    ):
        self._kernel, self._enactment, self._wake_ups = kernel, enactment, wake_ups
        self._outages, self._retries = outages, retries
        self._next = outages.next()
        self._idle = 0  # changes in a row while no job ran and none was to be submitted
        kernel.facts.gone_for_good = outages.gone

    def begin(self) -> None:
        """Apply the changes that hold from the start, and expect the others."""
        clock = self._kernel.clock
        self._apply_until(clock.now)
        self._expect_next()
        for time_s in self._outages.last_removals_s():
            if time_s > clock.now:
                clock.after(time_s - clock.now, [self._on_removal])

    def _on_removal(self, _: object) -> None:
        """Some nodes will never return; they may have been out of service before. The policy decides again,
        so that jobs do not wait for these nodes.
        """
        if not self._kernel.drained():
            self._kernel.decide_at_this_instant(self._kernel.clock.now)

    def _apply_until(self, now: float) -> None:
        while self._next is not None and self._next.time_s <= now:
            self._apply(self._next)
            self._next = self._outages.next()

    def _expect_next(self) -> None:
        if self._next is not None:
            clock = self._kernel.clock
            clock.after(self._next.time_s - clock.now, [self._on_change])

    def _on_change(self, _: object) -> None:
        kernel = self._kernel
        if kernel.drained() or self._ends_here():
            return
        now = kernel.clock.now
        if not self._idle:
            self._wake_ups.reset(now)
        self._apply_until(now)
        kernel.decide_at_this_instant(now)
        self._expect_next()

    def _ends_here(self) -> bool:
        """Whether further changes of nodes have no effect: the remaining jobs cannot run any more, or
        the policy does not run them.
        """
        kernel = self._kernel
        at_work = kernel.submitted or kernel.facts.running or kernel.services
        idle = kernel.arrivals.next is None and not at_work
        self._idle = self._idle + 1 if idle else 0
        return idle and (self._idle > _MOST_IDLE_CHANGES or self._all_too_large())

    def _all_too_large(self) -> bool:
        """Whether every waiting job needs more GPUs than the nodes that remain have."""
        facts = self._kernel.facts
        cluster, gone = facts.cluster, self._outages.gone(self._kernel.clock.now)
        remaining = dict.fromkeys(cluster.gpu_types, 0)
        for node in range(cluster.nodes):
            if node not in gone:
                remaining[cluster.type_of(node)] += cluster.size_of(node)
        return not any(
            min(job.sizes_on(gpu_type)) <= remaining[gpu_type]
            for job in facts.waiting.jobs
            for gpu_type in job.gpu_types
        )

    def _apply(self, change: NodeChange) -> None:
        kernel, facts, node = self._kernel, self._kernel.facts, change.node
        size = facts.cluster.size_of(node)
        in_use = facts.capacity.free_on(node) < size
        if change.up:
            facts.capacity.open(node)
            facts.gpus_down -= size
        else:
            facts.capacity.close(node)
            facts.gpus_down += size
        kind = NODE_UP if change.up else NODE_DOWN
        kernel.recorder.event(kernel.clock.now, kind, "", placement=((node, size),), detail=change.kind)
        kernel.events.append(Event(kind, None, node))
        if not change.up and in_use:
            running = [active_of(view) for view in facts.running]
            for active in [active for active in running if _is_on(active.placement or (), node)]:
                self._stop(active, change)
            if kernel.services is not None:
                kernel.services.stop_on(node, f"{change.kind} on node {node}")

    def _stop(self, active: ActiveJob, change: NodeChange) -> None:
        kernel, now = self._kernel, self._kernel.clock.now
        if isinstance(active, CheckpointedJob) and active.done_s <= now:
            return  # its completion is due at this very instant
        view = kernel.views[active]
        active.settle(now)
        reason = f"{change.kind} on node {change.node}"
        if change.planned:
            kernel.facts.capacity.release(active.placement or ())
            self._enactment.preempt(active, reason)
            kernel.events.append(Event("stopped", view, change.node))
            return
        assert isinstance(active, CheckpointedJob)
        lost_s = active.crash()
        self._enactment.withdraw(active)
        kernel.recorder.event(now, INTERRUPT, active.job.job_id, overhead_s=lost_s, detail=reason)
        if active.interruptions > self._retries:
            kernel.leave(active, now, f"{GIVEN_UP} after {active.interruptions} failures")
            return
        kernel.policy.add_waiting(view)
        kernel.events.append(Event("interrupted", view, change.node))


def _is_on(placement: Placement, node: int) -> bool:
    """Placements are sorted by node."""
    i = bisect_left(placement, (node,))
    return i < len(placement) and placement[i][0] == node
