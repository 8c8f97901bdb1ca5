"""Cells of GPUs, in one another: powers of two of the GPUs of a node, the node, groups of nodes.

A cell is (level, number of its first GPU): the GPUs of a cluster are numbered by node. Each cell of a level
consists of equally many whole cells of the level below.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from clustersim.scheduler import Cluster

__all__ = ["Cell", "FreeCells", "VirtualCluster", "cell_sizes", "split_into_cells"]

Cell = tuple[int, int]
"""(level, number of the first GPU)."""


def cell_sizes(cluster: Cluster) -> tuple[int, ...]:
    """The GPUs of a cell by level: powers of two that divide a node, the node, and powers of two of nodes;
    where all leaf switches but the last have equally many nodes, the powers of two that divide a leaf, the
    leaf, and powers of two of leaves.

    >>> cell_sizes(Cluster(6, 4))
    (1, 2, 4, 8, 16)
    >>> cell_sizes(Cluster(5, 6))
    (1, 2, 6, 12, 24)
    """
    node, leaves = cluster.gpus_per_node, cluster.leaves
    leaf = leaves[0].nodes
    sizes = _powers_dividing(node)
    regular = all(part.nodes == leaf for part in leaves[:-1]) and leaves[-1].nodes <= leaf
    if regular and len(leaves) > 1:
        sizes += [node * nodes for nodes in _powers_dividing(leaf)[1:]]
    while 2 * sizes[-1] <= cluster.gpus:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


def _powers_dividing(number: int) -> list[int]:
    """The powers of two that divide a number, then the number."""
    powers = [1 << k for k in range(number.bit_length()) if number % (1 << k) == 0]
    return powers if powers[-1] == number else [*powers, number]


def split_into_cells(gpus: int, sizes: Sequence[int]) -> list[int]:
    """The levels of the fewest cells of so many GPUs, the largest first.

    >>> split_into_cells(22, (1, 2, 4, 8))
    [3, 3, 2, 1]
    """
    levels = []
    for level in reversed(range(len(sizes))):
        count, gpus = divmod(gpus, sizes[level])
        levels += [level] * count
    return levels


class FreeCells:
    """The free cells among the GPUs from `first` to `end` - 1, at first all of them: Knowlton's buddy system
    (CACM 1965). Free cells that make up a larger cell are that cell.
    """

    def __init__(self, sizes: Sequence[int], first: int, end: int):
        self.sizes, self.first, self.end = sizes, first, end
        self.free: list[list[int]] = [[] for _ in sizes]
        """The first GPUs of the free cells, ascending, by level."""
        at = first
        for level in split_into_cells(end - first, sizes):
            self.free[level].append(at)
            at += sizes[level]

    def lowest(self, level: int) -> int | None:
        """The lowest level from `level` on that has free cells."""
        return next((k for k in range(level, len(self.free)) if self.free[k]), None)

    def around(self, cell: Cell) -> int | None:
        """The level of the free cell that contains `cell`, None if that is not free."""
        level, at = cell
        return next(
            (k for k in range(level, len(self.free)) if self._is_free(k, at - at % self.sizes[k])), None
        )

    def take(self, cell: Cell) -> None:
        """Take a cell, and halve the free cell around it as often as needed. ValueError if it is not free."""
        level, at = cell
        above = self.around(cell)
        if above is None:
            raise ValueError(f"the cell of {self.sizes[level]} GPUs from GPU {at} on is not free")
        self._remove(above, at - at % self.sizes[above])
        for k in reversed(range(level, above)):
            for part in self._parts(k, at):
                if part != at - at % self.sizes[k]:
                    insort(self.free[k], part)

    def release(self, cell: Cell) -> None:
        """Give a cell back. Free cells that make up a larger one merge."""
        level, at = cell
        while level + 1 < len(self.sizes):
            parts = self._parts(level, at)
            inside = self.first <= parts[0] and parts[-1] + self.sizes[level] <= self.end
            others = [part for part in parts if part != at]
            if not inside or not all(self._is_free(level, part) for part in others):
                break
            for part in others:
                self._remove(level, part)
            level, at = level + 1, parts[0]
        insort(self.free[level], at)

    def _parts(self, level: int, at: int) -> range:
        """The cells of a level that make up the next larger cell around a GPU."""
        size = self.sizes[level + 1]
        first = at - at % size
        return range(first, first + size, self.sizes[level])

    def _is_free(self, level: int, at: int) -> bool:
        cells = self.free[level]
        place = bisect_left(cells, at)
        return place < len(cells) and cells[place] == at

    def _remove(self, level: int, at: int) -> None:
        cells = self.free[level]
        del cells[bisect_left(cells, at)]


class VirtualCluster:
    """The cells of a tenant. A cell of which something is in use is bound to a cell of the cluster, whole.

    `levels`: of the cells, in any order. `cluster`: the cells of the cluster that no virtual cell is bound
    to; all virtual clusters share it.
    """

    def __init__(self, levels: Sequence[int], cluster: FreeCells):
        self._cluster, self._sizes = cluster, cluster.sizes
        self._unbound = [levels.count(level) for level in range(len(cluster.sizes))]
        self._bound: dict[Cell, FreeCells] = {}

    def lowest(self, level: int) -> int | None:
        """The lowest level from `level` on at which the tenant has a free cell, bound or not."""
        found = [free.lowest(level) for free in self._bound.values()]
        found += [next((k for k in range(level, len(self._sizes)) if self._unbound[k]), None)]
        return min((k for k in found if k is not None), default=None)

    def choices(self, level: int) -> Iterator[list[Cell]]:
        """Cells of the cluster that can be, or hold, a cell of that level: the smallest free cells of the
        tenant first, and the smallest of the cluster to bind these to. Each list is one choice of sizes.
        """
        levels = range(len(self._sizes))
        for k in levels[level:]:
            for above in levels[k:] if self._unbound[k] else levels[k : k + 1]:
                cells = [(k, at) for free in self._bound.values() for at in free.free[k] if above == k]
                if self._unbound[k]:
                    size, step = self._sizes[above], self._sizes[k]
                    cells += [
                        (k, part) for at in self._cluster.free[above] for part in range(at, at + size, step)
                    ]
                if cells:
                    yield cells

    def take(self, cell: Cell, within: Cell) -> Cell:
        """Use `cell`, inside `within`, one of `choices`. Returns the bound cell that it is part of."""
        owner = next((bound for bound in self._bound if self._contains(bound, within)), None)
        if owner is None:
            owner = within
            self._cluster.take(within)
            self._unbound[within[0]] -= 1
            self._bound[within] = FreeCells(self._sizes, within[1], within[1] + self._sizes[within[0]])
        self._bound[owner].take(cell)
        return owner

    def take_first(self, cells: Sequence[Cell]) -> tuple[Cell, Cell] | None:
        """Use the first of these cells that the first of `choices` would allow. Returns it with its bound
        cell; None if there is none.
        """
        wanted = self.lowest(cells[0][0])
        for cell in cells:
            for owner, free in self._bound.items():
                if self._contains(owner, cell) and free.around(cell) == wanted:
                    free.take(cell)
                    return cell, owner
            if wanted is not None and self._unbound[wanted]:
                around = self._cluster.around(cell)
                if around is not None and around == self._cluster.lowest(wanted):
                    size = self._sizes[wanted]
                    return cell, self.take(cell, (wanted, cell[1] - cell[1] % size))
        return None

    def release(self, cell: Cell, owner: Cell) -> None:
        """Give back a cell of the bound cell `owner`, which is no longer bound once all of it is free."""
        free = self._bound[owner]
        free.release(cell)
        if free.free[owner[0]]:
            del self._bound[owner]
            self._unbound[owner[0]] += 1
            self._cluster.release(owner)

    def _contains(self, owner: Cell, cell: Cell) -> bool:
        return owner[1] <= cell[1] < owner[1] + self._sizes[owner[0]]
