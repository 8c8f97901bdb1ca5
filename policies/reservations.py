"""A calendar of GPUs: how many are free at each future time, and how to fill a job's work into it before a
deadline.

Used by the deadline policies. Times are seconds on the trace's clock. Work is counted in units (iterations)
and done at a rate that depends on the number of GPUs; every change of that number costs the job a restart,
during which it holds its GPUs and makes no progress.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from clustersim.scheduler import JobView, block

__all__ = ["Demand", "FreeGpus", "Piece", "fill", "yield_of"]

Piece = tuple[float, float, int]
"""(from, to, GPUs): a stretch of a job's reservation."""

_MOVES_WITHIN_A_NODE = (
    3  # restarts charged to a job smaller than a node, which may have to move to make room for whole nodes
)


class FreeGpus:
    """Free GPUs over time: `free[i]` from `times[i]` to `times[i + 1]`, the last one for ever."""

    __slots__ = ("free", "times")

    def __init__(self, now: float, gpus: int):
        self.times = [now]
        self.free = [gpus]

    def copy(self) -> FreeGpus:
        twin = object.__new__(FreeGpus)
        twin.times, twin.free = self.times[:], self.free[:]
        return twin

    def advance(self, now: float) -> None:
        """Forget what lies before `now`, and join neighbours that are equal."""
        first = bisect_right(self.times, now) - 1
        times, free = [now], [self.free[first]]
        for time, count in zip(self.times[first + 1 :], self.free[first + 1 :], strict=True):
            if count != free[-1]:
                times.append(time)
                free.append(count)
        self.times, self.free = times, free

    def least(self, start: float, end: float) -> int:
        """The fewest GPUs that are free at any time from `start` to `end`."""
        first, last = bisect_right(self.times, start) - 1, bisect_left(self.times, end)
        return min(self.free[max(first, 0) : last])

    def earliest(self, gpus: int, span_s: float, after: float = 0.0) -> float:
        """The first time not before `after` from which `gpus` are free for `span_s` seconds; inf if never."""
        times, free, start = self.times, self.free, inf
        last = len(times) - 1
        for i in range(max(bisect_right(times, after) - 1, 0), last + 1):
            if free[i] < gpus:
                start = inf
                continue
            if start == inf:
                start = max(times[i], after)
            if i == last or times[i + 1] - start >= span_s:
                return start
        return inf

    def gaps(self, gpus: int, after: float) -> Iterator[tuple[float, float]]:
        """The stretches, as long as they last, during which `gpus` GPUs are free, from `after` on."""
        start = inf
        for time, free in zip(self.times, self.free, strict=True):
            if free >= gpus:
                start = min(start, max(time, after))
            elif start < inf:
                if time > start:
                    yield start, time
                start = inf
        if start < inf:
            yield start, inf

    def reserve(self, pieces: list[Piece], blocks: Mapping[int, int]) -> None:
        """Take the block of every piece's size; `blocks` are those of its demand."""
        for start, end, gpus in pieces:
            self._add(start, end, -blocks[gpus])

    def give_back(self, pieces: list[Piece], blocks: Mapping[int, int]) -> None:
        for start, end, gpus in pieces:
            self._add(start, end, blocks[gpus])

    def _add(self, start: float, end: float, gpus: int) -> None:
        start = max(start, self.times[0])
        if end <= start:
            return
        first, last = self._cut(start), self._cut(end)
        for i in range(first, last):
            self.free[i] += gpus

    def _cut(self, time: float) -> int:
        """Make `time` a boundary; returns its index."""
        i = bisect_left(self.times, time)
        if i == len(self.times) or self.times[i] != time:
            self.times.insert(i, time)
            self.free.insert(i, self.free[i - 1])
        return i


@dataclass(slots=True)
class Demand:
    """What one job needs: `sizes` it can use, ascending, with its `rates` (units/s) and `restarts` (s) there.

    `blocks`: the GPUs to reserve for each size, so that whatever is reserved can be placed (see `block`).

    `work`, `gpus` and `paying_s` (overhead left to pay on the GPUs it holds) are as of the last `refresh`.
    `work` is `guard_s` seconds more than the job needs, so that it is done before its reservation ends,
    whatever the rounding.
    """

    job: JobView
    deadline_s: float
    sizes: tuple[int, ...]
    blocks: dict[int, int]
    rates: dict[int, float]
    restarts: dict[int, float]
    guard_s: float
    work: float = 0.0
    gpus: int = 0
    paying_s: float = 0.0

    @classmethod
    def of(cls, job: JobView, guard_s: float, node: int) -> Demand:
        """The demand of `job` on nodes of `node` GPUs.

        A job that asks for a node or more is planned in whole nodes, which are all alike: what is free can
        then always be had.
        """
        whole = tuple(n for n in job.sizes if n % node == 0) if job.requested >= node else ()
        sizes = whole or job.sizes
        blocks = {n: block(n, node) for n in sizes}
        rates = {n: job.rate(n) for n in sizes}
        moves = {n: 1 if n >= node else _MOVES_WITHIN_A_NODE for n in sizes}
        restarts = {n: moves[n] * job.restart_s(n) for n in sizes}
        demand = cls(
            job, inf if job.deadline_s is None else job.deadline_s, sizes, blocks, rates, restarts, guard_s
        )
        demand.refresh()
        return demand

    def refresh(self) -> None:
        smallest = self.sizes[0]
        self.work = (
            self.job.oracle_remaining(smallest) * self.rates[smallest] + self.guard_s * self.rates[smallest]
        )
        self.gpus = self.job.gpus
        self.paying_s = self.job.paying_s

    def least_gpu_seconds(self) -> float:
        """A lower bound of the GPU-seconds that its remaining work takes."""
        return self.work * min(n / self.rates[n] for n in self.sizes)


def fill(free: FreeGpus, demand: Demand, now: float) -> list[Piece] | None:
    """Reserve nothing yet: find pieces in `free` that finish `demand` by its deadline at the smallest
    level, or None.

    A level is one of the job's sizes. At level n the job takes n GPUs, or the largest of its sizes that is
    free where fewer are, from its deadline backwards until its work is done: as late as possible, which
    leaves the near future to others (ElasticFlow, ASPLOS 2023, section 4.1: the smallest such level is the
    job's minimum satisfactory share). A restart is charged at the start of every piece.
    """
    span = demand.deadline_s - now
    for level in demand.sizes:
        if demand.rates[level] * span < demand.work:
            continue
        pieces = _fill_at(free, demand, level, now)
        if pieces is not None:
            return pieces
    return None


def _fill_at(free: FreeGpus, demand: Demand, level: int, now: float) -> list[Piece] | None:
    times, counts = free.times, free.free
    need = demand.work
    pieces: list[Piece] = []
    end = upper = demand.deadline_s  # of the piece that is open, of the stretch that is looked at
    gpus = 0
    for i in range(bisect_left(times, upper) - 1, -1, -1):
        here = level if counts[i] >= demand.blocks[level] else _largest(demand, counts[i])
        if here != gpus:
            if gpus:
                done = (end - upper - demand.restarts[gpus]) * demand.rates[gpus]
                if done > 0:
                    pieces.append((upper, end, gpus))
                    need -= done
            gpus, end = here, upper
        lower = times[i]
        if lower < now:
            lower = now
        if gpus:
            whole = need / demand.rates[gpus]
            start = end - demand.restarts[gpus] - whole
            if start >= lower:
                pieces.append((start, end, gpus))
                return pieces[::-1]
            if lower == now and gpus == demand.gpus and end - now - demand.paying_s >= whole:
                pieces.append((now, end, gpus))  # goes on as it runs, without a restart
                return pieces[::-1]
        if lower == now:
            return None
        upper = lower
    return None


def _largest(demand: Demand, limit: int) -> int:
    """The largest size whose block is at most `limit`, 0 if there is none."""
    i = bisect_right(demand.sizes, limit)
    while i and demand.blocks[demand.sizes[i - 1]] > limit:
        i -= 1
    return demand.sizes[i - 1] if i else 0


def yield_of(pieces: list[Piece], demand: Demand, now: float) -> float:
    """The work that the rest of a reservation does from `now` on, if the job follows it."""
    total = 0.0
    for start, end, gpus in pieces:
        begin = max(start, now)
        if end <= begin:
            continue
        goes_on = start <= now and gpus == demand.gpus
        pays = demand.paying_s if goes_on else demand.restarts[gpus]
        total += max(0.0, end - begin - pays) * demand.rates[gpus]
    return total


def shorten(pieces: list[Piece], demand: Demand, now: float) -> list[Piece]:
    """The latest part of a reservation that still does the job's remaining work: what it no longer needs
    comes off the front.
    """
    need = demand.work
    kept: list[Piece] = []
    for start, end, gpus in reversed(pieces):
        if need <= 0:
            break
        begin = max(start, now)
        if end <= begin:
            break
        rate, restart = demand.rates[gpus], demand.restarts[gpus]
        latest = end - restart - need / rate
        if latest > begin:
            kept.append((latest, end, gpus))
            need = 0.0
        else:
            kept.append((begin, end, gpus))
            need -= max(0.0, end - begin - restart) * rate
    return kept[::-1]
