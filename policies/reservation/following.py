"""From the targets of a decision to a proposal: where jobs run.

A job that is due must be able to run at its address: a node that serves its virtual node, or whole nodes.
While it holds that, it is *in place* and never moves. All other jobs give way: those on spare GPUs, and those
that are due but run elsewhere. Nodes are enough: what is due together was reserved together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
        *lists, wake_at = reservations.call(kernels.decide)
    else:
        reservations.call(kernels.begin)
        rule()
        *lists, wake_at = reservations.call(kernels.finish)
    proposal = state.proposal()
    if lists[0]:
        _Following(reservations, proposal, *lists).propose()
    if wake_at < inf:
        proposal.wake_at = float(wake_at)
    return proposal


class _Following:
    """One decision (`kernels.finish`). `serves`: by node of the cluster, the virtual node that it serves, or
    `_WHOLE`. `fixed`: the jobs that they serve, which stay there.
    """

    def __init__(
        self,
        reservations: Reservations,
        proposal: Proposal,
        changed: list[int],
        due: list[int],
        able: list[int],
    ):
        self.reservations, self.proposal, self.changed = reservations, proposal, changed
        self.due, self.able = set(due), set(able)
        self.jobs, self.sizes, self.views = reservations.jobs, reservations.sizes, reservations.views
        self.serves: dict[int, int] = {}
        self.fixed: set[int] = set()
        self._is_claimed = False  # whether the nodes of all jobs in place are noted

    def propose(self) -> None:
        """Shrink first, then seat the jobs that must follow their reservation, then grow, then seat those
        that were to grow but could not.
        """
        jobs, sizes = self.jobs, self.sizes
        for i in self.changed:
            held, target = jobs.held[i], jobs.target[i]
            if held and (target < 0 or sizes.type[target] != jobs.held_type[i]):
                self.proposal.stop(self.views[i])
            elif target >= 0 and sizes.gpus[target] < held:
                self.proposal.resize(self.views[i], int(sizes.gpus[target]))
        due = [i for i in self.changed if i in self.due]
        due.sort(key=lambda i: (jobs.end_s[i], self.views[i].order))
        unseated = [i for i in due if not self._keep(i)]
        self._seat([i for i in unseated if jobs.target[i] == jobs.row[i] and self._must_move(i)])
        growing = [i for i in self.changed if i not in self.fixed and jobs.target[i] >= 0]
        for i in sorted(growing, key=lambda i: (-sizes.gpus[jobs.target[i]], self.views[i].order)):
            self._grow(i)
        failed = [i for i in unseated if i not in self.fixed and self._drafted(i) != jobs.target[i]]
        self._seat([i for i in failed if self._must_move(i)])
        for view in self.proposal.changes:
            i = self.reservations.row[view]
            jobs.in_place[i] = int(i in self.fixed)

    def _drafted(self, i: int) -> int:
        """The size that a job holds in the draft; -1 if none."""
        return self.reservations.row_on(i, self.proposal.placement(self.views[i]))

    def _grow(self, i: int) -> None:
        """Give a job the GPUs that it lacks, if they are free; else what it holds."""
        view, target, drafted = self.views[i], self.jobs.target[i], self._drafted(i)
        sizes, proposal = self.sizes, self.proposal
        is_enough = sizes.type[drafted] == sizes.type[target] and sizes.gpus[drafted] >= sizes.gpus[target]
        if target < 0 or (drafted >= 0 and is_enough) or not view.in_system:
            return
        gpus, gpu_type = int(sizes.gpus[target]), self.reservations.types[sizes.type[target]] or None
        if proposal.placement(view):
            proposal.resize(view, gpus, gpu_type=gpu_type)
            return
        placement = proposal.start(view, gpus, gpu_type=gpu_type)
        if placement is None and view.gpus:
            proposal.keep(view)
        elif placement and self.jobs.row[i] == target and not self._fits(i, placement):
            proposal.stop(view)  # its reservation begins early: at its address, if that is free
            nodes = self._choose(i, set())
            if nodes and proposal.has_room(view, nodes):
                proposal.start(view, gpus, on=nodes)
            else:
                proposal.start(view, gpus, gpu_type=gpu_type)

    def _must_move(self, i: int) -> bool:
        """Whether a job that is due may not stay where it is, on spare GPUs."""
        return i not in self.able or self._drafted(i) != self.jobs.held_row[i]

    # Addresses

    def _serve(self, i: int, placement: Placement) -> None:
        """Let the nodes of a job in place serve its address."""
        self.fixed.add(i)
        self.serves.update(dict.fromkeys([node for node, _ in placement], int(self.jobs.address[i])))

    def _claim(self) -> None:
        """Note which nodes serve the jobs that stay in place, before a job is seated."""
        if self._is_claimed:
            return
        self._is_claimed = True
        for i in self.due.difference(self.changed):
            if self.jobs.held_row[i] == self.jobs.row[i]:
                self._serve(i, self.proposal.placement(self.views[i]) or ())

    def _fits(self, i: int, placement: Placement) -> bool:
        """Whether a job that runs on `placement` is at its address there."""
        row, v, node = self.jobs.row[i], int(self.jobs.address[i]), placement[0][0]
        if self.reservations.row_on(i, placement) != row:
            return False
        pool = self.reservations.pools[self.sizes.type[row]]
        if v == _WHOLE and len(placement) * pool.gpus_per_node == self.sizes.gpus[row]:
            return True  # no other job is on these nodes
        self._claim()
        if v == _WHOLE:
            is_alone = all(node not in self.serves for node, _ in placement)
            return bool(is_alone and len(placement) == self.sizes.nodes[row])
        is_free = node not in self.serves and v not in self.serves.values()
        return len(placement) == 1 and (is_free or self.serves.get(node) == v)

    def _keep(self, i: int) -> bool:
        """Seat a job where it runs, if its address can be there."""
        placement = self.proposal.placement(self.views[i])
        if placement and self.jobs.target[i] == self.jobs.row[i] and self._fits(i, placement):
            self._serve(i, placement)
            self.jobs.in_place[i] = 1
        return i in self.fixed

    def _seat(self, rows: Iterable[int]) -> None:
        """Seat jobs that are due, in this order. Jobs that are not seated give way."""
        queue, evicted = deque(rows), list[int]()
        while queue:
            i = queue.popleft()
            if i in self.fixed or not self.views[i].in_system:
                continue
            for rival in self._seat_job(i):
                (queue if rival in self.due else evicted).append(rival)
        for i in evicted:
            if not self.proposal.placement(self.views[i]):
                self._grow(i)

    def _seat_job(self, i: int) -> list[int]:
        """Give a job its address. Returns the jobs that gave way."""
        view, row, proposal, evicted = self.views[i], self.jobs.row[i], self.proposal, list[int]()
        gpus, gpu_type = int(self.sizes.gpus[row]), self.sizes.type[row]
        held_placement, placement = proposal.placement(view), None
        if held_placement:
            proposal.stop(view)
        if self.jobs.address[i] == _WHOLE:
            placement = proposal.start(view, gpus, gpu_type=self.reservations.types[gpu_type] or None)
        if placement is not None and not self._fits(i, placement):
            proposal.stop(view)
            placement = None
        if placement is None:
            nodes = self._choose(i, {node for node, _ in held_placement or ()})
            for place in nodes:
                evicted += self._clear(i, place)
            if not nodes or not proposal.has_room(view, nodes):
                return evicted
            placement = proposal.start(view, gpus, on=nodes)
        self._serve(i, placement or ())
        return evicted

    def _choose(self, i: int, held_nodes: set[int]) -> Placement:
        """Nodes for a job that is due: its virtual node's if that has one; else those on which the fewest
        GPUs have to be cleared. Empty if there are not enough.
        """
        self._claim()
        row, v, view = self.jobs.row[i], int(self.jobs.address[i]), self.views[i]
        pool, gpus = self.reservations.pools[self.sizes.type[row]], int(self.sizes.gpus[row])
        servers = [node for node, address in self.serves.items() if address == v]
        if v != _WHOLE and servers:
            return ((servers[0], gpus),)
        counts, node_gpus = view.node_counts, pool.gpus_per_node
        if sum(counts) != gpus:
            counts = tuple(min(node_gpus, gpus - place) for place in range(0, gpus, node_gpus))
        # A job in whole nodes takes the rest of its last one, too: that is what it has reserved.
        needed = gpus if v != _WHOLE else node_gpus if counts[0] == node_gpus else counts[0]
        ranked, gpus_on = [], None
        for node in range(pool.first, pool.first + pool.nodes):
            free, held = self.proposal.free_on(node), 0
            if free < needed:
                gpus_on = self._gpus_on() if gpus_on is None else gpus_on
                held = sum(gpus_on.get(node, {}).values())
            if node not in self.serves and free + held >= needed:
                ranked.append((max(0, needed - free), node not in held_nodes, free, node))
        if len(ranked) < len(counts):
            return ()
        nodes = tuple(sorted(zip([node for *_, node in sorted(ranked)], counts, strict=False)))
        return nodes if self.proposal.in_shape(view, nodes) else ()

    def _gpus_on(self) -> dict[int, dict[int, int]]:
        """By node, the jobs on it in the draft, with their GPUs there."""
        gpus_on: dict[int, dict[int, int]] = {}
        for i, view in self.views.items():
            for node, gpus in self.proposal.placement(view) or ():
                gpus_on.setdefault(node, {})[i] = gpus
        return gpus_on

    def _clear(self, i: int, place: tuple[int, int]) -> list[int]:
        """Make room for GPUs of a job on a node: jobs that are not due go first, then small ones, then late
        submissions. Returns the jobs that gave way.
        """
        gpus_of, evicted = self._gpus_on().get(place[0], {}), list[int]()
        for rival in sorted(gpus_of, key=lambda j: (j in self.due, gpus_of[j], -self.views[j].order)):
            if rival not in self.fixed and not self.proposal.has_room(self.views[i], (place,)):
                self.proposal.stop(self.views[rival])
                evicted.append(rival)
        return evicted
