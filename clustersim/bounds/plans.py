"""The cheapest plans of jobs where GPU-seconds have a price, by dynamic programming over intervals.

A *plan* of a job is a sequence of pieces. On each the job holds GPUs of one of its options, and works at that
option's rate, but for the overhead with which the piece begins: `launch_s` of the first, `restart_s` of every
later one. Here the work has a price too, the multiplier mu: a plan costs what its GPU-seconds cost, less mu
for each unit of its work. Work is counted in units of the whole job, so it adds up to 1.

*Statement.* Prices are constant in each interval. The forward pass finds the least cost over all plans that
end at a breakpoint, where pieces may be shorter than their overheads: such a piece does negative work, which
only costs.

*Proof.* The overhead of a piece on option o is a fixed charge of mu x rate x overhead. Between two
breakpoints the rest of the cost is linear in the times of the switches there. So it is least with each of
them at one of the two breakpoints, and some cheapest plan switches at breakpoints and at the release only.
The states of such a plan are "not started", "idle" and the options. One interval after the other, the pass
finds the least cost of each state. []
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .columns import Floats, Ints, OptionColumns

__all__ = ["Forward", "Jobs", "Pieces", "forward", "trace_back"]

Codes = npt.NDArray[np.int8]
_NEVER = 1e30  # overhead, in works, of an option that a job does not have
_DROP_AT = 0.15  # share of jobs that are over, at which the arrays are made smaller
_STAYED, _AGAIN, _FIRST = np.int8(0), np.int8(1), np.int8(2)  # how a piece is held: as before, after another


@dataclass(frozen=True, eq=False)
class Jobs:
    """Some jobs as tables of (option, job): units of work per second, GPUs, GPU type, and overheads as work
    that is lost. `first`: the interval in which a job is released. `until_s`: where plans end; None: anywhere
    """

    release_s: Floats
    until_s: Floats | None
    first: Ints
    rate: Floats
    count: Floats
    type: Ints
    launch: Floats
    restart: Floats

    @classmethod
    def of(cls, columns: OptionColumns, rows: Ints, edges_s: Floats, until_s: Floats | None) -> Jobs:
        """The jobs of these rows of `columns`, which all have work to do."""
        kinds = [(kind, np.nonzero(np.isin(rows, kind.jobs))[0]) for kind in columns.kinds]
        shape = (
            max((len(kind.gpus) for kind, rows_of_kind in kinds if len(rows_of_kind)), default=0),
            len(rows),
        )
        rate, count, types = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
        launch, restart = np.full(shape, _NEVER), np.full(shape, _NEVER)
        for kind, rows_of_kind in kinds:
            options = np.arange(len(kind.gpus))[:, None]
            share = kind.rate[:, None] / columns.work[rows[rows_of_kind]]
            rate[options, rows_of_kind], count[options, rows_of_kind] = share, kind.gpus[:, None]
            launch[options, rows_of_kind] = kind.launch_s[:, None] * share
            restart[options, rows_of_kind] = kind.restart_s[:, None] * share
            types[options, rows_of_kind] = kind.gpu_type[:, None]
        release_s = columns.release_s[rows]
        first_interval = np.clip(np.searchsorted(edges_s, release_s, "right") - 1, 0, len(edges_s) - 2)
        until_s = None if until_s is None else until_s[rows]
        return cls(release_s, until_s, first_interval, rate, count, types, launch, restart)

    def __len__(self) -> int:
        return len(self.release_s)

    @property
    def fastest_s(self) -> Floats:
        """Seconds of each job's work on its fastest option."""
        return 1.0 / self.rate.max(0)


@dataclass(eq=False)
class Forward:
    """A forward pass. Entry k of each list is about the jobs `rows[k]` in their k-th interval, and all
    multipliers: the least objective of a plan that ends at the `left` and the `right` edge, as
    (job, multiplier); whence the cheapest plans came, for `trace_back`.

    The objective is the cost + mu, and the JCT if plans may end anywhere. `least`: what each job's plan that
    ends in the interval costs at least; empty where ends are given. `stop_s`: from this JCT on, no plan was
    looked at, because none is cheaper than the least found.
    """

    stop_s: Floats
    rows: list[Ints] = field(default_factory=list)
    left: list[Floats] = field(default_factory=list)
    right: list[Floats] = field(default_factory=list)
    least: list[Floats] = field(default_factory=list)
    came: list[Codes] = field(default_factory=list)
    best: list[Codes] = field(default_factory=list)


def forward(jobs: Jobs, edges_s: Floats, price: Floats, multipliers: Floats, keep: bool) -> Forward:
    """The least objectives of `jobs` under `price`, as (GPU type, interval), and `multipliers`, as
    (job, multiplier). `keep`: for `trace_back`.

    Step k is about the k-th interval of every job from that of its release on. `cost` is the least cost of
    the plans that hold each option then, `idle` that of plans that hold none any more; others cost nothing.

    A job is over at its `until_s`, or when its JCT is no less than the least objective so far: the objective
    of a plan that ends later is at least that JCT.
    """
    size, last_interval = multipliers.shape, len(edges_s) - 2
    result = Forward(np.full(len(jobs), np.inf))
    rows, interval, release_s, mu = np.arange(len(jobs)), jobs.first.copy(), jobs.release_s, multipliers
    count, types, until_s = jobs.count, jobs.type, jobs.until_s
    rate, launch, restart = (table[:, :, None] * mu for table in (jobs.rate, jobs.launch, jobs.restart))
    cost, idle = np.full(rate.shape, np.inf), np.full(size, np.inf)
    multiplier_left, least_cost = mu, np.full(len(jobs), np.inf)
    begins_s, steps_left = release_s, last_interval + 1 - int(jobs.first.max(initial=0))
    while len(rows):
        ends_s = edges_s[interval + 1]
        if until_s is not None:
            ends_s = np.minimum(ends_s, until_s)
        came = _begin_pieces(cost, idle, launch, restart, keep)
        span_s = ends_s - begins_s if until_s is None else np.maximum(ends_s - begins_s, 0.0)
        per_gpu = price[0, interval] if len(price) == 1 else price[types, interval]
        cost += _rise(per_gpu * count, rate, span_s)
        least_held = np.minimum.reduce(cost, axis=0)
        best = _best_ends(cost, least_held, idle) if keep else None
        np.minimum(idle, least_held, out=idle)
        multiplier_right = mu + np.minimum(idle, 0.0)
        if best is not None and came is not None:
            np.copyto(best, np.int8(-1), where=idle > 0)  # not to start at all is cheaper
            result.came.append(came)
            result.best.append(best)
        if until_s is None:
            taken_s = ends_s - release_s
            multiplier_right += taken_s[:, None]
            result.least.append(np.minimum(multiplier_left, multiplier_right).max(1))
            least_cost = np.minimum(least_cost, result.least[-1])
            over = taken_s >= least_cost
        else:
            over = ends_s >= until_s
        result.rows.append(rows)
        result.left.append(multiplier_left)
        result.right.append(multiplier_right)
        interval, multiplier_left = interval + 1, multiplier_right
        steps_left -= 1
        if not steps_left or np.count_nonzero(over) > _DROP_AT * len(over):  # a few are cheaper than a copy
            if until_s is None:
                result.stop_s[rows] = taken_s
            go = ~(over | (interval > last_interval))
            rows, interval, release_s, mu = rows[go], interval[go], release_s[go], mu[go]
            least_cost, multiplier_left, idle = least_cost[go], multiplier_left[go], idle[go]
            count, types = count[:, go], types[:, go]
            cost, rate, launch, restart = cost[:, go], rate[:, go], launch[:, go], restart[:, go]
            until_s = None if until_s is None else until_s[go]
            steps_left = last_interval + 1 - int(interval.max(initial=0))
        begins_s = edges_s[interval]
    return result


def _rise(rent: Floats, rate: Floats, span_s: Floats) -> Floats:
    """How much the cost of holding each option rises in an interval, by its `rent` in a second."""
    rise = rent[:, :, None] - rate
    rise *= span_s[:, None]
    return rise


def _begin_pieces(cost: Floats, idle: Floats, launch: Floats, restart: Floats, keep: bool) -> Codes | None:
    """Let each option begin a piece where that is cheaper than to stay on it. Changes `cost`; returns how
    each is held.
    """
    entry = idle + restart
    came = (launch <= entry).view(np.int8) if keep else None
    np.minimum(entry, launch, out=entry)
    if came is not None:
        came += _AGAIN  # _FIRST where it was true
        came *= entry < cost  # else _STAYED
    np.minimum(cost, entry, out=cost)
    return came


def _best_ends(cost: Floats, least_held: Floats, idle: Floats) -> Codes:
    """The option with which the cheapest plan holds GPUs until now; their number if it is idle already.
    `least_held`: the least of each column of `cost`.
    """
    best = cost.argmin(0).astype(np.int8)
    np.copyto(best, np.int8(len(cost)), where=idle <= least_held)
    return best


@dataclass(frozen=True, eq=False)
class Pieces:
    """What traced plans hold in one interval each: for `jobs`, the `interval`, GPU-seconds and GPU type as
    (job, plan).
    """

    jobs: Ints
    interval: Ints
    gpu_seconds: Floats
    type: Ints


def trace_back(
    jobs: Jobs, edges_s: Floats, costs: Forward, end_columns: Ints, ends: Ints
) -> tuple[Floats, list[Pieces]]:
    """The cheapest plans of multipliers `end_columns` that end after the job's interval number `ends` (-1: at
    the release), both as (job, plan). Returns the work that they do, as (job, plan), and what they hold.
    """
    options, work, pieces = len(jobs.rate), np.zeros(end_columns.shape), []
    state = np.full(
        end_columns.shape, -1
    )  # the option held at the end of an interval; `options`: the best end
    last_interval = ends.max(1)
    for k in range(int(last_interval.max(initial=-1)), -1, -1):
        rows = np.nonzero(last_interval[costs.rows[k]] >= k)[0]
        jobs_here = costs.rows[k][rows]
        rows, column, held = rows[:, None], end_columns[jobs_here], state[jobs_here]
        held[ends[jobs_here] == k] = options
        held = np.where(held == options, costs.best[k][rows, column], held)
        on = (held >= 0) & (held < options)
        option, row = np.where(on, held, 0), jobs_here[:, None]
        interval = jobs.first[jobs_here] + k
        begins_s = edges_s[interval] if k else jobs.release_s[jobs_here]
        ends_s = edges_s[interval + 1]
        if jobs.until_s is not None:
            ends_s = np.minimum(ends_s, jobs.until_s[jobs_here])
        span_s = np.where(on, (ends_s - begins_s)[:, None], 0.0)
        came = np.where(on, costs.came[k][option, rows, column], _STAYED)
        place = option * len(jobs) + row  # in the tables, flat
        done = work[jobs_here] + jobs.rate.take(place) * span_s
        if came.any():
            again, first = came == _AGAIN, came == _FIRST
            done -= np.where(again, jobs.restart.take(place), 0.0)
            done -= np.where(first, jobs.launch.take(place), 0.0)
            held[again], held[first] = options, -1
        work[jobs_here], state[jobs_here] = done, held
        pieces.append(Pieces(jobs_here, interval, jobs.count.take(place) * span_s, jobs.type.take(place)))
    return work, pieces
