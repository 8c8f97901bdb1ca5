"""What one job needs of one GPU type, and what follows from the GPUs that it holds.

Times are seconds on the trace's clock. Work is counted in iterations and done at a rate that depends on the
number of GPUs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobCurve, JobView

from .gpu_types import Room, Share, held_on

__all__ = ["Demand", "Holding", "Kind", "Kinds", "Outlook"]

_AHEAD = 0.2  # the share of its work for which a job's outlook holds
_EASED = 1e-9  # relative; far more than the rounding of GPU times


class Holding(NamedTuple):
    """What does not change while a job holds the GPUs of `share`, a reservable size.

    `needs`: the GPUs that it lacks for its next reservable size, infinite if there is none. The growth of GPU
    time per GPU added by which it goes on to a larger size, after a restart, to finish there is at least
    `work x growth_of_work + growth_of_restart` (see `least_growth`). If its work is between `first_above` and
    `first_below`, and it had no GPUs, the first GPUs that it should get are those it holds (`is_first`).
    """

    share: Share
    needs: float
    growth_of_work: float
    growth_of_restart: float
    first_above: float
    first_below: float

    def least_growth(self, work: float) -> float:
        """A lower bound of the growth of GPU time per GPU added (seconds) by which the job goes to a larger
        size, to finish there. Below the growth of every step by more than rounding; infinite if there is no
        larger size.
        """
        return work * self.growth_of_work + self.growth_of_restart

    def is_first(self, work: float) -> bool:
        """Whether, from no GPUs on, the growth of GPU time per GPU added is smaller by more than rounding to
        the size held than to any other one. The latter costs a restart.
        """
        return self.first_above < work < self.first_below


class Outlook(NamedTuple):
    """What is known of the steps of a job for as long as it holds the GPUs of `share`, up to `until_s`,
    whatever its work is by then. See `Holding` for `needs`.

    The growth of GPU time per GPU added is at most `most_to_stay` by which the job goes on as it is, instead
    of having no GPUs, and that is its first step; infinite if it need not be. It is at least `least_to_grow`
    by which the job goes on to a larger size.
    """

    share: Share
    until_s: float
    needs: float
    most_to_stay: float
    least_to_grow: float


def _least_growth(held: int, table: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """The least growth of GPU time per GPU added and iteration left, and that by restarts."""
    now_s = next(size / rate for size, rate, _ in table if size == held)
    work, restart = inf, inf
    for size, rate, restart_s in table:
        if size > held:
            added, then_s = size - held, size / rate
            work = min(work, (then_s - now_s - _EASED * (then_s + now_s)) / added)
            restart = min(restart, (1 - _EASED) * size * restart_s / added)
    return work, restart


def _first_between(held: int, table: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """The work left between which `Holding.is_first` is true. The growth to a size of n GPUs at rate r with
    restart s is

        work / r + s - (n0 work / r0 + n0 s0) / n,

    where 0 is the smallest size, and s is 0 for the size held. So the difference of two sizes is linear in
    the work.
    """
    least, least_rate, least_restart_s = table[0]
    held_rate = next(rate for size, rate, _ in table if size == held)
    above, below = 0.0, inf
    work_s, restart_s = least / least_rate, least * least_restart_s
    for size, rate, s in table:
        if size == held:
            continue
        slope = 1 / rate - 1 / held_rate - work_s * (1 / size - 1 / held)
        slope -= _EASED * (1 / rate + 1 / held_rate + work_s * (1 / size + 1 / held))
        offset = s - restart_s * (1 / size - 1 / held)
        offset -= _EASED * (s + restart_s * (1 / size + 1 / held))
        if slope > 0:
            above = max(above, -offset / slope)
        elif offset > 0:
            below = min(below, -offset / slope if slope else inf)
        else:
            return inf, inf
    return above, below


class Kind:
    """What all jobs of one kind need of one GPU type. `gpu_type` is "" where all GPUs are alike.

    `reservable`: the sizes that a job may reserve, ascending: all its sizes, or only those of whole nodes
    (see `of`). `nodes`: the number of nodes that each of them takes if it takes whole ones. `rates`
    (iterations/s) and `restarts` (s) hold for every size, whether reservable or not.

    | derived | |
    |---|---|
    | `table` | the reservable sizes with their rates and restarts |
    | `least_gpu_s` | GPU-seconds per iteration on the most efficient reservable size |
    | `least_restart_s` | the shortest restart of any size |
    | `size_on` | by whole nodes, up to those of the largest size: the largest reservable size, or 0 |
    | `fastest_up_to` | by reservable size: more than the rate of any size up to it, by rounding |
    """

    __slots__ = (
        "_holdings", "fastest_up_to", "gpu_type", "least_gpu_s", "least_restart_s", "nodes", "rates",
        "reservable", "restarts", "size_on", "table",
    )  # fmt: skip

    def __init__(
        self, reservable: tuple[int, ...], nodes: tuple[int, ...], rates: dict[int, float],
        restarts: dict[int, float], gpu_type: str = "",
    ):  # fmt: skip
        self.reservable, self.nodes, self.rates, self.restarts = reservable, nodes, rates, restarts
        self.gpu_type = gpu_type
        self.table = tuple((n, rates[n], restarts[n]) for n in reservable)
        self.least_gpu_s = min(n / rates[n] for n in reservable)
        self.least_restart_s = min(restarts.values())
        fitting = (bisect_right(nodes, count) for count in range(nodes[-1] + 1))
        self.size_on = tuple(reservable[found - 1] if found else 0 for found in fitting)
        highest = accumulate(((1 + _EASED) * rates[n] for n in reservable), max)
        self.fastest_up_to = dict(zip(reservable, highest, strict=True))
        self._holdings: dict[int, Holding] = {}

    @classmethod
    def of(cls, job: JobView, gpus_per_node: int, gpu_type: str = "") -> Kind:
        """The kind of `job` on nodes of `gpus_per_node` GPUs of a type that can run it. A job that requests a
        node or more is planned in whole nodes, if its fastest size is a number of whole nodes.
        """
        sizes = reservable = job.sizes_on(gpu_type) if gpu_type else job.sizes
        if job.requested >= gpus_per_node and sizes[-1] % gpus_per_node == 0:
            reservable = tuple(n for n in sizes if n % gpus_per_node == 0)
        return cls(
            reservable,
            nodes=tuple(-(-n // gpus_per_node) for n in reservable),
            rates={n: job.rate(n, gpu_type or None) for n in sizes},
            restarts={n: job.restart_s(n) for n in sizes},
            gpu_type=gpu_type,
        )

    def holding(self, gpus: int) -> Holding | None:
        """What follows from holding `gpus` GPUs; None unless they are a reservable size."""
        found = self._holdings.get(gpus)
        if found is None and gpus in self.reservable:
            table = self.table
            needs = min((size - gpus for size in self.reservable if size > gpus), default=inf)
            bounds = (*_least_growth(gpus, table), *_first_between(gpus, table))
            found = self._holdings[gpus] = Holding(Share(gpus, self.gpu_type), needs, *bounds)
        return found


class Kinds:
    """The kinds of the jobs of one simulation, each made once."""

    def __init__(self, rooms: Mapping[str, Room]):
        self._rooms = rooms
        self._known: dict[tuple[JobCurve, bool], Kind] = {}

    def of(self, job: JobView, gpu_type: str) -> Kind:
        """See `Kind.of`."""
        gpus_per_node = self._rooms[gpu_type].gpus_per_node
        key = job.curve_on(gpu_type) if gpu_type else job.curve, job.requested >= gpus_per_node
        kind = self._known.get(key)
        if kind is None:
            kind = self._known[key] = Kind.of(job, gpus_per_node, gpu_type)
        return kind


@dataclass(slots=True)
class Demand:
    """What one job needs of one GPU type; see its `kind` for what is the same for others.

    `work`, `gpus` (GPUs of the type that it holds), `paying_s` (overhead left to pay on the GPUs that it
    holds, of any type) and `counts_on_launch` are as of the last `refresh`. What compares them with a
    reservation (`search`, `shorten`, `yield_of`, and what uses these) needs them as of now: its callers
    refresh. `work` is `guard_s` seconds more than the job needs, so that rounding never leaves work undone at
    the end of the reservation. `in_place`: the job holds the GPUs that it has reserved for now, at the
    reserved address, so the restart of that slot is paid or being paid. `counts_on_launch`: the job has never
    run, and its reservation begins with a launch, not with a restart. `order`: that of submission. `outlook`:
    as of the last `look_ahead`; None once the job has lost GPUs and may have lost work with them. A stop by
    the policy loses none.
    """

    job: JobView
    deadline_s: float
    kind: Kind
    guard_s: float
    work: float = 0.0
    gpus: int = 0
    paying_s: float = 0.0
    in_place: bool = False
    counts_on_launch: bool = False
    order: int = 0
    outlook: Outlook | None = field(default=None, repr=False, compare=False)
    gpu_type: str = field(init=False, repr=False)
    reservable: tuple[int, ...] = field(init=False, repr=False)
    nodes: tuple[int, ...] = field(init=False, repr=False)
    rates: dict[int, float] = field(init=False, repr=False)
    restarts: dict[int, float] = field(init=False, repr=False)
    table: tuple[tuple[int, float, float], ...] = field(init=False, repr=False)
    size_on: tuple[int, ...] = field(init=False, repr=False)
    _guard: float = field(init=False, repr=False)
    """The work of `guard_s` seconds on the smallest reservable size."""

    def __post_init__(self) -> None:
        kind = self.kind
        self.gpu_type, self.reservable, self.nodes = kind.gpu_type, kind.reservable, kind.nodes
        self.rates, self.restarts = kind.rates, kind.restarts
        self.table, self.size_on = kind.table, kind.size_on
        self._guard = self.guard_s * self.table[0][1]

    @classmethod
    def of(cls, job: JobView, kind: Kind, guard_s: float) -> Demand:
        """The demand of `job`, as of now."""
        deadline_s = inf if job.deadline_s is None else job.deadline_s
        demand = cls(job, deadline_s, kind, guard_s, order=job.order)
        demand.refresh()
        return demand

    def refresh(self) -> None:
        """Take over what the job has done and holds now."""
        job, gpu_type = self.job, self.gpu_type
        self.refresh_work()
        self.gpus = held_on(job, gpu_type) if gpu_type else job.gpus
        self.paying_s = job.paying_s
        if self.counts_on_launch:
            self.counts_on_launch = not job.started

    def refresh_work(self) -> float:
        """Take over what the job has done, and return the work left."""
        smallest, rate, _ = self.table[0]
        self.work = self.job.oracle_remaining(smallest, self.gpu_type or None) * rate + self._guard
        return self.work

    def opening_s(self, gpus: int) -> float:
        """What the first slot of a reservation is charged at its start."""
        return self.job.start_cost_s(gpus) if self.counts_on_launch else self.restarts[gpus]

    def launch_is_cheaper(self) -> bool:
        """Whether the start of the first slot costs less than a restart on any size."""
        return any(self.opening_s(gpus) < self.restarts[gpus] for gpus in self.reservable)

    def speed_per_gpu(self) -> float:
        """Iterations/s per GPU at the most efficient size."""
        return max(self.rates[n] / n for n in self.reservable)

    def fastest(self) -> float:
        """Iterations/s on the largest size."""
        return self.rates[self.reservable[-1]]

    def least_gpu_seconds(self) -> float:
        """A lower bound of the GPU-seconds that the remaining work takes."""
        return self.work * self.kind.least_gpu_s

    def look_ahead(self, gpus: int, now: float) -> Outlook:
        """The outlook of a job that holds `gpus` GPUs, until it has done a fifth of its work.

        No job works faster than its rate: placement, checkpoints and other jobs only slow it down. The growth
        of GPU time is linear in the work left, so it is between those at both ends. The outlook of a job in
        phases, of which the rate may rise, is over at once.
        """
        work, holding = self.refresh_work(), self.kind.holding(gpus)
        if holding is None:
            self.outlook = Outlook(Share(gpus, self.gpu_type), inf, inf, inf, -inf)
        else:
            later = work * (1 - _AHEAD)
            ahead_s = 0.0 if self.job.phases else (1 - _EASED) * (work - later) / self.rates[gpus]
            most, least = inf, min(holding.least_growth(work), holding.least_growth(later))
            if holding.is_first(work) and holding.is_first(later) and not self.counts_on_launch:
                most = max(self.growth_of_staying(gpus, work), self.growth_of_staying(gpus, later))
            self.outlook = Outlook(holding.share, now + ahead_s, holding.needs, most, least)
        return self.outlook

    def growth_of_staying(self, gpus: int, work: float) -> float:
        """The growth of GPU time per GPU added (seconds) by which a job goes on with its `work`, on the
        reservable size that it holds, instead of finishing on the smallest one later on. Of jobs on one GPU
        type.
        """
        least, least_rate, restart_s = self.table[0]
        return (gpus * (work / self.rates[gpus]) - least * (work / least_rate + restart_s)) / gpus
