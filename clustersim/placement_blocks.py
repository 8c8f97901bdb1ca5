"""Placers that look beyond the node: under few leaf switches (`topology`), in aligned blocks (`buddy`).

`buddy` is the allocation of ElasticFlow (Gu et al., ASPLOS 2023), after Knowlton's buddy system
(CACM 1965): the nodes of a job lie within one block of 2^k nodes that starts at a multiple of 2^k, the
smallest that holds them, taken from the smallest free block there is. Which GPUs of a node a job gets makes
no difference here, so within a node every block is as good as an aligned one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from .capacity import AnyRoom, Room, bits, mask_of
from .cluster import Placement
from .placement_nodes import fullest, pack, pack_fits

__all__ = ["buddy", "buddy_fits", "topology"]


def topology(capacity: Room, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    """Whole nodes, and one more for the rest, under the fewest leaves; of those that will do, the leaf with
    the fewest empty nodes (best fit). Where one leaf is not enough, within the spine block that is filled
    most by it, if one is enough.
    """
    if not pack_fits(capacity, gpus):
        return None
    if len(capacity.leaves) == 1:
        return pack(capacity, gpus, prefer)
    whole, rest = divmod(gpus, capacity.gpus_per_node)
    liked = mask_of(prefer)
    if not whole:
        return ((_node_for(capacity, rest, liked), rest),)
    return _on_one_leaf(capacity, whole, rest, liked) or _on_several(capacity, whole, rest, liked)


def _node_for(capacity: Room, gpus: int, liked: int) -> int:
    """For a job smaller than a node: best fit; a whole node comes from the leaf with the fewest."""
    size = capacity.gpus_per_node
    node = fullest(capacity, gpus, liked)
    assert node is not None, "pack_fits said that there is room"
    if capacity.free_on(node) < size or liked >> node & 1:
        return node
    empty = capacity.empty_by_leaf()
    leaf = min((count, i) for i, count in enumerate(empty) if count)[1]
    return next(bits(capacity.nodes_with(size) & _mask(capacity, leaf)))


def _on_one_leaf(capacity: Room, whole: int, rest: int, liked: int) -> Placement | None:
    empty = capacity.empty_by_leaf()
    roomy = [i for i, count in enumerate(empty) if count >= whole]
    for leaf in sorted(roomy, key=lambda i: (-_liked_on(capacity, i, liked), empty[i], i)):
        spots = _spots(capacity, [(leaf, whole)], liked)
        if not rest:
            return tuple(sorted(spots))
        last = fullest(capacity, rest, liked, among=_mask(capacity, leaf) & ~mask_of(n for n, _ in spots))
        if last is not None:
            return tuple(sorted((*spots, (last, rest))))
    return None


def _on_several(capacity: Room, whole: int, rest: int, liked: int) -> Placement:
    empty = capacity.empty_by_leaf()
    candidates = _one_block(capacity, empty, whole) or range(len(empty))
    order = sorted(candidates, key=lambda i: (-_liked_on(capacity, i, liked), -empty[i], i))
    chosen: list[tuple[int, int]] = []
    while whole:
        enough = [i for i in order if empty[i] >= whole]
        leaf = (
            min(enough, key=lambda i: (-_liked_on(capacity, i, liked), empty[i], i)) if enough else order[0]
        )
        order.remove(leaf)
        chosen.append((leaf, min(empty[leaf], whole)))
        whole -= chosen[-1][1]
    spots = _spots(capacity, chosen, liked)
    if rest:
        used = mask_of(node for node, _ in spots)
        near = sum(_mask(capacity, leaf) for leaf, _ in chosen) & ~used
        last = fullest(capacity, rest, liked, among=near)
        if last is None:
            last = fullest(capacity, rest, liked, among=~used)
        assert last is not None, "pack_fits said that there is room"
        spots.append((last, rest))
    return tuple(sorted(spots))


def _one_block(capacity: Room, empty: list[int], whole: int) -> list[int]:
    """The leaves of the spine block with the fewest empty nodes that are enough; none if there is no such
    block.
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


def _spots(capacity: Room, chosen: Iterable[tuple[int, int]], liked: int) -> list[tuple[int, int]]:
    """So many whole nodes of each chosen leaf, preferred ones first."""
    size = capacity.gpus_per_node
    spots: list[tuple[int, int]] = []
    for number, count in chosen:
        leaf = capacity.leaves[number]
        empty = capacity.nodes_with(size) >> leaf.first & ((1 << leaf.nodes) - 1)
        wanted = liked >> leaf.first
        nodes = [*bits(empty & wanted), *bits(empty & ~wanted)] if liked else bits(empty)
        spots += [(leaf.first + node, size) for _, node in zip(range(count), nodes, strict=False)]
    return spots


def _mask(capacity: Room, number: int) -> int:
    leaf = capacity.leaves[number]
    return ((1 << leaf.nodes) - 1) << leaf.first


def _liked_on(capacity: Room, number: int, liked: int) -> int:
    """How many of the preferred nodes on a leaf are empty."""
    if not liked:
        return 0
    return (liked & capacity.nodes_with(capacity.gpus_per_node) & _mask(capacity, number)).bit_count()


def buddy_fits(capacity: AnyRoom, gpus: int) -> bool:
    if gpus < capacity.gpus_per_node:
        return pack_fits(capacity, gpus)
    return gpus <= capacity.free and _block(capacity, -(-gpus // capacity.gpus_per_node), 0) is not None


def buddy(capacity: Room, gpus: int, prefer: Iterable[int] = (), unit: int = 1) -> Placement | None:
    """Nodes within one aligned block; None if there is none, however many nodes are free in all."""
    size = capacity.gpus_per_node
    if gpus < size:
        return pack(capacity, gpus, prefer)
    count = -(-gpus // size)
    found = _block(capacity, count, mask_of(prefer)) if gpus <= capacity.free else None
    if found is None:
        return None
    nodes = [node for _, node in zip(range(count), bits(found), strict=False)]
    return tuple((node, min(size, gpus - i * size)) for i, node in enumerate(nodes))


def _block(capacity: AnyRoom, count: int, liked: int) -> int | None:
    """The empty nodes, at least `count`, of an aligned block of the least power of two that could hold
    `count` nodes, where the fewest are left over.
    """
    first, nodes = capacity.span
    empty = capacity.nodes_with(capacity.gpus_per_node) >> first
    order = (count - 1).bit_length()
    width = 1 << order
    window = (1 << width) - 1
    if count == width:
        start = _whole_block(empty, nodes, order, liked >> first)
        return None if start is None else window << start << first
    best: tuple[int, int, int] | None = None
    for start in range(0, nodes, width):
        here = empty >> start & window
        left_over = here.bit_count() - count
        if left_over >= 0:
            unliked = not liked >> first >> start & here
            best = min(best, (unliked, left_over, start)) if best else (unliked, left_over, start)
    if best is None:
        return None
    return (empty >> best[2] & window) << best[2] << first


def _whole_block(empty: int, nodes: int, order: int, liked: int) -> int | None:
    """Where an aligned block of 2^order empty nodes begins: one that touches preferred nodes, else one
    within the smallest free block.
    """
    blocks, level = empty, 0
    while level < order:
        blocks = blocks & blocks >> (1 << level) & _starts(nodes, level + 1)
        level += 1
    touching = mask_of(node >> order << order for node in bits(liked)) & blocks if liked else 0
    if touching:
        return next(bits(touching))
    while blocks:
        larger = blocks & blocks >> (1 << level) & _starts(nodes, level + 1)
        alone = blocks & ~(larger | larger << (1 << level))
        if alone:
            return next(bits(alone))
        blocks, level = larger, level + 1
    return None


@cache
def _starts(nodes: int, order: int) -> int:
    """The multiples of 2^order below `nodes`, as a set of bits."""
    return mask_of(range(0, nodes, 1 << order))
