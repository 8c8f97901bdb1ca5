"""GPUs moved from the jobs that lose least to the jobs that gain most, by slopes of their speeds (Rubick).

A job's speed is normalised, so that slopes of different jobs can be compared. Its ladder keeps the counts on
the upper concave envelope of the speed over the GPUs, from the least count on. Slopes then fall from step to
step, and a step never hides a better one behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Division", "Ladder", "ladder"]

_MARGIN = 1e-9  # relative; an exchange for no gain but rounding would never end


class _Ordered(Protocol):
    @property
    def order(self) -> int:
        """Position in the order of submission; ties go to the first."""


J = TypeVar("J", bound=_Ordered)
_Step = tuple[float, int, J, int]
"""Of a heap: slope, order of the job, the job, and the GPUs from which it steps."""


class Ladder(NamedTuple):
    """The counts at which a job may run, ascending, and its normalised speed at every count that it can have.

    The first count is the least that the job keeps, 0 for a job that may be stopped.
    """

    counts: tuple[int, ...]
    speeds: Mapping[int, float]

    def slope(self, low: int, high: int) -> float:
        """Normalised speed per GPU from `low` GPUs to `high`."""
        return (self.speeds[high] - self.speeds[low]) / (high - low)

    def above(self, held: int) -> int:
        """The next count above `held`, which is below the last."""
        return self.counts[bisect_right(self.counts, held)]

    def below(self, held: int) -> int:
        """The next count below `held`, which is above the first."""
        return self.counts[bisect_left(self.counts, held) - 1]


def ladder(
    speeds: Mapping[int, float], least_gpus: int, request_speed: Mapping[int, float] | None = None
) -> Ladder:
    """The ladder of a job with these speeds by GPU count, that keeps `least_gpus` GPUs, one of the counts or
    0. `request_speed`: speeds at counts that the job may hold, and that are no steps.

    >>> ladder({1: 1.0, 2: 1.1, 4: 3.0, 8: 3.5}, 0).counts
    (0, 1, 4, 8)
    """
    speed_by_count = {0: 0.0, **speeds}
    counts: list[int] = []
    for count in sorted(n for n in speed_by_count if n >= least_gpus):
        while len(counts) > 1 and _below(speed_by_count, counts[-2], counts[-1], count):
            counts.pop()
        counts.append(count)
    return Ladder(tuple(counts), {**(request_speed or {}), **speed_by_count})


def _below(speeds: Mapping[int, float], low: int, middle: int, high: int) -> bool:
    """Whether the point of `middle` is below the line from `low` to `high`."""
    rise = (speeds[high] - speeds[low]) * (middle - low)
    return (speeds[middle] - speeds[low]) * (high - low) < rise


class Division(Generic[J]):
    """Which job holds how many GPUs while they are divided. `free`: GPUs of no job.

    `held` has the GPUs by job. A job that is not settled keeps what it holds. One that is not movable gives
    GPUs only where room is made for others (`make_room`).
    """

    def __init__(self, free: int):
        self.free = free
        self.held: dict[J, int] = {}
        self._ladders: dict[J, Ladder] = {}
        self._movable: dict[J, bool] = {}  # the settled jobs
        self._spare = 0  # GPUs of settled jobs above their least count
        self._refused: float = inf  # the fewest GPUs that a job without any did not get
        self.room_refused = False
        """Whether room could not be made that jobs which are not settled might give."""
        self._gains: list[_Step[J]] = []  # heaps of next and of last steps, the first to take in front;
        self._losses: list[_Step[J]] = []  # entries of counts that a job no longer has are passed over

    def add(self, job: J, steps: Ladder, held: int, *, settled: bool = True, movable: bool = True) -> None:
        """A job that holds `held` of the GPUs that are not free."""
        self.held[job], self._ladders[job] = held, steps
        if settled:
            self._movable[job] = movable
            self._spare += max(0, held - steps.counts[0])

    def start(self, job: J, steps: Ladder, gpus: int, *, settled: bool = True) -> None:
        """Give a job without GPUs `gpus` of the free ones."""
        self.free -= gpus
        self.add(job, steps, gpus, settled=settled)

    def may_serve(self, gpus: float) -> bool:
        """Whether a job that takes its first step, to `gpus` GPUs or more, may find them. Jobs are served by
        falling slope, so no later one gets as many as an earlier one did not get.
        """
        return gpus < self._refused and gpus <= self._within_reach

    @property
    def _within_reach(self) -> int:
        """GPUs that are free, or that settled jobs hold above their least counts."""
        return self.free + self._spare

    def make_room(self, gpus: int) -> bool:
        """Take steps back until `gpus` GPUs are free, those of the smallest loss per GPU first. If that is
        not possible, nothing changes.
        """
        if gpus <= self.free:
            return True
        if self.may_serve(gpus):
            self._list_losses(self._movable)
            if self._take_back(gpus - self.free, inf, inf):
                return True
        self._refused, self.room_refused = min(self._refused, gpus), True
        return False

    def could_step(self, job: J) -> bool:
        """Whether the free GPUs are enough for the next step of the job."""
        steps, held = self._ladders[job], self.held[job]
        return held < steps.counts[-1] and steps.above(held) - held <= self.free

    def exchange(self, newcomers: Iterable[tuple[J, Ladder]] = ()) -> None:
        """Let jobs take steps, the steepest first: on free GPUs, else on those of less steep last steps, if
        that raises the sum of speeds. A step that finds no GPUs is not tried again.

        `newcomers`: jobs without GPUs that may start, by falling slope of their first steps. Those that do
        not are in `held`, with 0 GPUs.
        """
        moving = [job for job, movable in self._movable.items() if movable]
        self._list_losses(moving)
        self._gains = []
        for job in moving:
            self._list_gain(job)
        arriving = iter(newcomers)
        newest = self._let_arrive(arriving)
        while self._gains and self._within_reach:
            slope, _, job, count = heappop(self._gains)
            held = self.held[job]
            if count != held:
                continue
            added_gpus = self._ladders[job].above(held) - held
            room = added_gpus <= self.free
            if not room:
                victims = self._take_back(added_gpus - self.free, -slope, -slope * added_gpus, job)
                for victim in victims:
                    self._list_gain(victim)
                room = bool(victims)
            if room:
                self._change(job, held + added_gpus)
                self._list_gain(job)
            if job is newest:
                if not room:
                    self._refused = min(self._refused, added_gpus)
                newest = self._let_arrive(arriving)

    def _let_arrive(self, arriving: Iterator[tuple[J, Ladder]]) -> J | None:
        """The next of the jobs without GPUs. They come by falling slope, so one at a time is enough."""
        newcomer = next(arriving, None)
        if newcomer is None:
            return None
        self.add(*newcomer, 0)
        self._list_gain(newcomer[0])
        return newcomer[0]

    def _take_back(self, gpus: int, slope: float, gain: float, taker: J | None = None) -> dict[J, None]:
        """Free `gpus` more GPUs by last steps less steep than `slope` that lose less than `gain` in all.
        Returns the jobs that gave some; if there are none, nothing has changed.
        """
        freed, limit = 0, slope * (1 - _MARGIN)
        shrunk: list[tuple[J, int, int]] = []  # job, and its GPUs before and after
        reverse_steps: list[_Step[J]] = []
        while freed < gpus and self._losses and self._losses[0][0] < limit:
            entry = heappop(self._losses)
            job, held = entry[2], self.held[entry[2]]
            if job is taker:
                reverse_steps.append(entry)
            elif entry[3] == held:
                count = self._ladders[job].below(held)
                shrunk.append((job, held, count))
                freed += held - count
                self._change(job, count)
        for entry in reverse_steps:
            heappush(self._losses, entry)
        victims: dict[J, None] = {}
        loss = 0.0
        for job, gpus_before, gpus_after in reversed(shrunk):  # some of the steps may not be needed
            if freed >= gpus and (job in victims or freed - (gpus_before - gpus_after) < gpus):
                victims[job] = None
                loss += self._ladders[job].speeds[gpus_before] - self._ladders[job].speeds[gpus_after]
            else:
                freed -= gpus_before - gpus_after if freed >= gpus else 0
                self._change(job, gpus_before)
        if loss < gain * (1 - _MARGIN):
            return victims
        for job, gpus_before, _ in reversed(shrunk):
            if job in victims:
                self._change(job, gpus_before)
        return {}

    def _change(self, job: J, gpus: int) -> None:
        """Give the job another count; its last step is listed anew."""
        held, least_gpus = self.held[job], self._ladders[job].counts[0]
        self.held[job] = gpus
        self.free += held - gpus
        self._spare += max(0, gpus - least_gpus) - max(0, held - least_gpus)
        self._list_loss(job)

    def _list_losses(self, jobs: Iterable[J]) -> None:
        self._losses = []
        for job in jobs:
            self._list_loss(job)

    def _list_loss(self, job: J) -> None:
        """Enter the last step of the job, if it can give it. Of equal ones that of the last job is first."""
        steps, held = self._ladders[job], self.held[job]
        if held > steps.counts[0]:
            heappush(self._losses, (steps.slope(steps.below(held), held), -job.order, job, held))

    def _list_gain(self, job: J) -> None:
        """Enter the next step of the job, if there is one. Of equal ones that of the first job is first."""
        steps, held = self._ladders[job], self.held[job]
        if held < steps.counts[-1]:
            heappush(self._gains, (-steps.slope(held, steps.above(held)), job.order, job, held))
