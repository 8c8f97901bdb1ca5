"""Arena: jobs in cells of GPU type and count, scaled and moved between types for throughput."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.divisions.cell_search import CellChange, Changes, GpuCell
from policies.toolkit.parameters import whole

__all__ = ["Arena"]


class Arena(Scheduler):
    """Each job runs in a cell, a number of GPUs of one type with the best plan for it. A job that arrives
    gets room by scaling down or moving up to `depth` others where total throughput grows; GPUs that remain
    scale jobs up or move them to better types.

    Xue et al., "Arena: Efficiently Training Large Models via Dynamic Scheduling and Adaptive Parallelism
    Co-Design", EuroSys 2026; as Crius: "A Codesign of Scheduling and Parallelization for Large Model Training
    in Heterogeneous Clusters", 2024 (arXiv:2403.16125). The cells of a job have from its request / 2^`spread`
    to its request x 2^`spread` GPUs. `waiting`: for how many waiting jobs, the oldest first, others change.
    """

    elastic = True

    def __init__(self, spread: int = 1, depth: int = 3, waiting: int = 16):
        self.spread = whole("spread", spread, 0, 20)
        self.depth = whole("depth", depth, 0, 100)
        self.waiting = whole("waiting", waiting, 0, 100_000)
        self._cells: dict[JobView, list[GpuCell]] = {}

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._cells.pop(event.job, None)
        proposal = state.proposal()
        if not state.pending and not proposal.free:
            return proposal
        settling = state.unsettled()
        plan = _Plan(self, state, settling)
        for job in islice(state.pending, self.waiting):
            if not plan.start(job):
                plan.make_room(job)
        for job in state.pending_by(_submission).walk(plan.may_fit):
            if job not in plan.cells:
                plan.start(job)
        plan.grow()
        proposal.run(plan.wanted(), let_settle=True)
        if settling and (state.pending or proposal.free):
            proposal.wake_at = min(settling.values())
        return proposal

    def cells(self, job: JobView, types: Collection[str]) -> list[GpuCell]:
        """The cells of a job, the types in the order of `types`, each type's in ascending order."""
        cells = self._cells.get(job)
        if cells is None:
            min_gpus, max_gpus = job.requested / 2**self.spread, job.requested * 2**self.spread
            cells = self._cells[job] = [
                cell_of(job, name, n)
                for name in types
                for n in job.sizes_on(name)
                if min_gpus <= n <= max_gpus
            ]
        return cells


def cell_of(job: JobView, gpu_type: str, gpus: int) -> GpuCell:
    """A cell of a job. Its throughput is in GPUs that work as those of the request on the best type."""
    throughput = job.requested * job.rate(gpus, gpu_type) / job.rate(job.requested)
    return GpuCell(gpu_type, gpus, throughput)


class _Plan:
    """The cells that jobs are to have, and the GPUs that are then free by type."""

    def __init__(self, policy: Arena, state: State, settling: Collection[JobView]):
        self._policy, self._settling = policy, settling
        self._mixed = state.cluster.mixed
        self.free = state.in_service_by_type()
        self.cells: dict[JobView, GpuCell] = {}
        for job in state.running:
            assert job.gpu_type is not None
            cell = cell_of(job, job.gpu_type, job.gpus)
            self.free[cell.gpu_type] -= cell.gpus
            self.cells[job] = cell
        self._changes: Changes[JobView] | None = None

    def wanted(self) -> list[tuple[JobView, int, str | None]]:
        """What `Proposal.run` is to do, in order of submission."""
        ordered = sorted(self.cells, key=_submission)
        cells = ((job, self.cells[job]) for job in ordered if job not in self._settling)
        return [(job, cell.gpus, cell.gpu_type if self._mixed else None) for job, cell in cells]

    def may_fit(self, gpus: float) -> bool:
        """False only if no cell of a job that requests `gpus` GPUs is free."""
        return gpus <= max(self.free.values()) * 2**self._policy.spread

    def put(self, job: JobView, cell: GpuCell) -> None:
        """Let a job have a cell from now on."""
        old_cell = self.cells.get(job)
        if old_cell is not None:
            self.free[old_cell.gpu_type] += old_cell.gpus
        self.free[cell.gpu_type] -= cell.gpus
        self.cells[job] = cell
        self._changes = None

    def start(self, job: JobView) -> bool:
        """Give a waiting job the free cell with the most throughput that has no more GPUs than it requests,
        of equal ones the smallest. Returns whether there is one.
        """
        free = [cell for cell in self._first_cells(job) if cell.gpus <= self.free[cell.gpu_type]]
        if not free:
            return False
        self.put(job, max(free, key=lambda cell: (cell.throughput, -cell.gpus)))
        return True

    def make_room(self, job: JobView) -> None:
        """Give a waiting job the cell that adds most to total throughput, with others changed for it, if that
        is more in the time that the job takes there than they lose while they change.
        """
        best: tuple[float, GpuCell, list[CellChange[JobView]]] | None = None
        for cell in self._first_cells(job):
            changes = self._room(cell)
            if changes is not None:
                gain = cell.throughput - sum(change.loss for change in changes)
                if gain > 0 and (best is None or gain > best[0]) and self._pays(job, cell, gain, changes):
                    best = gain, cell, changes
        if best is not None:
            for change in best[2]:
                self.put(change.job, change.cell)
            self.put(job, best[1])

    def _first_cells(self, job: JobView) -> list[GpuCell]:
        """The cells in which a job may begin: those up to its request, on a type that needs more the
        smallest.
        """
        cells = self._policy.cells(job, self.free)
        least_gpus: dict[str, int] = {}
        for cell in cells:
            least_gpus.setdefault(cell.gpu_type, cell.gpus)
        return [cell for cell in cells if cell.gpus <= max(job.requested, least_gpus[cell.gpu_type])]

    def _room(self, cell: GpuCell) -> list[CellChange[JobView]] | None:
        if self._changes is None:
            self._changes = Changes(
                (
                    (job, job.order, held, self._policy.cells(job, self.free))
                    for job, held in self.cells.items()
                    if job.running and job not in self._settling
                ),
                self._policy.depth,
            )
        return self._changes.room(cell.gpu_type, cell.gpus, self.free)

    def _pays(self, job: JobView, cell: GpuCell, gain: float, changes: list[CellChange[JobView]]) -> bool:
        lost = sum(
            self.cells[change.job].throughput
            * change.job.change_cost_s(change.cell.gpus, change.cell.gpu_type)
            for change in changes
        )
        return gain * job.work_left / job.rate(cell.gpus, cell.gpu_type) > lost

    def grow(self) -> None:
        """Scale jobs up and move them to better types, the largest gain of throughput per GPU taken first,
        while free GPUs allow it.
        """
        while any(self.free.values()):
            steps = [step for job in self.cells for step in self._steps(job)]
            if not steps:
                break
            _, _, cell, job = min(steps, key=lambda step: step[:2])
            self.put(job, cell)

    def _steps(self, job: JobView) -> Iterator[tuple[float, int, GpuCell, JobView]]:
        """(gain per GPU taken, negative; order; cell; job) of each larger or better cell that is free and in
        which a running job ends earlier, its change included.
        """
        if job in self._settling:
            return
        held = self.cells[job]
        for cell in self._policy.cells(job, self.free):
            added_gpus = cell.gpus - (held.gpus if cell.gpu_type == held.gpu_type else 0)
            if (
                0 < added_gpus <= self.free[cell.gpu_type]
                and cell.throughput > held.throughput
                and _end_s(job, cell) <= _end_s(job, held)
            ):
                yield (held.throughput - cell.throughput) / added_gpus, job.order, cell, job


def _end_s(job: JobView, cell: GpuCell) -> float:
    """Seconds until a job ends in a cell, its change included; infinite if its work is not known. A waiting
    job pays for a start in any cell, which is left out.
    """
    cost_s = job.change_cost_s(cell.gpus, cell.gpu_type) if job.running else 0.0
    return cost_s + (job.work_left / job.rate(cell.gpus, cell.gpu_type) if job.work_left < inf else inf)


def _submission(job: JobView) -> int:
    return job.order
