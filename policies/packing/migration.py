"""Moves groups of jobs off a node, so that a job has room there."""

from __future__ import annotations

from collections.abc import Container

from clustersim.scheduler import JobView, Proposal

from .groups import Group, groups_of

__all__ = ["with_room"]


def with_room(
    proposal: Proposal, job: JobView, parts: int, size: int, stay: Container[JobView]
) -> Proposal | None:
    """A copy of the draft in which `job` runs on nodes of `size` GPUs, after groups of one node have moved
    to other ones; None if that is not possible. No group stops, and none with a job of `stay` moves.

    The nodes with the most free GPUs are chosen. Of each the smallest groups move, to the fullest nodes that
    have room for them.
    """
    draft, full_nodes = proposal.copy(), job.requested // size
    needs = list(job.node_counts)
    if not needs:
        needs = [size] * full_nodes + [job.requested % size] * (job.requested % size > 0)
    on_node: dict[int, list[Group]] = {}
    for group in groups_of(draft):
        places = draft.placement(group[0]) or ()
        movable = len(places) == 1 and group[0].needs >= 1 and not any(member in stay for member in group)
        if movable:
            on_node.setdefault(places[0][0], []).append(group)
    node_counts: list[tuple[int, int]] = []
    for need in needs:
        used_nodes = {node for node, _ in node_counts}
        free = [(n, -node) for node, n in draft.free_nodes(job).items() if node not in used_nodes]
        if not free:
            return None
        node = -max(free)[1]
        movable_here = sorted(on_node.get(node, []), key=lambda group: (group[0].requested, group[0].order))
        for group in movable_here:
            if draft.has_room(job, ((node, need),)):
                break
            if not _move(draft, group, parts, used_nodes | {node}):
                return None
        if not draft.has_room(job, ((node, need),)):
            return None
        node_counts.append((node, need))
    placement = tuple(sorted(node_counts))
    placed = (
        draft.start(job, on=placement) if parts == 1 else draft.start_shared(job, 1 / parts, on=placement)
    )
    return draft if placed is not None else None


def _move(draft: Proposal, group: Group, parts: int, away: Container[int]) -> bool:
    """Move a group to the fullest node with room for it that is not in `away`."""
    shared = any(group[0] in sharers for sharers in draft.groups())
    count = draft.gpus(group[0])
    fitting = [(n, node) for node, n in draft.free_nodes(group[0]).items() if n >= count and node not in away]
    if not fitting:
        return False
    on = ((min(fitting)[1], count),)
    for job in group:
        draft.stop(job)
    first, *sharers = group
    if not shared:
        return draft.start(first, count, on=on) is not None
    if draft.start_shared(first, 1 / parts, on=on) is None:
        return False
    return all(draft.start_shared(job, 1 / parts, beside=first) is not None for job in sharers)
