"""The placer `buddy`: aligned blocks of nodes.

This is the allocation of ElasticFlow (Gu et al., ASPLOS 2023), after Knowlton's buddy system (CACM 1965). The
nodes of a job lie within one block of 2^k nodes that starts at a multiple of 2^k: the smallest block that
holds them, taken from the smallest free block. Within a node every block is as good as an aligned one,
because no rule depends on which GPUs of a node a job gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from clustersim.cluster import (
    FreeNodes,
    FreeNodesByLeaf,
    NodeSet,
    NodesOfSize,
    Placement,
    first_node,
    node_range,
    node_set,
    nodes_of,
)

from .by_node import pack, pack_fits, views_by_size

__all__ = ["buddy", "buddy_fits"]


def buddy_fits(capacity: FreeNodes, gpus: int) -> bool:
    if len(capacity.by_size) > 1:
        if _has_no_block(capacity, gpus):
            return pack_fits(capacity, gpus)
        return any(buddy_fits(nodes, gpus) for nodes in views_by_size(capacity, gpus))
    if gpus < capacity.gpus_per_node:
        return pack_fits(capacity, gpus)
    if gpus > capacity.free:
        return False
    empty = capacity.nodes_with(capacity.gpus_per_node)
    return _block(empty, capacity.span, -(-gpus // capacity.gpus_per_node), 0) is not None


def buddy(
    capacity: FreeNodesByLeaf, gpus: int, prefer: Iterable[int] = (), unit: int = 1
) -> Placement | None:
    """Nodes within one aligned block. None if no block is free, even if enough nodes are free in all.

    Where nodes differ in size, the block has nodes of one size, tried in the order of `topology`, and is
    aligned to the first of these. A job for which there is no such block is packed.
    """
    if len(capacity.by_size) > 1:
        if _has_no_block(capacity, gpus):
            return pack(capacity, gpus, prefer)
        placements = (buddy(nodes, gpus, prefer, unit) for nodes in views_by_size(capacity, gpus))
        return next((placement for placement in placements if placement is not None), None)
    size = capacity.gpus_per_node
    if gpus < size:
        return pack(capacity, gpus, prefer)
    count = -(-gpus // size)
    block_nodes = None
    if gpus <= capacity.free:
        block_nodes = _block(capacity.nodes_with(size), capacity.span, count, node_set(prefer))
    if block_nodes is None:
        return None
    nodes = [node for _, node in zip(range(count), nodes_of(block_nodes), strict=False)]
    return tuple((node, min(size, gpus - i * size)) for i, node in enumerate(nodes))


def _has_no_block(capacity: FreeNodes, gpus: int) -> bool:
    """Whether no block could hold the job even if all nodes were empty, where nodes differ in size."""
    for size, nodes in capacity.by_size:
        span = NodesOfSize(capacity, size, nodes).span
        if gpus <= size or _block(nodes, span, -(-gpus // size), 0) is not None:
            return False
    return True


def _block(empty: NodeSet, span: tuple[int, int], count: int, preferred: NodeSet) -> NodeSet | None:
    """The nodes of `empty`, at least `count`, of one aligned block of those of `span`. The block has the
    least power of two that can hold `count` nodes; of all such blocks it is the one with the fewest empty
    nodes left over.
    """
    first_index, nodes = span
    empty >>= first_index
    order = (count - 1).bit_length()
    width = 1 << order
    if count == width:
        start = _whole_block(empty, nodes, order, preferred >> first_index)
        return None if start is None else node_range(first_index + start, width)
    best: tuple[int, int, int] | None = None
    window = node_range(0, width)
    for start in range(0, nodes, width):
        empty_here = empty >> start & window
        left_over = empty_here.bit_count() - count
        if left_over >= 0:
            touches_none = not preferred >> first_index >> start & empty_here
            candidate = (touches_none, left_over, start)
            best = candidate if best is None else min(best, candidate)
    if best is None:
        return None
    return (empty >> best[2] & window) << best[2] << first_index


def _whole_block(empty: NodeSet, nodes: int, order: int, preferred: NodeSet) -> int | None:
    """The first node of an aligned block of 2^order empty nodes: one that touches preferred nodes, else one
    within the smallest free block.
    """
    blocks, level = empty, 0  # the first nodes of the free blocks of 2^level nodes
    while level < order:
        blocks = blocks & blocks >> (1 << level) & _multiples(nodes, level + 1)
        level += 1
    touching = node_set(node >> order << order for node in nodes_of(preferred)) & blocks if preferred else 0
    if touching:
        return first_node(touching)
    while blocks:
        larger = blocks & blocks >> (1 << level) & _multiples(nodes, level + 1)
        alone = blocks & ~(larger | larger << (1 << level))
        if alone:
            return first_node(alone)
        blocks, level = larger, level + 1
    return None


@cache
def _multiples(nodes: int, order: int) -> NodeSet:
    """The multiples of 2^order below `nodes`."""
    return node_set(range(0, nodes, 1 << order))
