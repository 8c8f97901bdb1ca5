"""Allocations from an event log: which job held which GPUs, and from when to when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from clustersim.cluster import Placement, SharedPlacement
from clustersim.records import ALLOCATES, RELEASES, EventRecord, Run

from .tables import events_of, jobs_of, numbered, per_run

__all__ = [
    "Allocation",
    "Block",
    "Holdings",
    "allocations",
    "blocks_of",
    "end_of_run_s",
    "gpu_blocks",
    "holdings",
    "stated_end_s",
]

Block = tuple[int, int, int, int]
"""(first node, last node, first GPU, GPUs): the same GPUs on each of a range of nodes."""

_Masks = tuple[tuple[int, int], ...]
"""(node, GPUs as bits), in the order of a placement."""


class Allocation(NamedTuple):
    """The GPUs that one event gave a job. `given`: that event. `to_s`: when the allocation ended. `ended`:
    the kind of the event that ended it, empty if the run ended first.
    """

    given: EventRecord
    to_s: float
    ended: str

    @property
    def from_s(self) -> float:
        return self.given.time_s

    @property
    def held_s(self) -> float:
        return self.to_s - self.given.time_s

    @property
    def paid_s(self) -> float:
        """Seconds of overhead, which come first in the allocation."""
        return min(self.given.overhead_s, self.held_s)


def end_of_run_s(run: Run) -> float:
    """When the run ended: the later of the end in its manifest and the last event."""
    return max([stated_end_s(run.manifest), *(event.time_s for event in run.events[-1:])])


def stated_end_s(manifest: Mapping[str, Any]) -> float:
    """The end of the run by its manifest; 0 if the manifest states none."""
    end_s = manifest.get("end_s")
    return float(end_s) if isinstance(end_s, int | float) and not isinstance(end_s, bool) else 0.0


@dataclass(frozen=True, eq=False)
class Holdings:
    """All allocations of a run by column, in the order in which they began; times in s, one value each.

    `given`: the row in the event log of the event that gave the GPUs. `job`: the row of the job, or a larger
    number, one for each job without a record. `paid_s`: seconds of overhead, which come first in the
    allocation. `gpus`: a part of a GPU counts as that part. `plan`: the number of the plan's label among
    `plans`. `ended`: as in `Allocation`.
    """

    given: np.ndarray
    job: np.ndarray
    from_s: np.ndarray
    to_s: np.ndarray
    paid_s: np.ndarray
    gpus: np.ndarray
    plan: np.ndarray
    plans: list[str]
    placements: list[Placement]
    ended: list[str]


_GIVES, _TAKES = 1, 2
_EFFECTS = dict.fromkeys(ALLOCATES, _GIVES) | dict.fromkeys(RELEASES, _TAKES)


def _share(placement: Placement) -> float:
    """The part of its GPUs that a job holds in a placement."""
    return placement.share if isinstance(placement, SharedPlacement) else 1.0


@per_run
def holdings(run: Run) -> Holdings:
    """The allocations of a run, found in one pass over its event log."""
    events = events_of(run)
    kinds = events.values("event")
    effects = np.array([_EFFECTS.get(kind, 0) for kind in kinds], dtype=np.int8)
    rows = np.flatnonzero(effects)
    jobs = _job_numbers(run, rows)
    by_job = np.argsort(jobs, kind="stable")
    rows, jobs = rows[by_job], jobs[by_job]
    next_rows = np.full(len(rows), -1)  # the job's next such event
    same_job = np.flatnonzero(jobs[1:] == jobs[:-1])
    next_rows[same_job] = rows[same_job + 1]
    gives = np.flatnonzero(effects[rows] == _GIVES)
    gives = gives[np.argsort(rows[gives])]
    given_rows, ends = rows[gives], next_rows[gives]
    times = events["time_s"]
    from_s = times[given_rows]
    to_s = np.where(ends >= 0, times[ends], end_of_run_s(run)) if len(given_rows) else from_s
    row_list = given_rows.tolist()
    labels, placements = events.values("plan"), events.values("placement")
    plan, plans = numbered([labels[row] for row in row_list])
    return Holdings(
        given=given_rows,
        job=jobs[gives],
        from_s=from_s,
        to_s=to_s,
        paid_s=np.minimum(events["overhead_s"][given_rows], to_s - from_s),
        gpus=events["gpus"][given_rows] * [_share(placements[row]) for row in row_list],
        plan=np.array(plan, dtype=int),
        plans=plans,
        placements=[placements[row] for row in row_list],
        ended=[kinds[row] if row >= 0 else "" for row in ends.tolist()],
    )


def _job_numbers(run: Run, rows: np.ndarray) -> np.ndarray:
    """The numbers of the jobs of some events, as in `Holdings`."""
    ids, first_unknown = events_of(run).values("job_id"), len(run.jobs)
    row_of_job = {job_id: row for row, job_id in enumerate(jobs_of(run).values("job_id"))}
    job_ids = [ids[row] for row in rows.tolist()]
    return np.array(
        [row_of_job.setdefault(job_id, first_unknown + len(row_of_job)) for job_id in job_ids], dtype=int
    )


def allocations(run: Run) -> list[Allocation]:
    """All allocations of a run, in the order in which they began."""
    held, events = holdings(run), run.events
    return [
        Allocation(events[row], to_s, ended)
        for row, to_s, ended in zip(held.given.tolist(), held.to_s.tolist(), held.ended, strict=True)
    ]


def gpu_blocks(allocations: Sequence[Allocation], size_of: Callable[[int], int]) -> list[Sequence[Block]]:
    """The GPUs of its nodes that each allocation occupies, for drawings: the blocks of each allocation.

    The engine counts the GPUs of a node and does not number them. On each node, an allocation gets the GPUs
    that its job held there before, else the lowest contiguous free GPUs, else the lowest free GPUs. Only
    allocations that share a GPU by the log are on the same one. An allocation of no duration has no blocks.
    `size_of`: the number of GPUs of a node.
    """
    return _numbered_gpus(
        numbered([allocation.given.job_id for allocation in allocations])[0],
        np.array([allocation.from_s for allocation in allocations]),
        np.array([allocation.to_s for allocation in allocations]),
        [allocation.given.placement for allocation in allocations],
        size_of,
    )


def blocks_of(run: Run) -> list[Sequence[Block]]:
    """`gpu_blocks` of all allocations of a run."""
    held = holdings(run)
    return _numbered_gpus(held.job.tolist(), held.from_s, held.to_s, held.placements, run.cluster.size_of)


def _numbered_gpus(
    jobs: Sequence[int], from_s: np.ndarray, to_s: np.ndarray, placements: Sequence[Placement],
    size_of: Callable[[int], int],
) -> list[Sequence[Block]]:  # fmt: skip
    free: dict[int, int] = {}
    sizes: dict[int, int] = {}
    masks: list[_Masks] = [()] * len(jobs)
    last_masks: dict[int, _Masks] = {}
    nowhere: dict[int, int] = {}
    sharing: dict[tuple[Placement, int], tuple[_Masks, int]] = {}  # the GPUs, and how many jobs share them
    for change in _changes(from_s, to_s):
        placement = placements[change if change >= 0 else ~change]
        if isinstance(placement, SharedPlacement):
            together, sharers = sharing.pop(placement.key, ((), 0))
            sharers += 1 if change >= 0 else -1
            if change >= 0 and sharers > 1:
                masks[change] = together
            if sharers and (sharers > 1 or change < 0):
                sharing[placement.key] = together, sharers
                continue
        if change < 0:
            for node, mask in masks[~change]:
                free[node] |= mask
            last_masks[jobs[~change]] = masks[~change]
            continue
        masks_before = last_masks.pop(jobs[change], None)
        earlier = dict(masks_before) if masks_before else nowhere
        node_masks = []
        for node, count in placement:
            size = sizes.get(node)
            if size is None:
                size = sizes[node] = size_of(node)
                free[node] = (1 << size) - 1
            free_mask = free[node]
            mask = _choose(free_mask, count, earlier.get(node, 0), size)
            free[node] = free_mask & ~mask
            node_masks.append((node, mask))
        masks[change] = tuple(node_masks)
        if isinstance(placement, SharedPlacement):
            sharing[placement.key] = masks[change], 1
    blocks = {held: _blocks(held) for held in dict.fromkeys(masks)}
    return [blocks[held] for held in masks]


def _changes(from_s: np.ndarray, to_s: np.ndarray) -> list[int]:
    """The allocations of positive duration in order of time: i where allocation i begins, and ~i where it
    ends. At an instant, allocations end first.
    """
    lasting = np.flatnonzero(to_s > from_s)
    changes = np.concatenate([~lasting, lasting])
    places = np.concatenate([lasting, lasting])
    times = np.concatenate([to_s[lasting], from_s[lasting]])
    return changes[np.lexsort((places, changes >= 0, times))].tolist()


@lru_cache(maxsize=1 << 16)
def _choose(free: int, count: int, mask_before: int, gpus_per_node: int) -> int:
    """`count` of the `free` GPUs of a node, as bits. `mask_before`: the GPUs that the job held there last."""
    full_mask = (1 << gpus_per_node) - 1
    if count >= gpus_per_node:
        return free & full_mask
    if mask_before.bit_count() == count and mask_before & free == mask_before:
        return mask_before
    row = (1 << count) - 1
    for shift in range(gpus_per_node - count + 1):
        if free >> shift & row == row:
            return row << shift
    mask = 0
    for gpu in range(gpus_per_node):
        if free >> gpu & 1 and mask.bit_count() < count:
            mask |= 1 << gpu
    return mask


def _blocks(masks: _Masks) -> list[Block]:
    if len(masks) == 1:  # most allocations
        node, mask = masks[0]
        return [(node, node, *row) for row in _rows(mask)]
    blocks: list[Block] = []
    for mask, nodes in groupby(masks, key=lambda item: item[1]):
        first_node = last_node = -2
        for node, _ in nodes:
            if node != last_node + 1:
                blocks += [(first_node, last_node, *row) for row in _rows(mask) if first_node >= 0]
                first_node = node
            last_node = node
        blocks += [(first_node, last_node, *row) for row in _rows(mask) if first_node >= 0]
    return blocks


@lru_cache(maxsize=4096)
def _rows(mask: int) -> tuple[tuple[int, int], ...]:
    """The contiguous runs of set bits, as (first bit, length)."""
    rows, gpu = [], 0
    while mask >> gpu:
        if mask >> gpu & 1:
            length = 1
            while mask >> (gpu + length) & 1:
                length += 1
            rows.append((gpu, length))
            gpu += length
        gpu += 1
    return tuple(rows)
