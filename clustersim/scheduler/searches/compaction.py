"""Moves jobs smaller than a node together, so that whole nodes become free (`Proposal.compact`).

Jobs are packed by *blocks*: the smallest divisor of a node, each dividing the next larger one, that holds
the job. First fit by decreasing block then never fails while the blocks add up to no more than the nodes,
whatever the order within a size and whichever node with room a job chooses. Plain first fit decreasing by
GPUs has no such guarantee for counts like 3 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from clustersim.cluster import Placement, nodes_of
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.draft import Draft
from clustersim.scheduler.job_view import JobView

__all__ = ["block", "compact"]


@lru_cache(maxsize=4096)
def block(gpus: int, node: int) -> int:
    """The GPUs to set aside for `gpus` on nodes of `node` GPUs: whole nodes, or the next divisor of a node.

    Each block size divides the next larger one, so blocks whose sum does not exceed the cluster can always be
    placed, each within its node; the counts 5, 5 and 6 on two nodes of 8 cannot.

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


def compact(draft: Draft, facts: ClusterState[JobView], counts: Mapping[JobView, int]) -> None:
    """See `Proposal.compact`, which has checked `counts`."""
    node = facts.cluster.gpus_per_node
    for job, gpus in counts.items():
        if 0 < draft.gpus(job) < node <= gpus:
            draft.stop(job)  # it leaves its node in any case
    moves = _all_together(draft, facts, counts)
    if moves is None:  # not enough room for all: its jobs come first, others may lose their GPUs
        _make_room(draft, facts, counts)
        moves = _wanted_first(draft, facts, counts)
    for job in moves:
        if draft.placement(job):
            draft.stop(job)
    for job, placement in moves.items():
        if placement:
            draft.start(job, placement[0][1], on=placement)
    for job, gpus in counts.items():
        if gpus >= node and draft.gpus(job) != gpus:
            _ = draft.resize(job, gpus) if draft.placement(job) else draft.start(job, gpus)


Moves = dict[JobView, Placement]
"""New placements of the jobs that move, each on one node; an empty one for a job that loses its GPUs."""


def _all_together(draft: Draft, facts: ClusterState[JobView], targets: Mapping[JobView, int]) -> Moves | None:
    """Moves that place all jobs, each in a block of its own; None if some job has no room."""
    counts = {job: draft.gpus(job) for job in draft.running()} | dict(targets)
    nodes = _Nodes(draft, facts, targets, counts)
    if nodes.short:
        return None
    moves: Moves = {}
    node = facts.cluster.gpus_per_node
    for job in _by_block(counts, targets, node):
        if not nodes.assign(job, counts[job], block(counts[job], node), moves):
            return None
    return moves


def _wanted_first(draft: Draft, facts: ClusterState[JobView], targets: Mapping[JobView, int]) -> Moves:
    """Moves that give the jobs of `targets` their blocks, and other jobs the rest, counted in GPUs."""
    counts = {job: draft.gpus(job) for job in draft.running()} | dict(targets)
    nodes, node = _Nodes(draft, facts, targets, counts), facts.cluster.gpus_per_node
    moves: Moves = {}
    ranked = _by_block(counts, targets, node)
    for job in (job for job in ranked if job in targets):
        if not nodes.assign(job, counts[job], block(counts[job], node), moves):
            moves[job] = ()
    nodes.free_rest_of_blocks()
    for job in (job for job in ranked if job not in targets):
        if not nodes.assign(job, counts[job], counts[job], moves):
            moves[job] = ()
    return {job: placement for job, placement in moves.items() if placement or draft.placement(job)}


def _make_room(draft: Draft, facts: ClusterState[JobView], targets: Mapping[JobView, int]) -> None:
    """Stop jobs of a node or more that are not in `targets`, the last submitted first, until there are enough
    nodes for the blocks of `targets`.
    """
    node = facts.cluster.gpus_per_node
    gpus_of_blocks = sum(block(gpus, node) for gpus in targets.values() if gpus < node)
    nodes = -(-gpus_of_blocks // node) + sum(-(-gpus // node) for gpus in targets.values() if gpus >= node)
    large_jobs = [job for job in draft.running() if draft.gpus(job) >= node and job not in targets]
    available = facts.cluster.nodes - sum(len(draft.placement(job) or ()) for job in large_jobs)
    while large_jobs and available < nodes:
        job = large_jobs.pop()
        available += len(draft.placement(job) or ())
        draft.stop(job)


def _by_block(counts: Mapping[JobView, int], targets: Mapping[JobView, int], node: int) -> list[JobView]:
    """The jobs smaller than a node: largest block first, then in the order of `targets`, then submission."""
    rank = {job: i for i, job in enumerate(targets)}
    small = [job for job, gpus in counts.items() if gpus < node]
    return sorted(
        small, key=lambda job: (-block(counts[job], node), rank.get(job, len(rank)), -counts[job], job.order)
    )


class _Nodes:
    """The nodes that small jobs may share, and the room left on each."""

    def __init__(
        self,
        draft: Draft,
        facts: ClusterState[JobView],
        targets: Mapping[JobView, int],
        counts: Mapping[JobView, int],
    ):
        self._draft, self._node = draft, facts.cluster.gpus_per_node
        large = {job: gpus for job, gpus in counts.items() if gpus >= self._node}
        self._closed = {  # nodes of jobs of a node or more
            node for job in large if draft.gpus(job) == counts[job] for node, _ in draft.placement(job) or ()
        }
        coming = sum(-(-gpus // self._node) for job, gpus in large.items() if draft.gpus(job) != gpus)
        open_nodes = facts.cluster.nodes - len(self._closed) - coming
        self.short = open_nodes < 0
        small = sum(block(gpus, self._node) for gpus in counts.values() if gpus < self._node)
        shared_nodes = self._choose(max(0, open_nodes), -(-small // self._node), counts, targets)
        served = facts.nodes.gpus_serving  # by services, whose GPUs no job can have
        self._room = {node: self._node - served.get(node, 0) for node in shared_nodes}
        self._unused = dict.fromkeys(shared_nodes, 0)  # GPUs of blocks that their jobs do not need

    def _choose(
        self,
        limit: int,
        enough: int,
        counts: Mapping[JobView, int],
        targets: Mapping[JobView, int],
    ) -> list[int]:
        """At most `limit` nodes, and at least `enough` if there are so many: those with most GPUs of small
        jobs of `targets`, then of other small jobs, then empty nodes.
        """
        weight: dict[int, int] = {}
        for job, gpus in counts.items():
            if gpus < self._node:
                for node, count in self._draft.placement(job) or ():
                    if node not in self._closed:
                        gpus_weighed = count * (self._node + 1) if job in targets else count
                        weight[node] = weight.get(node, 0) + gpus_weighed
        shared_nodes = sorted(weight, key=lambda node: (-weight[node], node))[:limit]
        for node in nodes_of(self._draft.nodes_with(self._node)):
            if len(shared_nodes) >= min(limit, enough):
                break
            if node not in weight:
                shared_nodes.append(node)
        return shared_nodes

    def assign(self, job: JobView, gpus: int, size: int, moves: Moves) -> bool:
        """Give a job `size` GPUs of room on its own node if possible, else on the fullest node with room. A
        job beside a large one stays there: such nodes are not counted as room.
        """
        placement = self._draft.placement(job) or ()
        stays = placement and self._draft.gpus(job) == gpus
        if stays and all(node in self._closed for node, _ in placement):
            return True
        own_nodes = [node for node, _ in placement if self._room.get(node, 0) >= size]
        fitting = own_nodes or [node for node, room in self._room.items() if room >= size]
        if not fitting:
            return False
        target = own_nodes[0] if own_nodes else min(fitting, key=lambda node: (self._room[node], node))
        self._room[target] -= size
        self._unused[target] += size - gpus
        if placement != ((target, gpus),):
            moves[job] = ((target, gpus),)
        return True

    def free_rest_of_blocks(self) -> None:
        """Count the GPUs of each block that its job does not need as room."""
        for node, unused in self._unused.items():
            self._room[node] += unused
