"""Cells of GPUs, in one another: powers of two of the GPUs of a node, the node, groups of nodes.

A cell is (level, number of its first GPU): the GPUs of a cluster are numbered by node. Each cell of a level
consists of equally many whole cells of the level below.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from operator import itemgetter

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
    """The free cells among GPUs that consist of whole cells of these `levels`, the largest first, at first
    all of them: Knowlton's buddy system (CACM 1965). Free cells that make up a larger cell are that cell.
    """

    def __init__(self, sizes: Sequence[int], levels: Sequence[int]):
        self.sizes = sizes
        self.roots: list[Cell] = []
        """The cells that are part of no larger one."""
        self.free: list[list[int]] = [[] for _ in sizes]
        """The first GPUs of the free cells, ascending, by level."""
        first_node = 0
        for level in sorted(levels, reverse=True):
            self.roots.append((level, first_node))
            self.free[level].append(first_node)
            first_node += sizes[level]

    def root(self, at: int) -> Cell:
        """The root that contains a GPU."""
        return self.roots[bisect_right(self.roots, at, key=itemgetter(1)) - 1]

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
        root = self.root(at)
        while level < root[0]:
            parts = self._parts(level, at)
            siblings = [part for part in parts if part != at]
            if not all(self._is_free(level, part) for part in siblings):
                break
            for part in siblings:
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
    """The cells of a tenant: it takes them as if it were alone. A virtual cell of which something is in use
    is bound to a whole cell of the cluster, and the virtual cells that make it up to parts of that.

    `levels`: of the cells. `cluster`: the cells of the cluster that no virtual cell is bound to; all virtual
    clusters share it.
    """

    def __init__(self, levels: Sequence[int], cluster: FreeCells):
        self._cluster, self._own, self._sizes = cluster, FreeCells(cluster.sizes, levels), cluster.sizes
        self._bound: dict[Cell, Cell] = {}  # by virtual cell of which something is in use

    def lowest(self, level: int) -> int | None:
        """The lowest level from `level` on at which the tenant has a free cell, bound or not."""
        return self._own.lowest(level)

    def choices(self, level: int) -> Iterator[tuple[Cell, list[Cell]]]:
        """A free virtual cell, the smallest that can hold one of that level, with the cells of the cluster
        that it can be bound to: the smallest of these. Then the next larger ones, and other virtual cells.
        """
        for k in range(level, len(self._sizes)):
            for at in list(self._own.free[k]):
                virtual = k, at
                if virtual != self._own.root(at):
                    yield virtual, [(k, part) for part in self._parts_left(virtual)]
                    continue
                for above in range(k, len(self._sizes)):
                    size, step = self._sizes[above], self._sizes[k]
                    free = self._cluster.free[above]
                    yield virtual, [(k, part) for p in free for part in range(p, p + size, step)]

    def take(self, cell: Cell, virtual: Cell) -> Cell:
        """Use `cell` of the cluster for the first part of `virtual`, one of `choices`. Returns that part."""
        (level, at), (k, start) = cell, virtual
        if virtual == self._own.root(start):
            self._cluster.take(self._around(k, at))
        self._own.take((level, start))
        for between in range(level, k + 1):
            self._bound[between, start] = self._around(between, at)
        return level, start

    def take_where(self, cells: Sequence[Cell]) -> Cell | None:
        """Use the first of these cells of the cluster that the smallest virtual cells can be bound to.
        Returns the virtual cell; None if there is none.
        """
        k = self.lowest(cells[0][0])
        for cell in cells if k is not None else ():
            assert k is not None
            parent, at_lowest = self._around(k, cell[1]), self._cluster.lowest(k)
            unbound = at_lowest is not None and self._cluster.around(parent) == at_lowest
            for at in self._own.free[k]:
                is_root = (k, at) == self._own.root(at)
                if unbound if is_root else parent[1] in self._parts_left((k, at)):
                    return self.take(cell, (k, at))
        return None

    def release(self, virtual: Cell) -> None:
        """Give back a virtual cell. A cell of which all is free is no longer bound."""
        level, at = virtual
        self._own.release(virtual)
        root = self._own.root(at)
        for k in range(level, root[0] + 1):
            cell = self._around(k, at)
            if self._own.around(cell) is None:
                return
            bound = self._bound.pop(cell)
        self._cluster.release(bound)

    def bound(self, virtual: Cell) -> Cell:
        """The cell of the cluster that a virtual cell in use is bound to."""
        return self._bound[virtual]

    def _parts_left(self, virtual: Cell) -> list[int]:
        """The parts, of the cell that the next larger virtual cell is bound to, that none of its parts is
        bound to.
        """
        k, at = virtual
        size, step = self._sizes[k + 1], self._sizes[k]
        parent = at - at % size
        first = self._bound[k + 1, parent][1]
        used = [self._bound.get((k, part)) for part in range(parent, parent + size, step)]
        return [part for part in range(first, first + size, step) if (k, part) not in used]

    def _around(self, level: int, at: int) -> Cell:
        return level, at - at % self._sizes[level]
