"""How the GPUs of a job are to lie on nodes, where the job asks for a number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from .capacity import FreeNodes
from .cluster import Placement
from .node_set import NodeSet

__all__ = ["NodeShape"]


class NodeShape(NamedTuple):
    """`nodes` nodes with `least` GPUs each, of which the first `larger` have one more."""

    nodes: int
    least: int
    larger: int = 0

    @classmethod
    def of(cls, gpus: int | None, nodes: int | None, gpus_per_node: int | None) -> Self | None:
        """The shape of a job of `gpus` GPUs; None if it does not ask for one. Where the GPUs do not divide by
        the nodes, some nodes have one more.
        """
        if gpus is None or nodes is None:
            return None
        if gpus_per_node is not None:
            return cls(nodes, gpus_per_node)
        return cls(nodes, *divmod(gpus, nodes))

    @property
    def gpus(self) -> int:
        """All GPUs of the shape."""
        return self.nodes * self.least + self.larger

    @property
    def counts(self) -> list[int]:
        """The GPUs on each node, descending."""
        return [self.least + 1] * self.larger + [self.least] * (self.nodes - self.larger)

    def holds(self, placement: Placement) -> bool:
        """Whether GPUs lie as in this shape. Other numbers of GPUs, which only some policies give, have no
        shape; where the GPUs do not divide by the nodes, only the number of nodes counts.
        """
        counts = sorted((count for _, count in placement), reverse=True)
        if sum(counts) != self.gpus:
            return True
        return len(counts) == self.nodes if self.larger else counts == self.counts

    def fits(self, free: FreeNodes) -> bool:
        """Whether so many nodes have so many free GPUs."""
        enough = larger = 0
        for count in range(self.least, free.gpus_per_node + 1):
            nodes = free.count_with(count)
            enough += nodes
            larger += nodes if count > self.least else 0
        return enough >= self.nodes and larger >= self.larger

    def fits_nodes(self, by_size: Sequence[tuple[int, NodeSet]]) -> bool:
        """The same of nodes that run nothing, by their sizes."""
        counts = [(size, nodes.bit_count()) for size, nodes in by_size]
        enough = sum(number for size, number in counts if size >= self.least)
        larger = sum(number for size, number in counts if size > self.least)
        return enough >= self.nodes and larger >= self.larger

    def __str__(self) -> str:
        return f"{self.nodes} nodes with {self.least} GPUs each" + (
            f", {self.larger} with one more" if self.larger else ""
        )
