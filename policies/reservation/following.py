"""From the targets of a decision to a proposal: where jobs run.

A job that is due must be able to run at its address: a node that serves its virtual node, or whole nodes.
While it holds that, it is *in place* and never moves. All other jobs give way: those on spare GPUs, and those
that are due but run elsewhere. Nodes are enough: what is due together was reserved together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from math import inf

from clustersim.scheduler import Proposal, State

from . import kernels
from .reservations import Placement, Reservations

__all__ = ["follow"]

_WHOLE = -1  # the address of a rectangle in whole nodes


def follow(state: State, reservations: Reservations, rule: Callable[[], None] | None = None) -> Proposal:
    """The proposal of a policy that keeps its reservations. `rule` gives out the GPUs that are not reserved,
    by changing targets; without one they go by marginal return. Asks to be woken when
    the next reservation begins.
    """
    reservations.update(state)
    if rule is None:
        changed, wake_at = reservations.call(kernels.decide)
    else:
        reservations.call(kernels.begin)
        rule()
        changed, wake_at = reservations.call(kernels.finish)
    proposal = state.proposal()
    if changed:
        _Following(reservations, proposal).propose(changed)
    if wake_at < inf:
        proposal.wake_at = float(wake_at)
    return proposal


class _Following:
    """One decision. `seated`: the jobs that were seated, and those that stay in place once `serves` is known:
    by node of the cluster, the virtual node that it serves, or `_WHOLE`. Jobs of full nodes do not need it.
    """

    def __init__(self, reservations: Reservations, proposal: Proposal):
        self.reservations, self.proposal = reservations, proposal
        self.jobs, self.sizes, self.views = reservations.jobs, reservations.sizes, reservations.views
        self.seated: set[int] = set()

    def propose(self, changed: list[int]) -> None:
        """Shrink jobs, then seat those that are due, by the ends of their reservations, then let the others
        grow, the largest first.
        """
        jobs, sizes, views, proposal = self.jobs, self.sizes, self.views, self.proposal
        due, growing = list[int](), list[int]()
        for i in changed:
            held, target = jobs.held[i], jobs.target[i]
            if held and (target < 0 or sizes.type[target] != jobs.held_type[i]):
                proposal.stop(views[i])
            elif held and sizes.gpus[target] < held:
                proposal.resize(views[i], sizes.gpus[target])
            if target >= 0:
                (due if self._is_due(i) and target == jobs.row[i] else growing).append(i)
        queue = deque(sorted(due, key=lambda i: (jobs.end_s[i], views[i].order)))
        while queue:
            for rival in self._seat(queue.popleft()):
                (queue if self._is_due(rival) else growing).append(rival)
        for i in sorted(growing, key=lambda i: (-sizes.gpus[jobs.target[i]], views[i].order)):
            self._grow(i)
        for view in proposal.changes:
            i = self.reservations.row[view]
            jobs.in_place[i] = i in self.seated

    def _grow(self, i: int) -> None:
        """Give a job the GPUs that it lacks, if they are free; else what it holds."""
        view, target, proposal = self.views[i], self.jobs.target[i], self.proposal
        gpus, gpu_type = self.sizes.gpus[target], self.reservations.types[self.sizes.type[target]] or None
        if proposal.placement(view):
            if gpus > proposal.gpus(view):
                proposal.resize(view, gpus)
            return
        placement = proposal.start(view, gpus, gpu_type=gpu_type) if view.in_system else None
        if placement is None:
            proposal.keep(view)
        elif target == self.jobs.row[i] and not self._fits(i, placement):
            proposal.stop(view)  # its reservation begins early: at its address, if that is free
            nodes = self._choose(i, {}, {})
            if nodes and proposal.has_room(view, nodes):
                proposal.start(view, gpus, on=nodes)
            else:
                proposal.start(view, gpus, gpu_type=gpu_type)

    def _is_due(self, i: int) -> bool:
        return self.jobs.row[i] >= 0 and self.jobs.start_s[i] <= self.reservations.now_s + kernels.INSTANT_S

    # Addresses

    @cached_property
    def serves(self) -> dict[int, int]:
        jobs = self.jobs
        for i, view in self.views.items():
            is_there = jobs.in_place[i] and jobs.held_row[i] == jobs.row[i] and self._is_due(i)
            if is_there and view not in self.proposal.changes:
                self.seated.add(i)
        places = {i: self.proposal.placement(self.views[i]) or () for i in self.seated}
        return {node: jobs.address[i] for i, placement in places.items() for node, _ in placement}

    def _fits(self, i: int, placement: Placement | None) -> bool:
        """Whether a job that runs on `placement` is at its address there."""
        row, v = self.jobs.row[i], self.jobs.address[i]
        if not placement or self.reservations.row_on(i, placement) != row:
            return False
        pool = self.reservations.pools[self.sizes.type[row]]
        if v == _WHOLE and len(placement) * pool.gpus_per_node == self.sizes.gpus[row]:
            return True  # no other job is on these nodes
        if v == _WHOLE:
            return len(placement) == self.sizes.nodes[row] and self.serves.keys().isdisjoint(dict(placement))
        address = self.serves.get(placement[0][0])
        return len(placement) == 1 and (v not in self.serves.values() if address is None else address == v)

    def _seat(self, i: int) -> list[int]:
        """Give a job that is due its address. Returns the jobs that gave way."""
        view, row, proposal, evicted = self.views[i], self.jobs.row[i], self.proposal, list[int]()
        if i in self.seated or not view.in_system:
            return evicted
        gpus, gpu_type = self.sizes.gpus[row], self.reservations.types[self.sizes.type[row]] or None
        held_placement = placement = proposal.placement(view)
        if not self._fits(i, placement):
            if placement:
                proposal.stop(view)
            placement = proposal.start(view, gpus, gpu_type=gpu_type)
        if not self._fits(i, placement):
            if placement:
                proposal.stop(view)
            jobs_on = self._jobs_on()
            nodes = self._choose(i, jobs_on, dict(held_placement or ()))
            for node, _ in nodes:  # jobs of which the GPUs are not needed get them back when jobs grow
                for rival in jobs_on.get(node, {}):
                    if rival not in self.seated and proposal.placement(self.views[rival]):
                        proposal.stop(self.views[rival])
                        evicted.append(rival)
            if not nodes or not proposal.has_room(view, nodes):
                return evicted
            placement = proposal.start(view, gpus, on=nodes)
        self.seated.add(i)
        self.jobs.in_place[i] = 1
        if "serves" in vars(self):
            self.serves.update(dict.fromkeys(dict(placement or ()), self.jobs.address[i]))
        return evicted

    def _choose(self, i: int, jobs_on: dict[int, dict[int, int]], held_nodes: dict[int, int]) -> Placement:
        """Nodes for a job that is due: its virtual node's if that has one; else those on which the fewest
        GPUs have to be cleared. Empty if there are not enough.
        """
        row, v, view, serves = self.jobs.row[i], self.jobs.address[i], self.views[i], self.serves
        pool, gpus = self.reservations.pools[self.sizes.type[row]], self.sizes.gpus[row]
        for node, address in serves.items():
            if v != _WHOLE and address == v:
                return ((node, gpus),)
        counts, node_gpus = view.node_counts, pool.gpus_per_node
        if sum(counts) != gpus:
            counts = tuple(min(node_gpus, gpus - place) for place in range(0, gpus, node_gpus))
        # A job in whole nodes takes the rest of its last one, too: that is what it has reserved.
        needed = gpus if v != _WHOLE else node_gpus if counts[0] == node_gpus else counts[0]
        ranked = []
        for node in range(pool.first, pool.first + pool.nodes):
            free = self.proposal.free_on(node)
            if node not in serves and free + sum(jobs_on.get(node, {}).values()) >= needed:
                ranked.append((max(0, needed - free), node not in held_nodes, free, node))
        if len(ranked) < len(counts):
            return ()
        nodes = tuple(sorted(zip([node for *_, node in sorted(ranked)], counts, strict=False)))
        return nodes if self.proposal.in_shape(view, nodes) else ()

    def _jobs_on(self) -> dict[int, dict[int, int]]:
        """By node, the jobs on it in the draft, with their GPUs there."""
        jobs_on: dict[int, dict[int, int]] = {}
        for i, view in self.views.items():
            for node, gpus in self.proposal.placement(view) or ():
                jobs_on.setdefault(node, {})[i] = gpus
        return jobs_on
