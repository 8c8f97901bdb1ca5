"""Where a job runs: free GPUs of nodes as bit masks, and select/cons_tres without a topology.

Sources: slurm.conf(5), `SelectType`, `NodeName Weight`, `LLN`; "Consumable Resources in Slurm": usable nodes
form sets of consecutive nodes of equal weight; a job gets nodes of the smallest set that suffices, or else of
the largest, and so on until it has enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .records import JobRecord, Placement, Shape, nodes_in

__all__ = ["FreeNodes", "place", "runs_of"]


class FreeNodes:
    """Free GPUs and cores by node. A set of nodes is an integer with a bit for each of them."""

    __slots__ = ("_with_room", "cpus", "gpus")

    def __init__(self, gpus: Iterable[int], cpus: Iterable[float] = ()):
        self.gpus = list(gpus)
        self.cpus = list(cpus)
        self._with_room = [0] * (max(self.gpus, default=0) + 1)
        for node, free in enumerate(self.gpus):
            for count in range(free + 1):
                self._with_room[count] |= 1 << node

    def with_room(self, gpus: int) -> int:
        """The nodes with at least so many free GPUs."""
        return self._with_room[gpus] if gpus < len(self._with_room) else 0

    def with_cores(self, nodes: int, cpus: float) -> int:
        """Those of these nodes with so many free cores."""
        return sum(1 << node for node in nodes_in(nodes) if self.cpus[node] >= cpus)

    def take(self, placement: Placement, cpus: float = 0.0) -> None:
        for node, count in placement:
            free = self.gpus[node]
            for level in range(free - count + 1, free + 1):
                self._with_room[level] &= ~(1 << node)
            self.gpus[node] = free - count
        if cpus and self.cpus:
            for node, _ in placement:
                self.cpus[node] -= cpus

    def give_back(self, placement: Placement, cpus: float = 0.0) -> None:
        gpus, with_room = self.gpus, self._with_room
        for node, count in placement:
            free, bit = gpus[node], 1 << node
            gpus[node] = free + count
            for level in range(free + 1, free + count + 1):
                with_room[level] |= bit
        if cpus and self.cpus:
            for node, _ in placement:
                self.cpus[node] += cpus

    def release(self, job: JobRecord) -> None:
        """Give back what a running job holds."""
        self.give_back(job.placement, job.cpus / len(job.placement))

    def copy(self) -> FreeNodes:
        twin = object.__new__(FreeNodes)
        twin.gpus = self.gpus.copy()
        twin.cpus = self.cpus.copy()
        twin._with_room = self._with_room.copy()
        return twin


def place(
    job: JobRecord, free: FreeNodes, usable: int, weights: Sequence[int] = (-1,), least_loaded: bool = False
) -> Placement | None:
    """The nodes of `usable` on which a job starts, with its GPUs there; None without enough room.

    `weights`: the nodes of each weight, the lowest weight first. `least_loaded`: the partition's LLN.
    """
    for shape in job.shapes:
        placement = _place_shape(job, shape, free, usable & shape.pool, weights, least_loaded)
        if placement is not None:
            return placement
    return None


def _place_shape(
    job: JobRecord, shape: Shape, free: FreeNodes, usable: int, weights: Sequence[int], least_loaded: bool
) -> Placement | None:
    with_room = usable & free.with_room(shape.gpus)
    if job.cpus and free.cpus:
        with_room = free.with_cores(with_room, job.cpus / shape.nodes)
    even = shape.last_gpus == shape.gpus
    count = shape.nodes if even else shape.nodes - 1
    if with_room.bit_count() < count:
        return None
    nodes = _least_loaded(with_room, count, free) if least_loaded else _in_runs(with_room, count, weights)
    placement = [(node, shape.gpus) for node in nodes_in(nodes)]
    if not even:
        with_room = usable & free.with_room(shape.last_gpus) & ~nodes
        if job.cpus and free.cpus:
            with_room = free.with_cores(with_room, job.cpus / shape.nodes)
        if not with_room:
            return None
        last_node = _in_runs(with_room, 1, weights).bit_length() - 1
        placement = sorted([*placement, (last_node, shape.last_gpus)])
    return tuple(placement)


def runs_of(nodes: int) -> list[tuple[int, int]]:
    """(first node, length) of each run of consecutive nodes.

    >>> runs_of(0b110111)
    [(0, 3), (4, 2)]
    """
    runs = []
    while nodes:
        low = nodes & -nodes
        carried = nodes + low
        start = low.bit_length() - 1
        runs.append((start, (carried & -carried).bit_length() - 1 - start))
        nodes &= carried
    return runs


def _in_runs(nodes: int, missing: int, weights: Sequence[int]) -> int:
    """`missing` of these nodes. Nodes of a lower weight come first, even if they do not suffice."""
    chosen_nodes = 0
    for weight_nodes in weights:
        runs = runs_of(nodes & weight_nodes)
        while runs and missing:
            run = _best_run(runs, missing)
            start, length = run
            length = min(length, missing)
            chosen_nodes |= ((1 << length) - 1) << start
            missing -= length
            runs.remove(run)
        if not missing:
            break
    return chosen_nodes


def _best_run(runs: Sequence[tuple[int, int]], missing: int) -> tuple[int, int]:
    """The smallest run with at least `missing` nodes, or else the largest; the first one among equals."""
    best_run = runs[0]
    for run in runs[1:]:
        length, best_length = run[1], best_run[1]
        if length >= missing:
            better = best_length < missing or length < best_length
        else:
            better = best_length < missing and length > best_length
        if better:
            best_run = run
    return best_run


def _least_loaded(nodes: int, missing: int, free: FreeNodes) -> int:
    by_load = sorted(nodes_in(nodes), key=lambda node: (-free.gpus[node], node))
    return sum(1 << node for node in by_load[:missing])
