"""Places that a policy chooses itself, instead of the placer of the run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

__all__ = ["Places", "on_fewest_nodes"]

Places = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs, by node."""


def on_fewest_nodes(free: Sequence[tuple[int, int]], gpus: int, size: int) -> Places | None:
    """GPUs on the fewest nodes of `size` GPUs that can hold so many: of (node, free GPUs) pairs the first
    with room. None without room.

    >>> on_fewest_nodes([(3, 2), (0, 4), (1, 4)], 6, 4)
    ((0, 4), (3, 2))
    """
    full_nodes, remainder = divmod(gpus, size)
    nodes = [node for node, _ in islice((spot for spot in free if spot[1] == size), full_nodes)]
    if len(nodes) < full_nodes:
        return None
    spots = [(node, size) for node in nodes]
    if remainder:
        last_node = next((node for node, n in free if n >= remainder and node not in nodes), None)
        if last_node is None:
            return None
        spots.append((last_node, remainder))
    return tuple(sorted(spots))
