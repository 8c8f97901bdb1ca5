"""The bound that prices of GPU-seconds give, for any prices: Lagrangian duality.

The limit of GPUs ties the jobs to each other. Without it, and with a price for each GPU-second instead, each
job has a problem of its own. The sum of their optima, less the price of all GPUs, is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Floats, Ints, OptionColumns
from .plans import Forward, Jobs, forward, trace_back

__all__ = ["Relaxation", "Solution"]

_ROUNDING = 1e-9  # relative, more than that of an interpolation
_MOST_JOBS, _MOST_CELLS = 2000, 11_000  # at a time, which bounds the memory; a cell is an option of a job


@dataclass(frozen=True, eq=False)
class Solution:
    """The relaxed problem, solved at given prices. `value`: what each job's cheapest plan costs at least.
    `multiplier`: the marginal cost of each job's work, nearer where `held` is known: the GPU-seconds of these
    plans, as (GPU type, interval). Both are approximate, and `held` is None where it was not asked for.
    """

    value: Floats
    multiplier: Floats
    held: Floats | None = None


@dataclass(frozen=True, eq=False)
class _Ends:
    """The cheapest end of each job: in interval number `step` of the job, at the share `theta` of it, between
    the multipliers number `column` and the next.
    """

    value: Floats
    step: Ints
    theta: Floats
    column: Ints


class Relaxation:
    """Jobs that pay for GPU-seconds and need not share GPUs. Prices are constant between the breakpoints
    `edges_s`, and 0 outside them. Plans end anywhere (`free_end`), or all at `ends_s`, which are a guess
    otherwise. All jobs have work to do. `rigid`: each has one option.

    *Statement.* Take prices lam(t) >= 0 by GPU type. Let V_j(lam) be the least JCT + price of the GPU-seconds
    held, over the plans of job j. The sum of JCTs of any run is at least
    D(lam) = sum of V_j(lam) - sum over types of GPUs x integral of lam.

    *Proof.* Take a run, in which job j holds n_j(t) GPUs. The held GPUs of a type never exceed its GPUs, so
    the sum of JCTs is at least itself + the integral of lam x (sum of n_j - GPUs). Regrouped by job, this is
    the sum of JCT + price of what each job holds, less the price of all GPUs. Now drop the allocations of j
    that add nothing to its work: the price falls, and the JCT stays. Those that are left are the pieces of a
    plan. In the run, too, the first pays at least its launch and each later one at least its restart
    (`Option`). Contention, saves and lost work only slow the run down. So the plan does the work of j or
    more, and costs at least V_j. []

    *Statement.* `Solution.value` is at most V_j, for any finite set of multipliers mu.

    *Proof.* The cost of a plan that does the work or more does not grow if mu x (1 - its work) is added, for
    any mu >= 0. Let g(C, mu) be the least such objective over all plans that end at C (see `plans`),
    whatever work they do. Then V_j is at least the minimum over C of the maximum over mu of g(C, mu). For
    fixed mu some best plan switches at breakpoints only, and as it goes on beyond one its objective is linear
    in C. So between two breakpoints g is the least of linear functions. It is concave in C, and lies above
    the straight line between its ends. The larger of two such lines, for two multipliers, is least over C at
    an edge or where they cross. The objective of a plan that ends after `stop_s` is at least `stop_s`. []
    """

    def __init__(self, columns: OptionColumns, edges_s: Floats, ends_s: Floats, free_end: bool = True):
        self.edges_s, self.gpus = edges_s, columns.gpus
        chunks, until_s = _chunks(columns, edges_s, ends_s), None if free_end else ends_s
        self._chunks = [(rows, Jobs.of(columns, rows, edges_s, until_s)) for rows in chunks]
        self._jobs, self.free_end, self.rigid = len(columns), free_end, columns.rigid

    @property
    def spans_s(self) -> Floats:
        """Seconds of each interval."""
        return np.diff(self.edges_s)

    def capacity_price(self, price: Floats) -> float:
        """The price of all GPUs over all time: sum over types of GPUs x integral of `price`."""
        return float(self.gpus @ (price @ self.spans_s))

    def multipliers(self, price: Floats, columns: int) -> Floats:
        """Multipliers among which the best one of every job is likely to be, as (job, column), ascending in
        each row: from what its work costs at no price to what it costs at the highest.
        """
        multipliers = np.empty((self._jobs, columns))
        highest_price = float(price.max(initial=0.0))
        for rows, jobs in self._chunks:
            gpus = np.where(jobs.rate > 0, jobs.count, np.inf)
            with np.errstate(divide="ignore", invalid="ignore"):
                takes_s = (1.0 + jobs.launch) / jobs.rate
                dear = np.nanmin((self.free_end + highest_price * gpus) * takes_s, axis=0)
            if self.free_end:
                low, high = 0.8 * jobs.fastest_s, 2.0 * np.maximum(dear, jobs.fastest_s)
            else:
                low, high = np.maximum(dear / 1000, 1e-12), np.maximum(8 * dear, 1e-9)
            multipliers[rows] = np.geomspace(low, high, columns, axis=1)
        return multipliers

    def solve(self, price: Floats, multipliers: Floats, held: bool = False) -> Solution:
        """The solution at `price`, as (GPU type, interval), of at least 0; `multipliers` as (job, column),
        ascending in each row. `held`: whether what the plans hold is wanted too.
        """
        value, middle = np.empty(self._jobs), np.empty(self._jobs)
        total = np.zeros((len(self.gpus), len(self.edges_s) - 1))
        for rows, jobs in self._chunks:
            columns = multipliers[rows]
            costs = forward(jobs, self.edges_s, price, columns, held)
            ends = _free_ends(costs) if self.free_end else _fixed_ends(costs)
            value[rows] = ends.value
            if held:
                middle[rows] = _add_held(total, jobs, self.edges_s, costs, ends, columns)
            else:
                middle[rows] = np.exp(_log_pair(columns, ends).mean(1))
        return Solution(value, middle, total if held else None)


def _chunks(columns: OptionColumns, edges_s: Floats, ends_s: Floats) -> list[Ints]:
    """The rows of the jobs that are solved together, each list in order of release.

    Their intervals are passed one after the other, as long as any job needs. So jobs go together that see
    as many intervals until `ends_s`.
    """
    rows = np.argsort(columns.release_s, kind="stable")
    intervals = np.searchsorted(edges_s, ends_s) - np.searchsorted(edges_s, columns.release_s)
    places = np.argsort(intervals[rows], kind="stable")
    options = max((len(kind.gpus) for kind in columns.kinds), default=1)
    size = max(1, min(_MOST_JOBS, _MOST_CELLS // options))
    return [rows[np.sort(places[i : i + size])] for i in range(0, len(rows), size)]


def _free_ends(costs: Forward) -> _Ends:
    """The cheapest ends where plans end anywhere.

    The least value of an end in an interval is at least `Forward.least`, and at most that of an end at one of
    its edges. So most intervals are out of the question.
    """
    rows, least = np.concatenate(costs.rows), np.concatenate(costs.least)
    most = np.concatenate(
        [np.minimum(left.max(1), right.max(1)) for left, right in zip(costs.left, costs.right, strict=True)]
    )
    upper_bound = np.full(len(costs.stop_s), np.inf)
    np.minimum.at(upper_bound, rows, most)
    likely = np.nonzero(least <= (upper_bound + _ROUNDING * np.abs(upper_bound))[rows])[0]
    step = np.repeat(np.arange(len(costs.rows)), [len(part) for part in costs.rows])[likely]
    left_values, right_values = (np.concatenate(parts)[likely] for parts in (costs.left, costs.right))
    rows = rows[likely]
    apart_left, apart_right = (
        left_values[:, :-1] - left_values[:, 1:],
        right_values[:, :-1] - right_values[:, 1:],
    )
    crosses = apart_left * apart_right < 0
    theta = np.divide(apart_left, apart_left - apart_right, out=np.zeros_like(apart_left), where=crosses)
    meet = np.where(
        crosses, left_values[:, :-1] + theta * (right_values[:, :-1] - left_values[:, :-1]), np.inf
    )
    at_left, at_right = (
        np.maximum(left_values[:, :-1], left_values[:, 1:]),
        np.maximum(right_values[:, :-1], right_values[:, 1:]),
    )
    least_value = np.minimum(np.minimum(at_left, at_right), meet)
    # Of pairs with the same maximum the one with the larger sum has the best multiplier between its two.
    sums = np.minimum(left_values[:, :-1] + left_values[:, 1:], right_values[:, :-1] + right_values[:, 1:])
    column = (least_value + 1e-9 * sums).argmax(1)
    columns = np.arange(len(column))
    value = least_value[columns, column]
    order = np.lexsort((value, rows))
    best = order[np.append(True, np.diff(rows[order]) > 0)]  # of each job, in the order of jobs
    column = column[best]
    met, early, late = meet[best, column], at_left[best, column], at_right[best, column]
    share = np.where((met <= early) & (met <= late), theta[best, column], np.where(late < early, 1.0, 0.0))
    return _Ends(np.minimum(value[best], costs.stop_s), step[best], share, column)


def _fixed_ends(costs: Forward) -> _Ends:
    """The ends where they are given: after the last interval of each job."""
    jobs = len(costs.stop_s)
    step, value = np.zeros(jobs, dtype=np.int64), np.empty((jobs, costs.right[0].shape[1]))
    for k, (rows, right_values) in enumerate(zip(costs.rows, costs.right, strict=True)):
        step[rows], value[rows] = k, right_values
    column = (np.maximum(value[:, :-1], value[:, 1:]) + 1e-9 * (value[:, :-1] + value[:, 1:])).argmax(1)
    return _Ends(np.minimum(value.max(1), 1.0), step, np.ones(jobs), column)


def _add_held(
    total: Floats, jobs: Jobs, edges_s: Floats, costs: Forward, ends: _Ends, multipliers: Floats
) -> Floats:
    """Add what the plans hold to `total`, and return the multipliers between those of the plans.

    A job carries out a mixture of four plans: those of two multipliers that end at the two edges around its
    cheapest end. The weights of the ends follow from `theta`, those of the multipliers from the work, which
    adds up to that of the job; if both do more, their weights are scaled down.
    """
    end_columns = np.stack([ends.column, ends.column, ends.column + 1, ends.column + 1], axis=1)
    steps = np.stack([ends.step - 1, ends.step] * 2, axis=1)
    work, pieces = trace_back(jobs, edges_s, costs, end_columns, steps)
    early, late = 1.0 - ends.theta, ends.theta
    low, high = work[:, 0] * early + work[:, 1] * late, work[:, 2] * early + work[:, 3] * late
    share = np.divide(high - 1.0, high - low, out=np.ones_like(low), where=high > low).clip(0.0, 1.0)
    done = share * low + (1.0 - share) * high
    weights = np.stack([share * early, share * late, (1 - share) * early, (1 - share) * late], axis=1)
    weights /= np.maximum(1.0, done)[:, None]
    if jobs.until_s is not None:
        weights[ends.value >= 1.0] = 0.0
    for piece in pieces:
        amount = piece.gpu_seconds * weights[piece.jobs]
        for gpu_type in range(len(total)):
            gpus_of_type = amount if len(total) == 1 else np.where(piece.type == gpu_type, amount, 0.0)
            total[gpu_type] += np.bincount(piece.interval, gpus_of_type.sum(1), len(total[gpu_type]))
    pair = _log_pair(multipliers, ends)
    middle: Floats = np.exp(share * pair[:, 0] + (1.0 - share) * pair[:, 1])
    # Plans that do too little work have too small a multiplier, and those that do too much too large a one.
    return middle * np.where(done < 0.97, 1.3, np.where(done > 1.03, 1 / 1.6, 1.0))


def _log_pair(multipliers: Floats, ends: _Ends) -> Floats:
    """The logarithms of the two multipliers between which the best one of each job lies, as (job, 2)."""
    columns = np.stack([ends.column, ends.column + 1], axis=1)
    logarithms: Floats = np.log(np.take_along_axis(multipliers, columns, axis=1))
    return logarithms
