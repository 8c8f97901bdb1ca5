"""The placer `topology`: few leaf switches."""

from __future__ import annotations

from collections.abc import Iterable

from clustersim.cluster import FreeNodesByLeaf, NodeSet, Placement, first_node, node_range, node_set, nodes_of

from .by_node import fullest, pack, pack_fits, views_by_size

__all__ = ["topology"]


def topology(
    capacity: FreeNodesByLeaf, gpus: int, prefer: Iterable[int] = (), unit: int = 1
) -> Placement | None:
    """Whole nodes, and one more for the rest, under the fewest leaves. Of the leaves with room, the one with
    the fewest empty nodes is taken (best fit). A job that needs several leaves stays within one spine block
    if that is possible, the one with the fewest empty nodes.

    Where nodes differ in size, nodes of one size are tried after the other: the smallest that hold the job,
    and larger ones; then smaller ones from the largest on. A job that fits on no nodes of one size is packed.
    """
    if len(capacity.by_size) > 1:
        placements = (topology(nodes, gpus, prefer, unit) for nodes in views_by_size(capacity, gpus))
        placement = next((placement for placement in placements if placement is not None), None)
        return placement or pack(capacity, gpus, prefer)
    if not pack_fits(capacity, gpus):
        return None
    if len(capacity.leaves) == 1:
        return pack(capacity, gpus, prefer)
    whole_nodes, remainder = divmod(gpus, capacity.gpus_per_node)
    preferred = node_set(prefer)
    if not whole_nodes:
        return ((_node_for(capacity, remainder, preferred), remainder),)
    on_one = _on_one_leaf(capacity, whole_nodes, remainder, preferred)
    return on_one or _on_several(capacity, whole_nodes, remainder, preferred)


def _node_for(capacity: FreeNodesByLeaf, gpus: int, preferred: NodeSet) -> int:
    """The node for a job smaller than a node: best fit. An empty node is taken from the leaf that has the
    fewest of them.
    """
    size = capacity.gpus_per_node
    node = fullest(capacity, gpus, preferred)
    assert node is not None, "pack_fits said that there is room"
    if capacity.free_on(node) < size or preferred >> node & 1:
        return node
    empty = capacity.empty_by_leaf()
    leaf = min((count, i) for i, count in enumerate(empty) if count)[1]
    return first_node(capacity.nodes_with(size) & _nodes_under(capacity, leaf))


def _on_one_leaf(
    capacity: FreeNodesByLeaf, whole_nodes: int, remainder: int, preferred: NodeSet
) -> Placement | None:
    empty = capacity.empty_by_leaf()
    roomy = [i for i, count in enumerate(empty) if count >= whole_nodes]
    for leaf in sorted(roomy, key=lambda i: (-_preferred_under(capacity, i, preferred), empty[i], i)):
        spots = _spots(capacity, [(leaf, whole_nodes)], preferred)
        if not remainder:
            return tuple(sorted(spots))
        used_nodes = node_set(node for node, _ in spots)
        last_node = fullest(
            capacity, remainder, preferred, candidates=_nodes_under(capacity, leaf) & ~used_nodes
        )
        if last_node is not None:
            return tuple(sorted((*spots, (last_node, remainder))))
    return None


def _on_several(capacity: FreeNodesByLeaf, whole_nodes: int, remainder: int, preferred: NodeSet) -> Placement:
    empty = capacity.empty_by_leaf()
    preferred_under = [_preferred_under(capacity, i, preferred) for i in range(len(empty))]
    candidates = _one_block(capacity, empty, whole_nodes) or range(len(empty))
    order = sorted(candidates, key=lambda i: (-preferred_under[i], -empty[i], i))
    leaf_counts: list[tuple[int, int]] = []
    while whole_nodes:
        enough = [i for i in order if empty[i] >= whole_nodes]
        leaf = min(enough, key=lambda i: (-preferred_under[i], empty[i], i)) if enough else order[0]
        order.remove(leaf)
        leaf_counts.append((leaf, min(empty[leaf], whole_nodes)))
        whole_nodes -= leaf_counts[-1][1]
    spots = _spots(capacity, leaf_counts, preferred)
    if remainder:
        used_nodes = node_set(node for node, _ in spots)
        nodes_under_leaves = sum(_nodes_under(capacity, leaf) for leaf, _ in leaf_counts) & ~used_nodes
        last_node = fullest(capacity, remainder, preferred, candidates=nodes_under_leaves)
        if last_node is None:
            last_node = fullest(capacity, remainder, preferred, candidates=~used_nodes)
        assert last_node is not None, "pack_fits said that there is room"
        spots.append((last_node, remainder))
    return tuple(sorted(spots))


def _one_block(capacity: FreeNodesByLeaf, empty: list[int], whole_nodes: int) -> list[int]:
    """The leaves of the spine block with the fewest empty nodes that are enough; an empty list if no block
    has enough.
    """
    blocks: dict[int, list[int]] = {}
    for i, leaf in enumerate(capacity.leaves):
        blocks.setdefault(leaf.spine, []).append(i)
    enough = [
        (count, block)
        for block, leaves in blocks.items()
        if (count := sum(empty[i] for i in leaves)) >= whole_nodes
    ]
    return blocks[min(enough)[1]] if enough else []


def _spots(
    capacity: FreeNodesByLeaf, leaf_counts: Iterable[tuple[int, int]], preferred: NodeSet
) -> list[tuple[int, int]]:
    """Empty nodes of each chosen (leaf, number of nodes), preferred nodes first, with their GPUs."""
    size = capacity.gpus_per_node
    spots: list[tuple[int, int]] = []
    for number, count in leaf_counts:
        empty = capacity.nodes_with(size) & _nodes_under(capacity, number)
        nodes = (
            [*nodes_of(empty & preferred), *nodes_of(empty & ~preferred)] if preferred else nodes_of(empty)
        )
        spots += [(node, size) for _, node in zip(range(count), nodes, strict=False)]
    return spots


def _nodes_under(capacity: FreeNodesByLeaf, number: int) -> NodeSet:
    """The nodes of a leaf."""
    leaf = capacity.leaves[number]
    return node_range(leaf.first, leaf.nodes)


def _preferred_under(capacity: FreeNodesByLeaf, number: int, preferred: NodeSet) -> int:
    """How many of the preferred nodes of a leaf are empty."""
    if not preferred:
        return 0
    empty = capacity.nodes_with(capacity.gpus_per_node)
    return (preferred & empty & _nodes_under(capacity, number)).bit_count()
