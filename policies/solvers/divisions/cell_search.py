"""Which jobs leave their cells so that another job has room: a search of few steps that counts GPUs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

__all__ = ["CellChange", "Changes", "GpuCell"]

J = TypeVar("J", bound=Hashable)


class GpuCell(NamedTuple):
    """A number of GPUs of one type, and the throughput of a job there."""

    gpu_type: str
    gpus: int
    throughput: float


class CellChange(NamedTuple, Generic[J]):
    """A job that leaves its cell for another. `freed`: GPUs that it frees; `order` breaks ties."""

    loss: float
    order: int
    cell: GpuCell
    freed: int
    job: J


_Kind = tuple[str, int, str, int]
"""(type of the freed GPUs, their number, type of the GPUs taken, their number)."""


class Changes(Generic[J]):
    """The changes that single jobs could make, in kinds: those that free as many GPUs of one type and take
    as many of another. Of a kind only the jobs that lose least matter, and no more of them than a search has
    steps.
    """

    def __init__(self, jobs: Iterable[tuple[J, int, GpuCell, Sequence[GpuCell]]], steps: int):
        """`jobs`: each with its order, the cell that it holds and all its cells."""
        kinds: dict[_Kind, list[CellChange[J]]] = {}
        for job, order, held, cells in jobs:
            for cell in cells:
                if cell.gpu_type != held.gpu_type:
                    freed, added_gpus = held.gpus, cell.gpus
                elif cell.gpus < held.gpus:
                    freed, added_gpus = held.gpus - cell.gpus, 0
                else:
                    continue
                change = CellChange(held.throughput - cell.throughput, order, cell, freed, job)
                kinds.setdefault((held.gpu_type, freed, cell.gpu_type, added_gpus), []).append(change)
        self._steps = steps
        self._kinds: dict[str, list[tuple[str, int, list[CellChange[J]]]]] = {}
        for (gpu_type, _, to, added_gpus), changes in kinds.items():
            cheapest = sorted(changes, key=lambda change: (change.loss, change.order))[:steps]
            self._kinds.setdefault(gpu_type, []).append((to, added_gpus, cheapest))

    def room(self, gpu_type: str, gpus: int, free: Mapping[str, int]) -> list[CellChange[J]] | None:
        """The changes that make room for `gpus` GPUs of a type, `free` being the free ones by type; None if
        there are none.

        Step by step the job changes that loses the least throughput per GPU of those still missing. Ties go
        by the order of jobs, then to the larger cell. What moves to another type takes free GPUs there.

        >>> held, half = GpuCell("a", 2, 2.0), GpuCell("a", 1, 1.5)
        >>> search = Changes([("x", 0, held, [half, held])], 3)
        >>> [(change.job, change.cell.gpus) for change in search.room("a", 1, {"a": 0})]
        [('x', 1)]
        >>> search.room("a", 2, {"a": 0}) is None
        True
        """
        missing, free_gpus = gpus - free[gpu_type], dict(free)
        changes_made: dict[J, CellChange[J]] = {}
        while missing > 0:
            if len(changes_made) == self._steps:
                return None
            able = [
                change
                for to, added_gpus, changes in self._kinds.get(gpu_type, ())
                if added_gpus <= free_gpus[to] or not added_gpus
                for change in changes
                if change.job not in changes_made
            ]
            if not able:
                return None
            best = min(able, key=lambda change: _cost(change, missing))
            changes_made[best.job] = best
            missing -= best.freed
            if best.cell.gpu_type != gpu_type:
                free_gpus[best.cell.gpu_type] -= best.cell.gpus
        return list(changes_made.values())


def _cost(change: CellChange[J], missing: int) -> tuple[float, int, int, str]:
    return change.loss / min(change.freed, missing), change.order, -change.cell.gpus, change.cell.gpu_type
