"""Schedules that split a backward pass: its gradients of inputs (B) go on at once, those of weights (W) wait.

| schedule | chunks of a device | source |
|---|---|---|
| `zb-h1` | one stage | Qi et al., Zero Bubble Pipeline Parallelism (ICLR 2024), section 2.2, figure 3 |
| `zb-v` | stages i and 2p - 1 - i of 2p | the same, section 6; PyTorch's `ScheduleZBVZeroBubble` |
| `dualpipe` | stages i and p - 1 - i of p, one a direction | DeepSeek-V3 (2024), section 3.2.1; DualPipe |

With p equal stages of F, B and W seconds and enough micro-batches the bubble is (p - 1) max(F + B - W, B, F)
under `zb-h1`, the first of which the paper states; under `zb-v`, with F = B = W, no device waits between its
first and its last pass, and the last device starts p - 1 passes late; under `dualpipe` it is
(p / 2 - 1) (F&B + B + W - 3W), with F&B a forward and a whole backward pass that run as one, where F = B. A
test holds all three.

A device runs what it does in a fixed order, one unit after the other. A unit is one pass, or several that run
as one: a backward pass with its W, and under `dualpipe` a forward pass beside a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from itertime.arrays import Array

Kind = Literal["forward", "backward", "weight"]
SPLIT_SCHEDULES = ("zb-h1", "zb-v", "dualpipe")
"""The schedules of this module; a plan's column has their places, from 1."""
MOST_PASSES = 3_000_000
"""Passes of a pipeline that is stepped through, about three seconds."""


class Pass(NamedTuple):
    """One pass of a device: its kind, the chunk of the device (the direction under `dualpipe`), and the
    micro-batch, counted in each direction.
    """

    kind: Kind
    chunk: int
    microbatch: int


Unit = tuple[Pass, ...]
Later = Callable[[Any, Any], Any]
"""The later of two times: of numbers, or of arrays with one element a plan."""
_WHOLE: tuple[Kind, ...] = ("forward", "backward", "weight")


class Place(NamedTuple):
    """Where a chunk of a device lies: in which line of stages, at which of its `length` positions."""

    line: int
    position: int
    length: int


def place_of(schedule: str, device: int, devices: int, chunk: int) -> Place:
    """The place of a chunk of a device.

    >>> place_of("zb-v", 1, 4, 1), place_of("dualpipe", 1, 4, 1)
    (Place(line=0, position=6, length=8), Place(line=1, position=2, length=4))
    """
    if schedule == "zb-v":
        return Place(0, device if chunk == 0 else 2 * devices - 1 - device, 2 * devices)
    if schedule == "dualpipe":
        return Place(chunk, device if chunk == 0 else devices - 1 - device, devices)
    return Place(0, device, devices)


def units_of(schedule: str, device: int, devices: int, microbatches: int) -> list[Unit]:
    """What a device runs, in order.

    >>> [[each.kind[0] + str(each.microbatch) for each in unit] for unit in units_of("zb-h1", 1, 2, 3)]
    [['f0'], ['b0'], ['f1'], ['b1'], ['w0'], ['f2'], ['b2'], ['w1'], ['w2']]
    """
    if schedule == "zb-v":
        return _v_shaped(device, devices, microbatches)
    if schedule == "dualpipe":
        return _of_both_directions(device, devices, microbatches)
    return _delayed_weights(device, devices, microbatches)


class _Passes:
    """Units as they are added; each kind of pass of a chunk takes the next micro-batch."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self._next: dict[tuple[Kind, int], int] = {}
        self._waiting: list[Pass] = []

    def count(self, kind: Kind, chunk: int) -> int:
        return self._next.get((kind, chunk), 0)

    def add(self, *passes: tuple[Kind, int]) -> None:
        """Adds a unit of passes, each a kind and a chunk."""
        unit = []
        for kind, chunk in passes:
            microbatch = self.count(kind, chunk)
            self._next[kind, chunk] = microbatch + 1
            unit.append(Pass(kind, chunk, microbatch))
        self.units.append(tuple(unit))

    def add_split(self, chunk: int) -> None:
        """Adds a backward pass whose W waits."""
        self._waiting.append(Pass("weight", chunk, self.count("backward", chunk)))
        self._next["weight", chunk] = self.count("backward", chunk) + 1
        self.add(("backward", chunk))

    def add_waiting(self) -> None:
        """Adds the W that waits longest."""
        self.units.append((self._waiting.pop(0),))


def _delayed_weights(device: int, devices: int, microbatches: int) -> list[Unit]:
    """1F1B, in which device i runs its W i micro-batches late, so that all devices hold as many."""
    passes = _Passes()
    for _ in range(min(devices - 1 - device, microbatches)):
        passes.add(("forward", 0))
    for microbatch in range(microbatches):
        if passes.count("forward", 0) < microbatches:
            passes.add(("forward", 0))
        passes.add(("backward", 0))
        if microbatch >= device:
            passes.add(("weight", 0))
    for _ in range(microbatches - passes.count("weight", 0)):
        passes.add(("weight", 0))
    return passes.units


def _v_shaped(device: int, devices: int, microbatches: int) -> list[Unit]:
    """Two chunks in a V. The order is that of at least 2p - 1 micro-batches, without those beyond."""
    total, passes = max(2 * devices - 1, microbatches), _Passes()
    # The first chunk runs ahead, then both chunks in turn.
    for _ in range(2 * (devices - device) - 1):
        passes.add(("forward", 0))
    for _ in range(device):
        passes.add(("forward", 1))
        passes.add(("forward", 0))
    for _ in range(devices - device):
        for kind in _WHOLE:
            passes.add((kind, 1))
    while passes.count("forward", 1) < passes.count("forward", 0) or passes.count("forward", 0) < total:
        if passes.count("forward", 0) < total:
            passes.add(("forward", 0))
        passes.add(("backward", 0))
        passes.add(("weight", 0))
        for kind in _WHOLE:
            passes.add((kind, 1))
    # While the pipeline drains, W fill what would be a bubble.
    for _ in range(device):
        passes.add(("backward", 0))
        passes.add(("backward", 1))
    for _ in range(devices - device):
        passes.add(("backward", 0))
        passes.add(("weight", 0))
    for chunk in (1, 0):
        while passes.count("weight", chunk) < passes.count("backward", chunk):
            passes.add(("weight", chunk))
    return [unit for unit in passes.units if unit[0].microbatch < microbatches]


def _of_both_directions(device: int, devices: int, microbatches: int) -> list[Unit]:
    """Micro-batches enter at both ends; a device near either end runs more forwards ahead.

    `ahead` is the direction that enters at the nearer end. The eight steps are those of DualPipe's program.
    """
    half = devices // 2
    depth = min(device, devices - 1 - device)
    ahead = 0 if device < half else 1
    behind, passes = 1 - ahead, _Passes()

    def overlap(forward: int, backward: int) -> None:
        passes.add(("forward", forward), ("backward", backward), ("weight", backward))

    def run_whole(chunk: int) -> None:
        passes.add(("backward", chunk), ("weight", chunk))

    for _ in range(2 * (half - depth - 1)):
        passes.add(("forward", ahead))
    for _ in range(depth + 1):
        passes.add(("forward", ahead))
        passes.add(("forward", behind))
    for _ in range(half - depth - 1):
        passes.add_split(behind)
        passes.add_waiting()
        passes.add(("forward", behind))
    for step in range(microbatches // 2 - devices + depth + 1):
        if step == 0 and depth == half - 1:  # the devices in the middle have nothing to overlap yet
            passes.add(("forward", ahead))
            run_whole(behind)
        else:
            overlap(ahead, behind)
        overlap(behind, ahead)
    for _ in range(half - depth - 1):
        run_whole(behind)
        overlap(behind, ahead)
    # The second half of the last backward passes lets its W wait.
    for place in range(2 * (depth + 1)):
        chunk = behind if place % 2 == 0 else ahead
        if place > depth:
            passes.add_split(chunk)
        else:
            run_whole(chunk)
    for _ in range(half - depth - 1):
        passes.add_waiting()
        passes.add_split(ahead)
    for _ in range(depth + 1):
        passes.add_waiting()
    return passes.units


class DeviceEnds(NamedTuple):
    """When the last device has run its last pass, and when the first one has; seconds, (plans,) each."""

    last: Array
    first: Array


def split_schedule_s(
    schedule: str, forward: Array, backward: Array, weight: Array, microbatches: int
) -> DeviceEnds:
    """Seconds from the first forward pass of a pipeline to its last pass, exactly.

    `forward`, `backward`, `weight`: seconds of each chunk on each device, sends included, (plans, devices,
    chunks): F, B and W. A pass starts when its device is free and its input has arrived.
    """
    plans, devices, _ = forward.shape
    seconds: dict[Kind, Any] = {"forward": forward, "backward": backward, "weight": weight}
    latest: Later = np.maximum
    if plans == 1:  # plain numbers are faster than arrays of one
        seconds = {kind: each[0].tolist() for kind, each in seconds.items()}
        latest = max
    else:
        seconds = {kind: np.moveaxis(each, 0, -1) for kind, each in seconds.items()}
    ends = _stepped(schedule, seconds, devices, microbatches, latest)
    stacked = np.array([np.broadcast_to(end, plans) for end in ends])
    return DeviceEnds(stacked.max(axis=0), stacked[0])


def _stepped(
    schedule: str,
    seconds: dict[Kind, Any],
    devices: int,
    microbatches: int,
    latest: Later,
) -> list[Any]:
    """When each device has run its last pass."""
    queues = [units_of(schedule, device, devices, microbatches) for device in range(devices)]
    places = [[place_of(schedule, device, devices, chunk) for chunk in (0, 1)] for device in range(devices)]
    ends: dict[tuple[Kind, int, int, int], Any] = {}
    free: list[Any] = [0.0] * devices
    heads = [0] * devices
    blocked = False
    while not blocked:
        blocked = True
        for device, queue in enumerate(queues):
            while heads[device] < len(queue):
                start = _start_s(queue[heads[device]], places[device], free[device], ends, latest)
                if start is None:
                    break
                unit = queue[heads[device]]
                end = start + sum(seconds[each.kind][device][each.chunk] for each in unit)
                for each in unit:
                    place = places[device][each.chunk]
                    ends[each.kind, place.line, place.position, each.microbatch] = end
                free[device], heads[device], blocked = end, heads[device] + 1, False
    assert heads == [len(queue) for queue in queues], "passes wait for each other in a circle"
    return free


def _start_s(
    unit: Unit,
    places: Sequence[Place],
    free: Any,
    ends: dict[tuple[Kind, int, int, int], Any],
    latest: Later,
) -> Any:
    """When a unit starts; None while an input of it has not been computed."""
    start = free
    for each in unit:
        source = input_of(each, places[each.chunk])
        if source is None or each.kind == "weight":  # what follows B on the same device
            continue
        end = ends.get(source)
        if end is None:
            return None
        start = latest(start, end)
    return start


def input_of(each: Pass, place: Place) -> tuple[Kind, int, int, int] | None:
    """What a pass waits for, as kind, line, position and micro-batch; None for the model's first forward."""
    line, position, length = place
    if each.kind == "weight":
        return "backward", line, position, each.microbatch
    if each.kind == "forward":
        return ("forward", line, position - 1, each.microbatch) if position else None
    if position == length - 1:
        return "forward", line, position, each.microbatch
    return "backward", line, position + 1, each.microbatch
