"""A calendar of the GPUs, or whole nodes, that are free at each future time.

Times are seconds on the trace's clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf

from clustersim.scheduler import State

__all__ = ["FreeGpus", "calendars_as_planned"]

_FEW = 3  # boundaries: to step over them is faster than to copy the others


class FreeGpus:
    """Free GPUs (or nodes) over time: `free[i]` from `times[i]` to `times[i + 1]`, the last without end."""

    __slots__ = ("free", "times")

    def __init__(self, now: float, gpus: int):
        self.times = [now]
        self.free = [gpus]

    @classmethod
    def beside(cls, now: float, gpus: int, allocations: Iterable[tuple[float, float, int]]) -> FreeGpus:
        """The calendar of `gpus` GPUs from `now` on, less the (start, end, GPUs) of `allocations`."""
        changes = defaultdict(int, {now: gpus})
        for start, end, count in allocations:
            if end > now:
                changes[start if start > now else now] -= count
                changes[end] += count
        calendar = object.__new__(cls)
        calendar.times = sorted(changes)
        calendar.free = list(accumulate([changes[time] for time in calendar.times]))
        return calendar

    def copy(self) -> FreeGpus:
        twin = object.__new__(FreeGpus)
        twin.times, twin.free = self.times[:], self.free[:]
        return twin

    def between(self, start: float, end: float) -> FreeGpus:
        """The calendar of the time from `start` to `end`, which are within it and not equal."""
        first_index, last_index = bisect_right(self.times, start) - 1, bisect_left(self.times, end)
        part = object.__new__(FreeGpus)
        part.times, part.free = (
            [start, *self.times[first_index + 1 : last_index]],
            self.free[first_index:last_index],
        )
        return part

    def advance(self, now: float) -> None:
        """Drop the time before `now`, and merge adjacent entries that are equal."""
        first_index = bisect_right(self.times, now) - 1
        times, free = [now], [self.free[first_index]]
        for time, count in zip(self.times[first_index + 1 :], self.free[first_index + 1 :], strict=True):
            if count != free[-1]:
                times.append(time)
                free.append(count)
        self.times, self.free = times, free

    def take(self, start: float, end: float, gpus: int) -> None:
        """Subtract `gpus` from `start` to `end`. The part before the calendar begins is ignored."""
        self.give_back(start, end, -gpus)

    def give_back(self, start: float, end: float, gpus: int) -> None:
        """Undo `take`."""
        times, free = self.times, self.free
        if start < times[0]:
            start = times[0]
        if end <= start:
            return
        first_index = bisect_left(times, start)
        if first_index == len(times) or times[first_index] != start:  # a boundary from now on
            times.insert(first_index, start)
            free.insert(first_index, free[first_index - 1])
        last_index = bisect_left(times, end, first_index)
        if last_index == len(times) or times[last_index] != end:
            times.insert(last_index, end)
            free.insert(last_index, free[last_index - 1])
        free[first_index:last_index] = [count + gpus for count in free[first_index:last_index]]

    def most(self, end: float) -> int:
        """The most GPUs that are free at any time before `end`, which must lie within the calendar."""
        return max(self.free[: bisect_left(self.times, end)], default=0)

    def full_s(self) -> float:
        """The seconds during which nothing is free, apart from the time after the last boundary."""
        times, last_index = self.times, len(self.times) - 1
        return sum(
            [times[i + 1] - times[i] for i, free in enumerate(self.free) if not free and i < last_index]
        )

    # Forwards

    def least(self, start: float, end: float) -> int:
        """The fewest GPUs that are free at any time from `start` to `end`."""
        first_index, last_index = bisect_right(self.times, start) - 1, bisect_left(self.times, end)
        return min(self.free[max(first_index, 0) : last_index])

    def earliest(self, gpus: int, span_s: float, from_s: float = 0.0) -> float:
        """The first time from `from_s` on at which `gpus` are free for `span_s` seconds; inf if never."""
        times, free, start = self.times, self.free, inf
        last_index = len(times) - 1
        for i in range(max(bisect_right(times, from_s) - 1, 0), last_index + 1):
            if free[i] < gpus:
                start = inf
                continue
            if start == inf:
                start = max(times[i], from_s)
            if i == last_index or times[i + 1] - start >= span_s:
                return start
        return inf

    def gaps(self, gpus: int, from_s: float) -> Iterator[tuple[float, float]]:
        """The maximal intervals from `from_s` on during which `gpus` GPUs are free."""
        start = inf
        for time, free in zip(self.times, self.free, strict=True):
            if free >= gpus:
                start = min(start, max(time, from_s))
            elif start < inf:
                if time > start:
                    yield start, time
                start = inf
        if start < inf:
            yield start, inf

    def stretches(self, gpus: int, start: float, end: float) -> list[tuple[float, float]]:
        """The intervals between `start` and `end` during which exactly `gpus` GPUs are free."""
        first_index, stretches = max(bisect_right(self.times, start) - 1, 0), []
        for i in range(first_index, bisect_left(self.times, end)):
            if self.free[i] == gpus:
                until = self.times[i + 1] if i + 1 < len(self.times) else end
                stretches.append((max(start, self.times[i]), min(end, until)))
        return stretches

    # Backwards

    def backwards(self, end: float, now: float) -> Iterator[tuple[float, int]]:
        """The parts of the calendar from `end` back to `now`, neither of them before it begins: the start of
        each, and the GPUs that are free in it. No part if `end` is not after `now`.
        """
        times, free = self.times, self.free
        last_index = bisect_left(times, end)
        if times[0] == now and len(times) - last_index <= _FEW:  # nearly all of it: no copy
            starts, counts = reversed(times), reversed(free)
            for _ in range(len(times) - last_index):
                next(starts), next(counts)
            return zip(starts, counts, strict=True)
        first_index = bisect_right(times, now) - 1
        if end <= now:
            last_index = first_index
        times = times[first_index:last_index]
        if times:
            times[0] = now
        return zip(reversed(times), reversed(free[first_index:last_index]), strict=True)

    def before(self, end: float) -> int:
        """The GPUs that are free right before `end`, which must lie within the calendar."""
        return self.free[bisect_left(self.times, end) - 1]

    def since(self, gpus: int, end: float) -> float:
        """The earliest time from which `gpus` are free without interruption until `end`; `end` if there is
        none.
        """
        i = bisect_left(self.times, end)
        while i and self.free[i - 1] >= gpus:
            i -= 1
            end = self.times[i]
        return end

    def last(self, gpus: int, end: float) -> float:
        """The last time not after `end` right before which `gpus` are free; -inf if there is none."""
        i = bisect_left(self.times, end)
        while i:
            if self.free[i - 1] >= gpus:
                return end
            i -= 1
            end = self.times[i]
        return -inf


def calendars_as_planned(state: State) -> dict[str, FreeGpus]:
    """The GPUs in service of each type over time, as the run's calendar announces them."""
    in_service = {state.cluster.gpu_types[0]: state.in_service}
    if state.cluster.mixed:
        in_service = state.in_service_by_type()
    calendars = {gpu_type: FreeGpus(state.now, gpus) for gpu_type, gpus in in_service.items()}
    for time_s, gpu_type, gpus in state.planned_changes():
        calendars[gpu_type].give_back(time_s, inf, gpus)
    return calendars
