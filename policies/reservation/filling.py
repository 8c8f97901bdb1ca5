"""How a job's work is reserved before its deadline.

Used by the deadline policies. Times are seconds on the trace's clock. Work is counted in units (iterations)
and done at a rate that depends on the number of GPUs; every change of that number or of the address costs the
job a restart, during which it holds its GPUs and makes no progress.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from clustersim.scheduler import JobView

from .calendar import WHOLE, Piece, Room

__all__ = ["Demand", "fill", "shorten", "yield_of"]


@dataclass(slots=True)
class Demand:
    """What one job needs: `sizes` it can use, ascending, with its `rates` (units/s) and `restarts` (s) there,
    and the whole `nodes` that each takes.

    `work`, `gpus` and `paying_s` (overhead left to pay on the GPUs it holds) are as of the last `refresh`.
    `work` is `guard_s` seconds more than the job needs, so that it is done before its reservation ends,
    whatever the rounding. `in_place`: it holds what it has reserved for now, where it has reserved it, so
    that the restart of that piece is paid, or being paid. `counts_on_launch`: it has never run, and its
    reservation begins with a launch, not a restart.
    """

    job: JobView
    deadline_s: float
    sizes: tuple[int, ...]
    nodes: tuple[int, ...]
    rates: dict[int, float]
    restarts: dict[int, float]
    guard_s: float
    work: float = 0.0
    gpus: int = 0
    paying_s: float = 0.0
    in_place: bool = False
    counts_on_launch: bool = False

    @classmethod
    def of(cls, job: JobView, guard_s: float, node: int) -> Demand:
        """The demand of `job` on nodes of `node` GPUs.

        A job that asks for a node or more is planned in whole nodes, if its fastest size is such a count.
        """
        in_nodes = job.requested >= node and job.sizes[-1] % node == 0
        sizes = tuple(n for n in job.sizes if n % node == 0) if in_nodes else job.sizes
        nodes = tuple(-(-n // node) for n in sizes)
        rates = {n: job.rate(n) for n in sizes}
        restarts = {n: job.restart_s(n) for n in sizes}
        deadline_s = inf if job.deadline_s is None else job.deadline_s
        demand = cls(job, deadline_s, sizes, nodes, rates, restarts, guard_s)
        demand.refresh()
        return demand

    def refresh(self) -> None:
        smallest = self.sizes[0]
        self.work = (
            self.job.oracle_remaining(smallest) * self.rates[smallest] + self.guard_s * self.rates[smallest]
        )
        self.gpus = self.job.gpus
        self.paying_s = self.job.paying_s
        self.counts_on_launch = self.counts_on_launch and not self.job.started

    def opening_s(self, gpus: int) -> float:
        """What is charged at the start of the first piece of a reservation."""
        return self.job.start_cost_s(gpus) if self.counts_on_launch else self.restarts[gpus]

    def dearer_restarts(self) -> bool:
        """Whether a first start is cheaper than a restart on any of its sizes."""
        return any(self.opening_s(gpus) < self.restarts[gpus] for gpus in self.sizes)

    def least_gpu_seconds(self) -> float:
        """A lower bound of the GPU-seconds that its remaining work takes."""
        return self.work * min(n / self.rates[n] for n in self.sizes)


def fill(room: Room, demand: Demand, now: float, home: int | None = None) -> list[Piece] | None:
    """Reserve nothing yet: find pieces in `room` that finish `demand` by its deadline at the smallest
    level, or None.

    A level is one of the job's sizes. At level n the job takes n GPUs, or the largest of its sizes that is
    free where fewer are, from its deadline backwards until its work is done: as late as possible, which
    leaves the near future to others (ElasticFlow, ASPLOS 2023, section 4.1: the smallest such level is the
    job's minimum satisfactory share). A restart is charged at the start of every piece, except of one in
    which the job goes on as it runs: at the address `home`, where what it holds may become its own; and of
    the first one of a job that counts on a launch.
    """
    span = demand.deadline_s - now
    fill_at = _fill_whole if demand.sizes[0] >= room.gpus_per_node else _fill_shared
    for level in demand.sizes:
        if demand.rates[level] * span < demand.work:
            continue
        pieces = fill_at(room, demand, level, now, home)
        if pieces is not None:
            return pieces
    return None


def _fill_whole(room: Room, demand: Demand, level: int, now: float, home: int | None) -> list[Piece] | None:
    """For a job that needs a node or more on any of its sizes: nodes are counted."""
    times, counts = room.whole.times, room.whole.free
    nodes, sizes = demand.nodes, demand.sizes
    enough = nodes[sizes.index(level)]
    need = demand.work
    pieces: list[Piece] = []
    end = upper = demand.deadline_s  # of the piece that is open, of the stretch that is looked at
    gpus = 0
    for i in range(bisect_left(times, upper) - 1, -1, -1):
        if counts[i] >= enough:
            here = level
        else:
            fitting = bisect_right(nodes, counts[i])
            here = sizes[fitting - 1] if fitting else 0
        if here != gpus:
            if gpus:
                done = (end - upper - demand.restarts[gpus]) * demand.rates[gpus]
                if done > 0:
                    pieces.append(Piece(upper, end, gpus))
                    need -= done
            gpus, end = here, upper
        lower = times[i]
        if lower < now:
            lower = now
        if gpus:
            whole = need / demand.rates[gpus]
            start = end - demand.opening_s(gpus) - whole
            if start >= lower:
                pieces.append(Piece(start, end, gpus))
                return pieces[::-1]
            if lower == now and home == WHOLE and _goes_on(demand, gpus, end - now, whole):
                pieces.append(Piece(now, end, gpus))
                return pieces[::-1]
        if lower == now:
            return None
        upper = lower
    return None


def _fill_shared(room: Room, demand: Demand, level: int, now: float, home: int | None) -> list[Piece] | None:
    """For a job that also runs on less than a node: every piece of that kind has a virtual node."""
    need, end = demand.work, demand.deadline_s
    pieces: list[Piece] = []
    while end > now:
        gpus = room.largest(demand.sizes, level, end)
        larger = _above(demand.sizes, gpus)
        change = now if gpus == level else max(now, room.last(larger, end))
        if not gpus:
            end = change
            continue
        whole = need / demand.rates[gpus]
        start = end - demand.opening_s(gpus) - whole
        node, since = room.stay(gpus, end, max(start, change), home)
        lower = max(since, change)
        if start >= lower:
            pieces.append(Piece(start, end, gpus, node))
            return pieces[::-1]
        if lower == now and node == home and _goes_on(demand, gpus, end - now, whole):
            pieces.append(Piece(now, end, gpus, node))
            return pieces[::-1]
        done = (end - lower - demand.restarts[gpus]) * demand.rates[gpus]
        if done > 0:
            pieces.append(Piece(lower, end, gpus, node))
            need -= done
        end = lower
    return None


def _above(sizes: Sequence[int], gpus: int) -> int:
    """The next size above `gpus`; the largest if there is none."""
    return next((size for size in sizes if size > gpus), sizes[-1])


def _goes_on(demand: Demand, gpus: int, span_s: float, work_s: float) -> bool:
    """Whether the job is done within `span_s` seconds on the `gpus` GPUs that it holds, without a restart."""
    return gpus == demand.gpus and span_s - demand.paying_s >= work_s


def yield_of(pieces: Sequence[Piece], demand: Demand, now: float) -> float:
    """The work that the rest of a reservation does from `now` on, if the job follows it."""
    total, first = 0.0, True
    for start, end, gpus, _ in pieces:
        begin = max(start, now)
        if end <= begin:
            continue
        pays = demand.opening_s(gpus) if first else demand.restarts[gpus]
        if demand.in_place and start <= now:
            pays = demand.paying_s
        total += max(0.0, end - begin - pays) * demand.rates[gpus]
        first = False
    return total


def shorten(pieces: Sequence[Piece], demand: Demand, now: float) -> list[Piece]:
    """The latest part of a reservation that still does the job's remaining work: what it no longer needs
    comes off the front.
    """
    need = demand.work
    kept: list[Piece] = []
    for start, end, gpus, node in reversed(pieces):
        if need <= 0:
            break
        begin = max(start, now)
        if end <= begin:
            break
        rate, restart = demand.rates[gpus], demand.restarts[gpus]
        latest = end - demand.opening_s(gpus) - need / rate
        if latest > begin:
            kept.append(Piece(latest, end, gpus, node))
            need = 0.0
        else:
            kept.append(Piece(begin, end, gpus, node))
            need -= max(0.0, end - begin - restart) * rate
    return kept[::-1]
