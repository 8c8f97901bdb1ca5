"""Allocations from an event log: which job held which GPUs, and from when to when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from clustersim.records import ALLOCATES, RELEASES, EventRecord, Run

__all__ = ["Allocation", "Block", "allocations", "end_of_run_s", "gpu_blocks", "stated_end_s"]

Block = tuple[int, int, int, int]
"""(first node, last node, first GPU, GPUs): the same GPUs on each of a range of nodes."""


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
    stated = manifest.get("end_s")
    return float(stated) if isinstance(stated, int | float) and not isinstance(stated, bool) else 0.0


def allocations(run: Run) -> list[Allocation]:
    """All allocations of a run, in the order in which they began."""
    found: list[Allocation | None] = []
    held: dict[str, tuple[int, EventRecord]] = {}
    for event in run.events:
        if event.event not in ALLOCATES and event.event not in RELEASES:
            continue
        before = held.pop(event.job_id, None)
        if before is not None:
            found[before[0]] = Allocation(before[1], event.time_s, event.event)
        if event.event in ALLOCATES:
            held[event.job_id] = (len(found), event)
            found.append(None)
    end_s = end_of_run_s(run)
    for place, event in held.values():
        found[place] = Allocation(event, end_s, "")
    return [allocation for allocation in found if allocation is not None]


def gpu_blocks(found: Sequence[Allocation], size_of: Callable[[int], int]) -> list[list[Block]]:
    """The GPUs of its nodes that each allocation occupies, for drawings: a list of blocks per allocation.

    The engine counts the GPUs of a node and does not number them. On each node, an allocation gets the GPUs
    that its job held there before, else the lowest contiguous free GPUs, else the lowest free GPUs. No two
    allocations share a GPU at any time. An allocation of no duration has no blocks. `size_of`: the number of
    GPUs of a node.
    """
    free: dict[int, int] = {}
    masks: dict[int, list[tuple[int, int]]] = {}
    last: dict[str, dict[int, int]] = {}
    for _, changes in groupby(_changes(found), key=lambda change: change[0]):
        for _, takes, i in changes:
            if not takes:
                for node, mask in masks[i]:
                    free[node] |= mask
                last[found[i].given.job_id] = dict(masks[i])
                continue
            earlier = last.pop(found[i].given.job_id, {})
            masks[i] = []
            for node, count in found[i].given.placement:
                size = size_of(node)
                rest = free.get(node, (1 << size) - 1)
                mask = _choose(rest, count, earlier.get(node, 0), size)
                free[node] = rest & ~mask
                masks[i].append((node, mask))
    return [_blocks(masks.get(i, [])) for i in range(len(found))]


def _changes(found: Sequence[Allocation]) -> Iterator[tuple[float, bool, int]]:
    """(time, whether GPUs are taken, index of the allocation): at an instant, releases come first."""
    lasting = [i for i, allocation in enumerate(found) if allocation.held_s > 0]
    begins = ((found[i].from_s, True, i) for i in lasting)
    ends = ((found[i].to_s, False, i) for i in lasting)
    yield from sorted((*begins, *ends))


def _choose(free: int, count: int, before: int, gpus_per_node: int) -> int:
    """`count` of the `free` GPUs of a node, as bits. `before`: the GPUs that the job held there last."""
    whole = (1 << gpus_per_node) - 1
    if count >= gpus_per_node:
        return free & whole
    if before.bit_count() == count and before & free == before:
        return before
    row = (1 << count) - 1
    for shift in range(gpus_per_node - count + 1):
        if free >> shift & row == row:
            return row << shift
    chosen = 0
    for gpu in range(gpus_per_node):
        if free >> gpu & 1 and chosen.bit_count() < count:
            chosen |= 1 << gpu
    return chosen


def _blocks(masks: Sequence[tuple[int, int]]) -> list[Block]:
    if len(masks) == 1:  # most allocations
        node, mask = masks[0]
        return [(node, node, *row) for row in _rows(mask)]
    blocks: list[Block] = []
    for mask, nodes in groupby(masks, key=lambda item: item[1]):
        first = last = -2
        for node, _ in nodes:
            if node != last + 1:
                blocks += [(first, last, *row) for row in _rows(mask) if first >= 0]
                first = node
            last = node
        blocks += [(first, last, *row) for row in _rows(mask) if first >= 0]
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
