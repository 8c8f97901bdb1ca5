"""The event log as allocations: who held which GPUs from when until when, and on which GPUs of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .checking_sums import GIVES
from .records import EventRecord

if TYPE_CHECKING:
    from .run_result import Run

__all__ = ["TAKES", "Allocation", "Block", "allocations", "end_of_run_s", "gpu_blocks", "stated_end_s"]

TAKES = ("preempt", "interrupt", "finish", "fail", "reject")
"""The events that leave a job without GPUs. Any other kind that gives none leaves it as it was."""

Block = tuple[int, int, int, int]
"""(first node, last node, first GPU, GPUs): the same GPUs on each of a range of nodes."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one event gave a job, until the next one. `ended`: the kind of that event, empty at the run's end.

    `paid_s`: how much of the time went into overhead, at its beginning.
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
        return min(self.given.overhead_s, self.held_s)


def end_of_run_s(run: Run) -> float:
    """When the run ended, as far as its folder says."""
    return max([stated_end_s(run.manifest), *(event.time_s for event in run.events[-1:])])


def stated_end_s(manifest: Mapping[str, Any]) -> float:
    """The end of the run that a manifest states, 0 if it states none."""
    stated = manifest.get("end_s")
    return float(stated) if isinstance(stated, int | float) and not isinstance(stated, bool) else 0.0


def allocations(run: Run) -> list[Allocation]:
    """All allocations of a run, in the order in which they began."""
    found: list[Allocation | None] = []
    held: dict[str, tuple[int, EventRecord]] = {}
    for event in run.events:
        if event.event not in GIVES and event.event not in TAKES:
            continue
        before = held.pop(event.job_id, None)
        if before is not None:
            found[before[0]] = Allocation(before[1], event.time_s, event.event)
        if event.event in GIVES:
            held[event.job_id] = (len(found), event)
            found.append(None)
    end_s = end_of_run_s(run)
    for place, event in held.values():
        found[place] = Allocation(event, end_s, "")
    return [allocation for allocation in found if allocation is not None]


def gpu_blocks(found: Sequence[Allocation], size_of: Callable[[int], int]) -> list[list[Block]]:
    """On which GPUs of its nodes each allocation is, for pictures: one list of blocks per allocation.

    The engine counts the GPUs of a node without naming them. Here each allocation gets the ones that its job
    had there before, else the lowest free row of enough of them, else the lowest free ones; no two hold one
    at a time. An allocation that lasted no time has no blocks. `size_of`: the GPUs of a node.
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
    """(time, whether GPUs are taken, which allocation): what an instant gives back comes first."""
    lasting = [i for i, allocation in enumerate(found) if allocation.held_s > 0]
    begins = ((found[i].from_s, True, i) for i in lasting)
    ends = ((found[i].to_s, False, i) for i in lasting)
    yield from sorted((*begins, *ends))


def _choose(free: int, count: int, before: int, gpus_per_node: int) -> int:
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


def _rows(mask: int) -> Iterator[tuple[int, int]]:
    """The rows of set bits, as (first bit, length)."""
    gpu = 0
    while mask >> gpu:
        if mask >> gpu & 1:
            length = 1
            while mask >> (gpu + length) & 1:
                length += 1
            yield gpu, length
            gpu += length
        gpu += 1
