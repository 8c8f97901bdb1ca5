"""Moving jobs smaller than a node together, so that whole nodes become free.

Jobs are packed by *blocks*: the smallest divisor of a node, each dividing the next larger one, that holds
the job. First fit by falling block then never fails while the blocks add up to no more than the nodes there
are, whatever the order within a size and whichever node with room a job chooses; plain first fit decreasing
by GPUs has no such guarantee for counts such as 3 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from .cluster import Placement
from .node_set import bits

if TYPE_CHECKING:
    from .job_view import JobView
    from .proposal import Proposal

__all__ = ["block", "compact"]


@lru_cache(maxsize=4096)
def block(gpus: int, node: int) -> int:
    """The GPUs to set aside for `gpus` on nodes of `node` GPUs: whole nodes, or the next divisor of a node.

    Each block size divides the next larger one, so blocks whose sum does not exceed the cluster can always be
    placed, each within its node; counts such as 5, 5 and 6 on two nodes of 8 cannot.

    >>> [block(n, 8) for n in (1, 2, 3, 4, 5, 8, 12)]
    [1, 2, 4, 4, 8, 8, 16]
    """
    if gpus >= node:
        return -(-gpus // node) * node
    size = node
    while size > 1:
        factor = next(k for k in range(2, size + 1) if size % k == 0)
        if size // factor < gpus:
            return size
        size //= factor
    return size


def compact(draft: Proposal, wanted: Mapping[JobView, int]) -> None:
    """See `Proposal.compact`, which has checked the counts of `wanted`."""
    node = draft._state.cluster.gpus_per_node
    for job, gpus in wanted.items():
        if 0 < draft.gpus(job) < node <= gpus:
            draft.stop(job)  # leaves its node, whatever becomes of the others there
    places = _together(draft, wanted)
    if places is None:  # room is short: what is wanted comes first, whoever else loses GPUs
        _make_room(draft, wanted)
        places = _wanted_first(draft, wanted)
    for job in places:
        if draft.placement(job):
            draft.stop(job)
    for job, place in places.items():
        if place:
            draft._own().take(place)
            draft._note(job, place)
    for job, gpus in wanted.items():
        if gpus >= node and draft.gpus(job) != gpus:
            _ = draft.resize(job, gpus) if draft.placement(job) else draft.start(job, gpus)


Places = dict["JobView", Placement]
"""Where jobs go that do not stay where they are; an empty place for a job that loses its GPUs."""


def _together(draft: Proposal, wanted: Mapping[JobView, int]) -> Places | None:
    """Everybody's places, each job in a block of its own; None if not all of them find one."""
    counts = {job: draft.gpus(job) for job in draft.running()} | dict(wanted)
    nodes = _Nodes(draft, wanted, counts)
    if nodes.short:
        return None
    places: Places = {}
    node = draft._state.cluster.gpus_per_node
    for job in _by_block(counts, wanted, node):
        if not nodes.assign(job, counts[job], block(counts[job], node), places):
            return None
    return places


def _wanted_first(draft: Proposal, wanted: Mapping[JobView, int]) -> Places:
    """Places in which what is wanted has its blocks, and others what is left, counted in GPUs."""
    counts = {job: draft.gpus(job) for job in draft.running()} | dict(wanted)
    nodes, node = _Nodes(draft, wanted, counts), draft._state.cluster.gpus_per_node
    places: Places = {}
    ranked = _by_block(counts, wanted, node)
    for job in (job for job in ranked if job in wanted):
        if not nodes.assign(job, counts[job], block(counts[job], node), places):
            places[job] = ()
    nodes.free_rest_of_blocks()
    for job in (job for job in ranked if job not in wanted):
        if not nodes.assign(job, counts[job], counts[job], places):
            places[job] = ()
    return {job: place for job, place in places.items() if place or draft.placement(job)}


def _make_room(draft: Proposal, wanted: Mapping[JobView, int]) -> None:
    """Stop the last submitted of the jobs of a node or more that are not wanted, until there are enough
    nodes for the blocks of those that are.
    """
    node = draft._state.cluster.gpus_per_node
    needed = sum(block(gpus, node) for gpus in wanted.values() if gpus < node)
    nodes = -(-needed // node) + sum(-(-gpus // node) for gpus in wanted.values() if gpus >= node)
    others = [job for job in draft.running() if draft.gpus(job) >= node and job not in wanted]
    there = draft._state.cluster.nodes - sum(len(draft.placement(job) or ()) for job in others)
    while others and there < nodes:
        job = others.pop()
        there += len(draft.placement(job) or ())
        draft.stop(job)


def _by_block(counts: Mapping[JobView, int], wanted: Mapping[JobView, int], node: int) -> list[JobView]:
    """The jobs smaller than a node: largest block first, then in the order of `wanted`, then as submitted."""
    rank = {job: i for i, job in enumerate(wanted)}
    small = [job for job, gpus in counts.items() if gpus < node]
    return sorted(
        small, key=lambda job: (-block(counts[job], node), rank.get(job, len(rank)), -counts[job], job.order)
    )


class _Nodes:
    """The nodes that small jobs may share, and the room that is left on each."""

    def __init__(self, draft: Proposal, wanted: Mapping[JobView, int], counts: Mapping[JobView, int]):
        self._draft, self._node = draft, draft._state.cluster.gpus_per_node
        large = {job: gpus for job, gpus in counts.items() if gpus >= self._node}
        self._closed = {  # nodes of jobs of a node or more
            place
            for job in large
            if draft.gpus(job) == counts[job]
            for place, _ in draft.placement(job) or ()
        }
        coming = sum(-(-gpus // self._node) for job, gpus in large.items() if draft.gpus(job) != gpus)
        open_nodes = draft._state.cluster.nodes - len(self._closed) - coming
        self.short = open_nodes < 0
        small = sum(block(gpus, self._node) for gpus in counts.values() if gpus < self._node)
        chosen = self._choose(max(0, open_nodes), -(-small // self._node), counts, wanted)
        self._room = dict.fromkeys(chosen, self._node)
        self._rest = dict.fromkeys(chosen, 0)

    def _choose(
        self, most: int, least: int, counts: Mapping[JobView, int], wanted: Mapping[JobView, int]
    ) -> list[int]:
        """Up to `most` nodes, if there are so many at least `least`: those with most GPUs of wanted small
        jobs, then of others, then empty ones.
        """
        weight: dict[int, int] = {}
        for job, gpus in counts.items():
            if gpus < self._node:
                for place, count in self._draft.placement(job) or ():
                    if place not in self._closed:
                        more = count * (self._node + 1) if job in wanted else count
                        weight[place] = weight.get(place, 0) + more
        chosen = sorted(weight, key=lambda place: (-weight[place], place))[:most]
        for place in bits(self._draft._capacity.nodes_with(self._node)):
            if len(chosen) >= min(most, least):
                break
            if place not in weight:
                chosen.append(place)
        return chosen

    def assign(self, job: JobView, gpus: int, size: int, places: Places) -> bool:
        """Give a job `size` GPUs of room where it is if there are so many, else on the fullest node with
        room. A job beside a large one stays there: no room is counted on such nodes.
        """
        place = self._draft.placement(job) or ()
        if place and self._draft.gpus(job) == gpus and all(at in self._closed for at, _ in place):
            return True
        own = [at for at, _ in place if self._room.get(at, 0) >= size]
        fitting = own or [at for at, room in self._room.items() if room >= size]
        if not fitting:
            return False
        chosen = own[0] if own else min(fitting, key=lambda at: (self._room[at], at))
        self._room[chosen] -= size
        self._rest[chosen] += size - gpus
        if place != ((chosen, gpus),):
            places[job] = ((chosen, gpus),)
        return True

    def free_rest_of_blocks(self) -> None:
        """Count the GPUs of each block that its job does not need as room."""
        for at, rest in self._rest.items():
            self._room[at] += rest
