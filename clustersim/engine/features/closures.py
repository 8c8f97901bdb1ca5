"""Nodes that are closed to some jobs: those about to be reclaimed, those of reservations, and those that a
calendar takes out of service.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf, isfinite
from typing import cast

from clustersim.cluster import NodeSet, node_set, nodes_of
from clustersim.engine.clock import Due
from clustersim.engine.world import World
from clustersim.failures import Closure, Reservation
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.internal import active_of
from clustersim.scheduler.node_states import ClosedNodes

from .node_events import NodesOfCluster, is_on

__all__ = ["Closures"]


class Closures:
    """Begins and ends reservations, and tells drafts which nodes are closed to a job, now (`closed_to`) and
    as planned (`Plans`).

    `cordon`: whether a node with a notice of its reclaim gets no further jobs. `announced`: the nodes that
    the calendar takes out of service, in order of time.
    """

    def __init__(
        self,
        world: World,
        nodes: NodesOfCluster,
        cordon: bool,
        reservations: Sequence[Reservation],
        announced: Sequence[Closure] = (),
    ):
        self._world, self._nodes, self._cordon = world, nodes, cordon
        self._sets = {reservation.nodes: node_set(sorted(reservation.nodes)) for reservation in reservations}
        self._to_come = deque(reservations)  # in order of time
        self._in_force: dict[Reservation, None] = {}
        self._announced = [(*closure[:2], node_set(closure.nodes)) for closure in announced]
        if cordon or reservations:
            world.facts.nodes.close(self.closed_to)
        if announced or reservations:
            world.facts.nodes.plans = self

    def begin(self) -> None:
        """Expect the beginnings and ends of reservations; those that hold already begin at once."""
        clock = self._world.clock
        for reservation in tuple(self._to_come):
            if reservation.end_s <= clock.now:
                self._to_come.remove(reservation)
            else:
                clock.after(reservation.start_s - clock.now, [self._on_start], reservation)
                clock.after(reservation.end_s - clock.now, [self._on_end], reservation)

    def closed_to(self, job: JobView | None) -> ClosedNodes:
        """The nodes on which `job` may get no GPUs now, and those that are reserved for it. Without a job:
        the nodes that are closed to every job.
        """
        facts, closed, reserved = self._world.facts, 0, 0
        if self._cordon and facts.nodes.leaving:
            closed = node_set(node for node, time_s in facts.nodes.leaving.items() if time_s > facts.now_s)
        if job is None:
            return ClosedNodes(closed, reserved)
        for reservation in self._in_force:
            if reservation.admits(job.id, job.tenant):
                reserved |= self._sets[reservation.nodes]
            else:
                closed |= self._sets[reservation.nodes]
        if self._to_come:
            closed |= self._to_be_drained(job)
        return ClosedNodes(closed, reserved)

    def closed_during(self, job: JobView | None, from_s: float, until_s: float) -> ClosedNodes:
        facts, closed_nodes, reserved_nodes = self._world.facts, 0, 0
        for node, leaves_s in facts.nodes.leaving.items():
            if leaves_s > facts.now_s and (self._cordon or leaves_s < until_s or leaves_s <= from_s):
                closed_nodes |= 1 << node
        for start_s, end_s, nodes in self._announced_from_now():
            if start_s > from_s and start_s >= until_s:
                break
            closed_nodes |= nodes if end_s > from_s else 0
        if job is None:
            return ClosedNodes(closed_nodes, reserved_nodes)
        for reservation in chain(self._in_force, self._to_come):
            holds = reservation.start_s <= from_s < reservation.end_s
            if not holds and not from_s < reservation.start_s < until_s:
                continue
            if reservation.admits(job.id, job.tenant):
                reserved_nodes |= self._sets[reservation.nodes] if holds else 0
            elif holds or reservation.others == "drain":
                closed_nodes |= self._sets[reservation.nodes]
        return ClosedNodes(closed_nodes, reserved_nodes)

    def back_by(self, time_s: float) -> NodeSet:
        now, returned_nodes, absent_nodes = self._world.facts.now_s, 0, 0
        for start_s, end_s, nodes in self._announced_from_now():
            if start_s <= now and end_s <= time_s:
                returned_nodes |= nodes
            elif start_s <= time_s < end_s:
                absent_nodes |= nodes
        return returned_nodes & ~absent_nodes

    def openings_s(self) -> list[float]:
        now = self._world.facts.now_s
        ends_s = {end_s for _, end_s, _ in self._announced_from_now()}
        ends_s |= {reservation.end_s for reservation in chain(self._in_force, self._to_come)}
        return sorted(end_s for end_s in ends_s if now < end_s < inf)

    def changes(self, job: JobView | None) -> Iterator[tuple[float, int, int]]:
        facts = self._world.facts
        now, out_of_service = facts.now_s, facts.capacity.closed
        if job is not None:
            for reservation in chain(self._in_force, self._to_come):
                if not reservation.admits(job.id, job.tenant) and reservation.end_s > now:
                    for node in sorted(reservation.nodes):
                        yield max(now, reservation.start_s), node, -1
                        yield reservation.end_s, node, 1
            return
        closures = [closure for closure in self._announced_from_now() if closure[1] > now]
        announced_nodes = node_set(
            node for start_s, _, nodes in closures if start_s <= now for node in nodes_of(nodes)
        )
        failed_nodes = out_of_service & ~announced_nodes  # of their return nothing is known
        for start_s, end_s, nodes in closures:
            for node in nodes_of(nodes & ~failed_nodes):
                if start_s > now or not out_of_service >> node & 1:
                    yield max(now, start_s), node, -1
                if end_s < inf:
                    yield end_s, node, 1

    def _announced_from_now(self) -> list[tuple[float, float, NodeSet]]:
        """What is announced from now on, in order of time."""
        now, count = self._world.facts.now_s, 0  # of closures that are over
        while count < len(self._announced) and self._announced[count][1] <= now:
            count += 1
        del self._announced[:count]
        return self._announced

    def _to_be_drained(self, job: JobView) -> NodeSet:
        """The nodes of coming reservations for which the job would end too late."""
        end_s, closed = _end_s(job, self._world.facts.now_s), 0
        for reservation in self._to_come:
            if reservation.start_s >= end_s:
                break
            if reservation.others == "drain" and not reservation.admits(job.id, job.tenant):
                closed |= self._sets[reservation.nodes]
        return closed

    def _on_start(self, event: Due) -> None:
        reservation = cast("Reservation", event.value)
        world = self._world
        self._to_come.remove(reservation)
        self._in_force[reservation] = None
        if world.drained():
            return
        for view in list(world.facts.running):
            active = active_of(view)
            node = next((n for n in sorted(reservation.nodes) if is_on(active.placement or (), n)), None)
            if node is not None and not reservation.admits(view.id, view.tenant):
                reason = f"reservation {reservation.number} of node {node + self._nodes.first}"
                self._nodes.stop(active, reason, node, saves=reservation.others != "kill")
        world.tell(Event("reserved", None))
        world.decide_at_this_instant(world.clock.now)

    def _on_end(self, event: Due) -> None:
        del self._in_force[cast("Reservation", event.value)]
        world = self._world
        if not world.drained():
            world.tell(Event("released", None))
            world.decide_at_this_instant(world.clock.now)


def _end_s(job: JobView, now: float) -> float:
    """When a job ends if it starts now, by what its user states; minus infinity where the user states
    nothing: `drain` lets such a job start (docs/fleets.md).
    """
    estimated_s = job.estimated_end_s()
    if isfinite(estimated_s):
        return estimated_s
    if not isfinite(job.work_left):
        return -inf
    return now + job.start_cost_s(job.requested) + job.remaining()
