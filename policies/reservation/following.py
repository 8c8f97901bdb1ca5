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
from .tables import Job

__all__ = ["follow"]

_WHOLE = -1


def follow(
    state: State, reservations: Reservations, rule: Callable[[Reservations], None] | None = None
) -> Proposal:
    """The proposal of a policy that keeps its reservations. `rule` gives out the GPUs that are not reserved,
    by changing targets (`tables.Job`); without one they go by marginal return. Asks to be woken when the next
    reservation begins.
    """
    reservations.update(state)
    reservations.seated.clear()
    if rule is None:
        count, staying, wake_at = reservations.call(kernels.decide)
    else:
        reservations.call(kernels.begin)
        rule(reservations)
        count, staying, wake_at = reservations.call(kernels.finish)
    proposal, tables = state.proposal(), reservations.tables
    if count:
        lists = (tables.listed, count), (tables.staying, staying)
        changed, stays = (list(map(int, table.rows[:rows])) for table, rows in lists)
        _Following(state, reservations, proposal, stays).propose(changed)
    if wake_at < inf:
        proposal.wake_at = float(wake_at)
    return proposal


class _Following:
    """One decision. `serves`: by node of the cluster, the virtual node that it serves, or `_WHOLE`; `server`:
    by virtual node, the node of the cluster. `fixed`: the jobs that they serve, which stay there.
    """

    def __init__(self, state: State, reservations: Reservations, proposal: Proposal, staying: list[int]):
        self.state, self.reservations, self.proposal = state, reservations, proposal
        self.names, self.view = reservations.types, reservations.view
        self._jobs: dict[int, Job] = {}
        self.serves: dict[int, int] = {}
        self.server: dict[int, int] = {}
        self.fixed: set[int] = set()
        self._staying = staying  # jobs in place, whose nodes are not noted yet
        self._rows_on: dict[int, dict[int, None]] | None = None  # by node, the jobs there

    def propose(self, changed: list[int]) -> None:
        """Shrink first, then seat the jobs that must follow their reservation, then grow, then seat those
        that were to grow but could not.
        """
        self._jobs = dict(zip(changed, self.reservations.tables.jobs.rows_at(changed), strict=True))
        self._shrink(changed)
        due = [i for i in changed if self._is_due(i)]
        due.sort(key=lambda i: (self._jobs[i].end_s, self.view(i).order))
        unseated = [i for i in due if not self._keep(i)]
        self._seat([i for i in unseated if self._share(i) == self._target(i) and not self._may_stay(i)])
        for i in sorted(changed, key=lambda i: (-self._jobs[i].target, self.view(i).order)):
            if i not in self.fixed and self._jobs[i].target:
                self._grow(i)
        failed = [i for i in unseated if i not in self.fixed and self._drafted(i) != self._target(i)]
        self._seat([i for i in failed if not self._may_stay(i)])

    def _job(self, i: int) -> Job:
        """A row of the table of jobs, as of this decision."""
        if i not in self._jobs:
            self._jobs[i] = self.reservations.tables.jobs[i]
        return self._jobs[i]

    def _is_due(self, i: int) -> bool:
        return kernels.is_due(self._job(i), self.state.now)

    def _share(self, i: int) -> tuple[int, int]:
        """The GPUs that a job has reserved, and their type."""
        return self._job(i).size, self._job(i).type

    def _target(self, i: int) -> tuple[int, int]:
        """The GPUs that it is to hold."""
        return self._job(i).target, self._job(i).target_type

    def _drafted(self, i: int) -> tuple[int, int]:
        """The GPUs that it holds in the draft."""
        placement = self.proposal.placement(self.view(i))
        if not placement:
            return 0, 0
        t = self.names.index(self.state.cluster.type_of(placement[0][0])) if len(self.names) > 1 else 0
        return sum([gpus for _, gpus in placement]), t

    def _shrink(self, changed: Iterable[int]) -> None:
        for i in changed:
            job = self._jobs[i]
            if job.held and (job.target == 0 or job.target_type != job.held_type):
                self.proposal.stop(self.view(i))
            elif 0 < job.target < job.held:
                self.proposal.resize(self.view(i), job.target)

    def _grow(self, i: int) -> None:
        """Give a job the GPUs that it lacks, if they are free; else what it holds."""
        view, job, (held, held_type) = self.view(i), self._job(i), self._drafted(i)
        target, t = job.target, job.target_type
        if target and (held < target or held_type != t) and view.in_system:
            before, proposal = self.proposal.placement(view), self.proposal
            change = proposal.resize if held else proposal.start
            placement = change(view, target, gpu_type=self.names[t] or None)
            if placement is None and not held and view.gpus:
                proposal.keep(view)
            elif placement and not held and self._share(i) == (target, t) and not self._fits(i, placement):
                proposal.stop(view)  # its reservation begins early: at its address, if that is free
                nodes = self._choose(i, set())
                if nodes and proposal.has_room(view, nodes):
                    proposal.start(view, target, on=nodes)
                else:
                    proposal.start(view, target, gpu_type=self.names[t] or None)
            self._note(i, before)

    # Addresses

    def _claim(self) -> None:
        """Note which nodes serve the jobs that are in place, before a job is seated."""
        while self._staying:
            i = self._staying.pop()
            self._serve(i, self.proposal.placement(self.view(i)) or ())

    def _serve(self, i: int, placement: Placement) -> None:
        """Let the nodes of a job in place serve its address."""
        v = self._job(i).address
        self.fixed.add(i)
        for node, _ in placement:
            self.serves[node] = v
            if v != _WHOLE:
                self.server[v] = node

    def _nodes(self, i: int) -> int:
        """The whole nodes that a job has reserved."""
        return self.reservations.sizes[self._job(i).row].nodes

    def _fits(self, i: int, placement: Placement) -> bool:
        """Whether a job that runs on `placement` is at its address there."""
        if self._drafted(i) != self._share(i):
            return False
        v, node = self._job(i).address, placement[0][0]
        node_gpus = self.reservations.pools[self._job(i).type].gpus_per_node
        if v == _WHOLE and len(placement) * node_gpus == self._job(i).size:
            return True  # no other job is on these nodes
        self._claim()
        if v == _WHOLE:
            return len(placement) == self._nodes(i) and all(node not in self.serves for node, _ in placement)
        return len(placement) == 1 and self.server.get(v, node) == node and self.serves.get(node, v) == v

    def _keep(self, i: int) -> bool:
        """Seat a job where it runs, if its address can be there."""
        placement = self.proposal.placement(self.view(i))
        if not placement or self._target(i) != self._share(i):
            return False
        if not self._fits(i, placement):
            return False
        self._serve(i, placement)
        self.reservations.seated.add(i)
        self.reservations.tables.jobs.write(i, in_place=1)
        return True

    def _may_stay(self, i: int) -> bool:
        """Whether a job that is due may stay where it is, on spare GPUs."""
        job, (held, t) = self._job(i), self._drafted(i)
        if not held or (held, t) != (job.held, job.held_type):
            return False
        row, back = self.reservations.sizes[job.held_row], self.reservations.sizes[job.row]
        if job.held_row < 0 or row.rate < back.rate:
            return False
        back_s = back.restart_s + job.work / back.rate
        return bool(self.state.now + job.paying_s + back_s <= job.end_s + kernels.INSTANT_S)

    def _seat(self, rows: Iterable[int]) -> None:
        """Seat jobs that are due, in this order. Jobs that are not seated give way."""
        queue, evicted = deque(rows), list[int]()
        while queue:
            i = queue.popleft()
            if i in self.fixed or not self.view(i).in_system:
                continue
            for other in self._seat_one(i):
                (queue if self._is_due(other) else evicted).append(other)
        for i in evicted:
            if not self._drafted(i)[0]:
                self._grow(i)

    def _seat_one(self, i: int) -> list[int]:
        """Give a job its address. Returns the jobs that gave way."""
        view, job, proposal = self.view(i), self._job(i), self.proposal
        before, evicted = proposal.placement(view), list[int]()
        if before:
            proposal.stop(view)
            self._note(i, before)
        placement = None
        if job.address == _WHOLE:
            placement = proposal.start(view, job.size, gpu_type=self.names[job.type] or None)
        if placement is not None and not self._fits(i, placement):
            proposal.stop(view)
            placement = None
        if placement is None:
            nodes = self._choose(i, {node for node, _ in before or ()})
            for node, gpus in nodes:
                evicted += self._clear(i, node, gpus)
            if not nodes or not proposal.has_room(view, nodes):
                return evicted
            placement = proposal.start(view, job.size, on=nodes)
        self._note(i, None)
        self._serve(i, placement or ())
        self.reservations.seated.add(i)
        return evicted

    def _choose(self, i: int, own: set[int]) -> Placement:
        """Nodes for a job that is due: its virtual node's if that has one; else those on which the fewest
        GPUs have to be cleared. Empty if there are not enough.
        """
        self._claim()
        job, proposal = self._job(i), self.proposal
        v, left, pool = job.address, job.size, self.reservations.pools[job.type]
        if v in self.server:
            return ((self.server[v], left),)
        counts, node_gpus = self.view(i).node_counts, pool.gpus_per_node
        if sum(counts) != left:
            counts = tuple(min(node_gpus, left - taken) for taken in range(0, left, node_gpus))
        # A job in whole nodes takes the rest of its last one, too: that is what it has reserved.
        on_each = left if v != _WHOLE else node_gpus if counts[0] == node_gpus else counts[0]
        ranked = []
        for node in range(pool.first, pool.first + pool.nodes):
            free = proposal.free_on(node)
            held = sum(self._gpus_on(node).values()) if free < on_each else 0
            if node not in self.serves and free + held >= on_each:
                ranked.append((max(0, on_each - free), node not in own, free, node))
        if len(ranked) < len(counts):
            return ()
        nodes = tuple(sorted(zip([node for *_, node in sorted(ranked)], counts, strict=False)))
        return nodes if proposal.in_shape(self.view(i), nodes) else ()

    # Jobs by node in the draft

    def _gpus_on(self, node: int) -> dict[int, int]:
        """The jobs on a node, with their GPUs there."""
        if self._rows_on is None:
            self._rows_on = {}
            for view in self.proposal.running():
                if view in self.reservations.row:
                    self._note(self.reservations.row[view], None)
        rows = self._rows_on.get(node, ())
        return {i: dict(self.proposal.placement(self.view(i)) or ()).get(node, 0) for i in rows}

    def _note(self, i: int, before: Placement | None) -> None:
        """A job runs elsewhere in the draft than `before`."""
        if self._rows_on is not None:
            for node, _ in before or ():
                self._rows_on.get(node, {}).pop(i, None)
            for node, _ in self.proposal.placement(self.view(i)) or ():
                self._rows_on.setdefault(node, {})[i] = None

    def _clear(self, i: int, node: int, gpus: int) -> list[int]:
        """Make room for `gpus` GPUs of a job on a node: jobs that are not due go first, then small ones, then
        late submissions.
        """
        proposal, held, evicted = self.proposal, self._gpus_on(node), list[int]()
        others = [other for other in held if other not in self.fixed]
        others.sort(key=lambda other: (self._is_due(other), held[other], -self.view(other).order))
        for other in others:
            if proposal.has_room(self.view(i), ((node, gpus),)):
                break
            before = proposal.placement(self.view(other))
            proposal.stop(self.view(other))
            self._note(other, before)
            evicted.append(other)
        return evicted
