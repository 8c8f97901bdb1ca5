"""Nodes that go out of service and come back, while jobs run on them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from .active import ActiveJob
from .cluster import Placement
from .fallible import FallibleJob
from .outages import NodeChange, Outages
from .scheduler import Event

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["GIVEN_UP", "Interruptions"]

GIVEN_UP = "given up"
"""Why a job fails that failures have stopped too often."""

_MOST_IDLE_CHANGES = 10_000


class Interruptions:
    """Applies the changes of `outages` to a simulation.

    A node that fails takes the work of its jobs along that no checkpoint holds; what is planned lets them
    save first. Either way they wait again, and it is the policy that restarts them. A job that failures stop
    more than `retries` times is given up.
    """

    def __init__(self, simulation: Simulation, outages: Outages, retries: int):
        self._simulation, self._outages, self._retries = simulation, outages, retries
        self._next = outages.next()
        self._idle = 0  # changes in a row while nothing ran and nothing was to be submitted
        simulation.state._gone_for_good = outages.gone

    def begin(self) -> None:
        """Apply what holds from the start, and expect the rest."""
        while self._next is not None and self._next.time_s <= self._simulation.clock.now:
            self._apply(self._next)
            self._next = self._outages.next()
        self._expect()
        now = self._simulation.clock.now
        for time_s in self._outages.last_removals_s():
            if time_s > now:
                self._simulation.clock.after(time_s - now, [self._on_gone])

    def _on_gone(self, _: object) -> None:
        """Nodes will never be back, maybe such as were out of service before: nobody waits for them."""
        if not self._simulation._drained():
            self._simulation._decide_now(self._simulation.clock.now)

    def _expect(self) -> None:
        if self._next is not None:
            now = self._simulation.clock.now
            self._simulation.clock.after(self._next.time_s - now, [self._on_change])

    def _on_change(self, _: object) -> None:
        simulation = self._simulation
        if simulation._drained() or self._gives_up():
            return
        now = simulation.clock.now
        if not self._idle:
            simulation._wake_ups.forget(now)
        while self._next is not None and self._next.time_s <= now:
            self._apply(self._next)
            self._next = self._outages.next()
        simulation._decide_now(now)
        self._expect()

    def _gives_up(self) -> bool:
        """Whether nodes come and go, and none of the jobs that are left can run any more, or is run by the
        policy.
        """
        simulation = self._simulation
        at_work = simulation._submitted or simulation.state._running
        idle = simulation._submissions.next is None and not at_work
        self._idle = self._idle + 1 if idle else 0
        return idle and (self._idle > _MOST_IDLE_CHANGES or self._too_large())

    def _too_large(self) -> bool:
        """Whether every waiting job needs more GPUs than there will ever be again."""
        cluster, gone = self._simulation.cluster, self._outages.gone(self._simulation.clock.now)
        left = dict.fromkeys(cluster.gpu_types, 0)
        for node in range(cluster.nodes):
            if node not in gone:
                left[cluster.type_of(node)] += cluster.size_of(node)
        return not any(
            min(job.sizes_on(kind)) <= left[kind]
            for job in self._simulation.state._pending
            for kind in job.gpu_types
        )

    def _apply(self, change: NodeChange) -> None:
        simulation = self._simulation
        state, node = simulation.state, change.node
        size = simulation.cluster.size_of(node)
        in_use = simulation.capacity.free_on(node) < size
        if change.up:
            simulation.capacity.open(node)
            state._down -= size
        else:
            simulation.capacity.close(node)
            state._down += size
        kind = "node_up" if change.up else "node_down"
        place = ((node, size),)
        simulation.recorder.event(simulation.clock.now, kind, "", placement=place, detail=change.kind)
        state.events.append(Event(kind, None, node))
        if not change.up and in_use:
            for view in [view for view in state._running if _is_on(view._job.placement or (), node)]:
                self._stop(view._job, change)

    def _stop(self, active: ActiveJob, change: NodeChange) -> None:
        simulation = self._simulation
        now, state = simulation.clock.now, simulation.state
        if isinstance(active, FallibleJob) and active.done_s <= now:
            return  # its completion is due at this very instant
        active.settle(now)
        why = f"{change.kind} on node {change.node}"
        if change.planned:
            simulation.capacity.release(active.placement or ())
            simulation.enactment.preempt(active, why)
            state.events.append(Event("stopped", active.view, change.node))
            return
        assert isinstance(active, FallibleJob)
        lost_s = active.crash()
        simulation.enactment.withdraw(active)
        simulation.recorder.event(now, "interrupt", active.job.job_id, overhead_s=lost_s, detail=why)
        if active.interruptions > self._retries:
            simulation._leave(active, now, f"{GIVEN_UP} after {active.interruptions} failures")
            return
        simulation.questions.add_pending(active.view)
        state.events.append(Event("interrupted", active.view, change.node))


def _is_on(placement: Placement, node: int) -> bool:
    """Placements are sorted by node."""
    i = bisect_left(placement, (node,))
    return i < len(placement) and placement[i][0] == node
