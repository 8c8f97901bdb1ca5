"""HiveD: quotas as cells of GPUs, in virtual private clusters."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import merge
from reprlib import repr as brief

from clustersim.scheduler import JobView, PolicyError, Proposal, Ranking, Scheduler, State
from policies.toolkit.cells import Cell, FreeCells, VirtualCluster, cell_sizes, split_into_cells
from policies.toolkit.parameters import switch
from policies.toolkit.places import Places

__all__ = ["Hived"]


class Hived(Scheduler):
    """Each tenant has a virtual private cluster of cells (parts of a node, nodes, groups of nodes): a job
    that fits a free cell of its tenant starts at once, on GPUs of one such cell; idle GPUs serve other jobs,
    which are preempted for it.

    Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020, with buddy cell
    allocation. `cells` lists the GPUs of each cell by tenant; without it the cells of a tenant are its quota
    in the run (`--set quotas.TENANT=GPUS`), split into the fewest cells. Tenants without cells share what is
    left as one virtual cluster. With `opportunistic` off no job runs beyond cells, and one that fits no cell
    of its tenant is declined.
    """

    one_gpu_type = True
    equal_nodes = True
    leaves_idle = False

    def __init__(self, cells: Mapping[str, Sequence[int]] | None = None, opportunistic: bool = True):
        self.cells = _checked(cells)
        self.opportunistic = switch("opportunistic", opportunistic)
        self._sizes: tuple[int, ...] = ()
        self._clusters: dict[str | None, VirtualCluster] = {}  # by tenant; None: of all others
        self._waiting: dict[str | None, Ranking] = {}  # likewise, in order of submission
        self._largest: dict[str | None, int] = {}  # GPUs of the largest cell, likewise
        self._held: dict[JobView, Cell] = {}  # the virtual cells of guaranteed jobs

    def admit(self, job: JobView, state: State) -> bool:
        self._begin(state)
        return self.opportunistic or job.requested <= self._largest[self._owner(job)]

    def schedule(self, state: State) -> Proposal:
        self._begin(state)
        for job in [job for job in self._held if not job.running]:
            self._clusters[self._owner(job)].release(self._held.pop(job))
        departed, arrived = state.pending_by(_submission).changes()
        for _, _, job in departed:
            self._waiting[self._owner(job)].remove(job)
        for _, _, job in arrived:
            self._waiting[self._owner(job)].add(job)
        draft = _Draft(state, [job for job in state.running if job not in self._held], self._held)
        served = True
        while served:  # again: a preempted job may fit a free cell of its own tenant
            served = sum(self._serve(owner, draft) for owner in self._clusters) > 0
        if self.opportunistic:
            self._lend(state, draft)
        return draft.proposal

    def _begin(self, state: State) -> None:
        """Divide the cluster into virtual clusters, once."""
        if self._clusters:
            return
        cluster = state.cluster
        self._sizes = sizes = cell_sizes(cluster)
        cell_levels: dict[str, list[int]] = {
            tenant: split_into_cells(gpus, sizes) for tenant, gpus in state.quotas.items() if gpus
        }
        for tenant, cells in self.cells.items():
            unknown = next((gpus for gpus in cells if gpus not in sizes), None)
            if unknown is not None:
                size_list = ", ".join(map(str, sizes))
                raise PolicyError(
                    f"cells: {tenant}: {unknown} GPUs are no cell; cells here have {size_list} GPUs"
                )
        if self.cells:
            cell_levels = {
                tenant: [sizes.index(gpus) for gpus in cells] for tenant, cells in self.cells.items()
            }
        free_gpus = cluster.gpus - sum(sizes[level] for levels in cell_levels.values() for level in levels)
        if free_gpus < 0:
            raise PolicyError(
                f"cells: {cluster.gpus - free_gpus} GPUs are promised, the cluster has {cluster.gpus}"
            )
        free = FreeCells(sizes, split_into_cells(cluster.gpus, sizes))
        for owner, levels in [*cell_levels.items(), (None, split_into_cells(free_gpus, sizes))]:
            self._clusters[owner] = VirtualCluster(levels, free)
            self._waiting[owner] = Ranking(_submission)
            self._largest[owner] = max((sizes[level] for level in levels), default=0)

    def _owner(self, job: JobView) -> str | None:
        """The virtual cluster of a job."""
        return job.tenant if job.tenant in self._clusters else None

    def _level(self, gpus: float) -> int | None:
        """The level of the smallest cell that holds so many GPUs."""
        return next((level for level, size in enumerate(self._sizes) if size >= gpus), None)

    def _serve(self, owner: str | None, draft: _Draft) -> bool:
        """Give a virtual cluster's free cells to its jobs without one, in order of submission. Returns
        whether any job started.
        """
        cluster, started = self._clusters[owner], False

        def has_room(gpus: float) -> bool:
            level = self._level(gpus)
            return level is not None and cluster.lowest(level) is not None

        idle = [job for job in draft.opportunistic if self._owner(job) == owner]
        waiting = self._waiting[owner].walk(has_room)
        for job in merge(sorted(idle, key=_submission), waiting, key=_submission):
            if job in self._held or not has_room(job.requested):
                continue
            if draft.proposal.placement(job):
                self._keep(job, cluster, draft)
            else:
                started = self._start(job, cluster, draft) or started
        return started

    def _keep(self, job: JobView, cluster: VirtualCluster, draft: _Draft) -> None:
        """Make a running job guaranteed where it is, if a free cell of its tenant can be bound there."""
        level, placement = self._level(job.requested), draft.proposal.placement(job)
        assert level is not None
        assert placement
        nodes, size = [node for node, _ in placement], self._sizes[level]
        if size < draft.gpus_per_node:
            first_gpu = nodes[0] * draft.gpus_per_node
            cells = [(level, gpu) for gpu in range(first_gpu, first_gpu + draft.gpus_per_node, size)]
        else:
            first_gpu = nodes[0] * draft.gpus_per_node // size * size
            cells = [(level, first_gpu)]
        if all(
            first_gpu <= node * draft.gpus_per_node < first_gpu + max(size, draft.gpus_per_node)
            for node in nodes
        ):
            virtual_cell = cluster.take_where(cells)
            if virtual_cell is not None:
                self._held[job] = virtual_cell

    def _start(self, job: JobView, cluster: VirtualCluster, draft: _Draft) -> bool:
        """Start a job in the tenant's smallest free cell, on GPUs of opportunistic jobs where it needs them:
        of the cells of the cluster that this can be bound to, where fewest are taken.
        """
        level = self._level(job.requested)
        assert level is not None
        for virtual, cells in cluster.choices(level):
            options = [
                (stopped_gpus, cell, places)
                for parent in cells
                for cell in self._parts(level, parent, draft.gpus_per_node)
                for stopped_gpus, places in draft.places(job.requested, cell[1], self._sizes[level])
            ]
            for _, cell, places in sorted(options):
                if draft.start(job, places):
                    self._held[job] = cluster.take(cell, virtual)
                    return True
        return False

    def _parts(self, level: int, parent: Cell, gpus_per_node: int) -> list[Cell]:
        """The cells of a level in a cell; of those in one node the first."""
        first_gpu, size = parent[1], self._sizes[parent[0]]
        return [
            (level, gpu)
            for gpu in range(first_gpu, first_gpu + size, max(self._sizes[level], min(size, gpus_per_node)))
        ]

    def _lend(self, state: State, draft: _Draft) -> None:
        """Run jobs without a cell on idle GPUs: preempted ones, then waiting ones, in order of submission."""
        for job in sorted(draft.opportunistic, key=_submission):
            if not draft.proposal.placement(job):
                draft.proposal.start(job)
        for job in state.pending_by(_submission).walk(draft.proposal.fits):
            if not draft.proposal.placement(job):
                draft.proposal.start(job)


class _Draft:
    """A proposal, and the opportunistic jobs that ran before it, in order of their start. Those of `held` are
    guaranteed by now.
    """

    def __init__(self, state: State, opportunistic: list[JobView], held: Container[JobView]):
        self.proposal, self.opportunistic, self._held = state.proposal(), opportunistic, held
        self.gpus_per_node = state.cluster.gpus_per_node
        self._on_node: dict[int, list[tuple[JobView, int]]] = {}
        for job in opportunistic:
            for node, count in self.proposal.placement(job) or ():
                self._on_node.setdefault(node, []).append((job, count))

    def places(self, gpus: int, first_gpu: int, size: int) -> list[tuple[int, Places]]:
        """Where a job runs in the cell of `size` GPUs from `first_gpu` on, and how many GPUs of opportunistic
        jobs it takes there; empty if nodes are out of service.
        """
        per_node, node = self.gpus_per_node, first_gpu // self.gpus_per_node
        if size <= per_node:
            free = self.proposal.free_on(node)
            return [(max(gpus - free, 0), ((node, gpus),))] if self._available(node) >= gpus else []
        count = -(-gpus // per_node)
        nodes = [n for n in range(node, node + size // per_node) if self._available(n) >= per_node]
        nodes = sorted(sorted(nodes, key=lambda n: (-self.proposal.free_on(n), n))[:count])
        if len(nodes) < count:
            return []
        places = tuple((n, min(per_node, gpus - i * per_node)) for i, n in enumerate(nodes))
        return [(sum(max(wanted - self.proposal.free_on(n), 0) for n, wanted in places), places)]

    def _available(self, node: int) -> int:
        """The GPUs of a node that are free or can be taken."""
        return self.proposal.free_on(node) + sum(count for _, count in self._on(node))

    def _on(self, node: int) -> list[tuple[JobView, int]]:
        """The opportunistic jobs that hold GPUs of a node, in order of their start, with these."""
        jobs = self._on_node.get(node, ())
        return [entry for entry in jobs if entry[0] not in self._held and self.proposal.placement(entry[0])]

    def start(self, job: JobView, places: Places) -> bool:
        """Start a job here. Opportunistic jobs give way, the last to start first, and those that are not in
        its way go on. Without an effect if nodes are closed to the job.
        """
        stopped = []
        for node, count in places:
            for guest, _ in reversed(self._on(node)):
                if self.proposal.has_room(job, ((node, count),)):
                    break
                stopped.append((guest, self.proposal.placement(guest)))
                self.proposal.stop(guest)
        free = self.proposal.free_nodes(job)
        has_room = all(free.get(node, 0) >= count for node, count in places)
        started = has_room and self.proposal.in_shape(job, places)
        if started:
            self.proposal.start(job, on=places)
        for guest, placement in reversed(stopped):
            if placement and self.proposal.has_room(guest, placement):
                self.proposal.start(guest, on=placement)
        return started


def _submission(job: JobView) -> int:
    return job.order


def _checked(cells: object) -> dict[str, tuple[int, ...]]:
    """The parameter `cells`. ValueError if it is no list of whole numbers by tenant."""
    if cells is None:
        return {}
    example = "must list the GPUs of each cell by tenant, as in {research: [32, 8], product: [8]}"
    if not isinstance(cells, Mapping):
        raise ValueError(f"cells={brief(cells)}: {example}")
    for tenant, sizes in cells.items():
        valid = isinstance(sizes, list | tuple) and all(
            isinstance(gpus, int) and not isinstance(gpus, bool) and gpus > 0 for gpus in sizes
        )
        if not valid:
            raise ValueError(f"cells: {tenant!s:.60}={brief(sizes)}: {example}")
    return {str(tenant): tuple(sizes) for tenant, sizes in cells.items()}
