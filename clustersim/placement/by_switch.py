"""The placer `topology`: few leaf switches."""

from __future__ import annotations

from collections.abc import Iterable

from clustersim.cluster import FreeNodesByLeaf, NodeSet, Placement, first_node, node_range, node_set, nodes_of

from .by_node import fullest, pack, pack_fits

__all__ = ["topology"]


def topology(
    capacity: FreeNodesByLeaf, gpus: int, prefer: Iterable[int] = (), unit: int = 1
) -> Placement | None:
    """Whole nodes, and one more for the rest, under the fewest leaves. Of the leaves with room, the one with
    the fewest empty nodes is taken (best fit). A job that needs several leaves stays within one spine block
    if that is possible, the one with the fewest empty nodes.
    """
    if not pack_fits(capacity, gpus):
        return None
    if len(capacity.leaves) == 1:
        return pack(capacity, gpus, prefer)
    whole, rest = divmod(gpus, capacity.gpus_per_node)
    preferred = node_set(prefer)
    if not whole:
        return ((_node_for(capacity, rest, preferred), rest),)
    on_one = _on_one_leaf(capacity, whole, rest, preferred)
    return on_one or _on_several(capacity, whole, rest, preferred)


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


def _on_one_leaf(capacity: FreeNodesByLeaf, whole: int, rest: int, preferred: NodeSet) -> Placement | None:
    empty = capacity.empty_by_leaf()
    roomy = [i for i, count in enumerate(empty) if count >= whole]
    for leaf in sorted(roomy, key=lambda i: (-_preferred_under(capacity, i, preferred), empty[i], i)):
        spots = _spots(capacity, [(leaf, whole)], preferred)
        if not rest:
            return tuple(sorted(spots))
        used = node_set(node for node, _ in spots)
        last = fullest(capacity, rest, preferred, candidates=_nodes_under(capacity, leaf) & ~used)
        if last is not None:
            return tuple(sorted((*spots, (last, rest))))
    return None


def _on_several(capacity: FreeNodesByLeaf, whole: int, rest: int, preferred: NodeSet) -> Placement:
    empty = capacity.empty_by_leaf()
    preferred_under = [_preferred_under(capacity, i, preferred) for i in range(len(empty))]
    candidates = _one_block(capacity, empty, whole) or range(len(empty))
    order = sorted(candidates, key=lambda i: (-preferred_under[i], -empty[i], i))
    chosen: list[tuple[int, int]] = []
    while whole:
        enough = [i for i in order if empty[i] >= whole]
        leaf = min(enough, key=lambda i: (-preferred_under[i], empty[i], i)) if enough else order[0]
        order.remove(leaf)
        chosen.append((leaf, min(empty[leaf], whole)))
        whole -= chosen[-1][1]
    spots = _spots(capacity, chosen, preferred)
    if rest:
        used = node_set(node for node, _ in spots)
        near = sum(_nodes_under(capacity, leaf) for leaf, _ in chosen) & ~used
        last = fullest(capacity, rest, preferred, candidates=near)
        if last is None:
            last = fullest(capacity, rest, preferred, candidates=~used)
        assert last is not None, "pack_fits said that there is room"
        spots.append((last, rest))
    return tuple(sorted(spots))


def _one_block(capacity: FreeNodesByLeaf, empty: list[int], whole: int) -> list[int]:
    """The leaves of the spine block with the fewest empty nodes that are enough; an empty list if no block
    has enough.
    """
    blocks: dict[int, list[int]] = {}
    for i, leaf in enumerate(capacity.leaves):
        blocks.setdefault(leaf.spine, []).append(i)
    enough = [
        (count, block)
        for block, leaves in blocks.items()
        if (count := sum(empty[i] for i in leaves)) >= whole
    ]
    return blocks[min(enough)[1]] if enough else []


def _spots(
    capacity: FreeNodesByLeaf, chosen: Iterable[tuple[int, int]], preferred: NodeSet
) -> list[tuple[int, int]]:
    """Empty nodes of each chosen (leaf, number of nodes), preferred nodes first, with their GPUs."""
    size = capacity.gpus_per_node
    spots: list[tuple[int, int]] = []
    for number, count in chosen:
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
