"""Places that a policy chooses itself, instead of the placer of the run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from clustersim.scheduler import JobView

__all__ = ["Places", "on_fewest_nodes", "places_for"]

Places = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs, by node."""


def on_fewest_nodes(free: Sequence[tuple[int, int]], gpus: int, sizes: Sequence[int]) -> Places | None:
    """GPUs on the fewest nodes that can hold so many: of (node, free GPUs) pairs the first with room. None
    without room. `sizes`: the GPUs of each node; empty nodes of the largest size are taken first.

    >>> on_fewest_nodes([(3, 2), (0, 4), (1, 4)], 6, [4, 4, 4, 4])
    ((0, 4), (3, 2))
    """
    spots: dict[int, int] = {}
    remaining = gpus
    for size in sorted({sizes[node] for node, _ in free}, reverse=True):
        empty = (node for node, n in free if n == size == sizes[node])
        spots |= dict.fromkeys(islice(empty, remaining // size), size)
        remaining = gpus - sum(spots.values())
        last_node = next((node for node, n in free if n >= remaining and node not in spots), None)
        if remaining and last_node is not None:
            spots[last_node] = remaining
            remaining = 0
        if not remaining:
            return tuple(sorted(spots.items()))
    return None


def places_for(
    job: JobView, free: Sequence[tuple[int, int]], gpus: int, sizes: Sequence[int]
) -> Places | None:
    """GPUs for a job, as by `on_fewest_nodes`, but on the nodes that it asks for: of (node, free GPUs) pairs
    the first with room for each.
    """
    counts = job.node_counts
    if sum(counts) != gpus:
        return on_fewest_nodes(free, gpus, sizes)
    spots: dict[int, int] = {}
    for count in counts:
        node = next((node for node, n in free if n >= count and node not in spots), None)
        if node is None:
            return None
        spots[node] = count
    return tuple(sorted(spots.items()))
