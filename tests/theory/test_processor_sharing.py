"""Queueing theory of sharing through the ordinary engine: M/G/1 processor sharing, for any sizes of jobs.

All jobs in the system are served at once, each at an equal part of the speed. Then the mean time in the
system is E[T] = E[S] / (1 - rho), and that of a job of size x is E[T | x] = x / (1 - rho), whatever the
distribution of sizes (Kleinrock, Queueing Systems II, 1976, section 4.4). A cluster can share in two ways:

- by space: elastic jobs, whose speed is their number of GPUs, hold equal numbers of 840 GPUs. Up to 8 jobs
  divide them without a remainder; of n jobs, each has 840/n GPUs but for one: its speed is off by n/840 at
  most. `test_shares_of_gpus_are_processor_sharing` holds that to processor sharing, job by job.
- by time: one GPU in turns of a quantum. The error is proportional to the quantum q, so that 2 T(q/2) - T(q),
  from the same jobs, is free of it to first order. For equal jobs, where it is largest, the mean is low by
  some 0.2 q / x at load 0.5 (2 % where a quantum is a tenth of the size x). Jobs of less than a few quanta
  are not shared with, but wait for whole turns: slowdowns by size are taken from four quanta on.

Confidence intervals are 99 %, over independent replications whose first jobs are left out, at most 5 % wide
either way, with control variates of known mean (Lavenberg and Welch, "A perspective on the use of control
variables to increase the efficiency of Monte Carlo simulations", Management Science 27, 1981): the work that
arrived, and the wait of the same jobs under FIFO, whose mean Pollaczek and Khinchine give.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from scipy import stats

from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from policies.fifo import Fifo
from policies.round_robin import RoundRobin
from tests.effort import first
from tests.tables import table_rows
from traces.job import Job

CONFIDENCE, HALF_WIDTH = 0.99, 0.05
WARM_UP, REPLICATIONS = 300, 20
SLOTS = 840  # divided by every number up to 8
TABLE = {("shared", 1): {n: n / SLOTS for n in range(1, SLOTS + 1)}}
SCALE_S = 1000.0  # the mean size: a turn lasts a second at least

Controls = Sequence[tuple[float, float]]
Draw = Callable[[np.random.Generator, int], np.ndarray]
FIRST = (1 + (4 / 6) ** 0.5) / 2
SIZES: dict[str, tuple[float, Draw]] = {  # mean 1; the squared coefficient of variation
    "constant": (0.0, lambda rng, n: np.ones(n)),
    "exponential": (1.0, lambda rng, n: rng.exponential(1.0, n)),
    # two kinds of jobs, with half of the work each
    "hyperexponential": (
        5.0,
        lambda rng, n: rng.exponential(np.where(rng.random(n) < FIRST, 0.5 / FIRST, 0.5 / (1 - FIRST)), n),
    ),
}


class EqualShares(Scheduler):
    """Every job in the system holds the same number of GPUs; what is left over goes to the first."""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        if not jobs:
            return proposal
        each, over = divmod(state.cluster.gpus, len(jobs))
        wanted = {job: each + (i < over) for i, job in enumerate(jobs)}
        for job in list(state.running):
            if wanted[job] < job.gpus:
                proposal.resize(job, wanted[job])
        for job, gpus in wanted.items():
            if gpus > proposal.gpus(job):
                put = proposal.resize if proposal.gpus(job) else proposal.start
                assert put(job, gpus) is not None
        return proposal


class Arrivals:
    """Poisson arrivals of jobs of random sizes, mean 1, at a load; times and sizes in units of the mean."""

    def __init__(self, sizes: str, load: float, count: int, seed: int):
        self.variation, draw = SIZES[sizes]
        rng = np.random.default_rng([list(SIZES).index(sizes), round(100 * load), count, seed])
        self.load, self.sizes = load, draw(rng, count)
        self.submitted = np.cumsum(rng.exponential(1 / load, count))

    def times(self, outcome: Outcome) -> np.ndarray:
        """Time in the system, job by job."""
        found = {record.job_id: record for record in outcome.records}
        jct_s = [found[str(i)].jct_s for i in range(len(self.sizes))]
        return np.array(jct_s, dtype=float) / SCALE_S

    def by_space(self) -> np.ndarray:
        jobs = [
            Job(str(i), t * SCALE_S, model="shared", global_batch=1, gpus=SLOTS, iterations=x * SCALE_S)
            for i, (t, x) in enumerate(zip(self.submitted, self.sizes, strict=True))
        ]
        return self.times(simulate(jobs, EqualShares(), "n14g60", table=TABLE, placement="any"))

    def by_time(self, policy: Scheduler) -> np.ndarray:
        jobs = [
            Job(str(i), t * SCALE_S, gpus=1, duration_s=x * SCALE_S)
            for i, (t, x) in enumerate(zip(self.submitted, self.sizes, strict=True))
        ]
        return self.times(simulate(jobs, policy, "n1g1"))

    def in_turns(self, quantum: float) -> np.ndarray:
        return self.by_time(RoundRobin(quantum_s=quantum * SCALE_S))

    def shared(self) -> tuple[np.ndarray, int]:
        """Processor sharing itself, outside the engine; and the most jobs that were there at once. A job is
        done when the time at which one job's share grows has come on by its size.
        """
        done, most = np.zeros(len(self.sizes)), 0
        now = grown = 0.0
        here: list[tuple[float, int]] = []
        for i, next_s in enumerate([*self.submitted, inf]):
            while here and now + (here[0][0] - grown) * len(here) <= next_s:
                now += (here[0][0] - grown) * len(here)
                grown, job = heappop(here)
                done[job] = now
            if i < len(self.sizes):
                grown += (next_s - now) / len(here) if here else 0.0
                now = next_s
                heappush(here, (grown + self.sizes[i], i))
                most = max(most, len(here))
        return done - self.submitted, most

    def controls(self) -> tuple[float, float]:
        """Of mean 0: the work that arrived more than was expected, and the wait under FIFO."""
        gaps = np.diff(self.submitted, prepend=0.0)
        waits, wait, before = [], 0.0, 0.0
        for gap, size in zip(gaps, self.sizes, strict=True):
            wait = max(0.0, wait + before - gap)  # Lindley 1952
            waits.append(wait)
            before = size
        expected = self.load * (1 + self.variation) / (2 * (1 - self.load))
        more = np.mean(self.sizes[WARM_UP:] - self.load * gaps[WARM_UP:])
        return float(more), float(np.mean(waits[WARM_UP:]) - expected)


def interval(
    values: Sequence[float], controls: Controls, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Mean at controls of 0, by least squares, and its half width."""
    design = np.column_stack([np.ones(len(values)), np.array(controls)])
    (mean, *slopes), *_ = np.linalg.lstsq(design, values, rcond=None)
    rest = np.array(values) - design @ [mean, *slopes]
    free = len(values) - design.shape[1]
    variance = rest @ rest / free * np.linalg.inv(design.T @ design)[0, 0]
    return float(mean), float(stats.t.ppf((1 + confidence) / 2, free) * variance**0.5)


def assert_found(
    values: Sequence[float], controls: Controls, expected: float, confidence: float = CONFIDENCE
) -> None:
    found, half_width = interval(values, controls, confidence)
    assert half_width <= HALF_WIDTH * expected, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"
    assert abs(found - expected) <= half_width, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"


@pytest.mark.parametrize("sizes", SIZES)
def test_the_sizes_are_as_stated(sizes: str) -> None:
    variation, draw = SIZES[sizes]
    drawn = draw(np.random.default_rng(0), 1_000_000)
    assert drawn.mean() == pytest.approx(1.0, rel=0.01)
    assert drawn.var() == pytest.approx(variation, rel=0.03)


@pytest.mark.parametrize("sizes", SIZES)
def test_shares_of_gpus_are_processor_sharing(sizes: str) -> None:
    """Job by job; to rounding while at most 8 jobs are there, else to n/840."""
    for load, count in ((0.3, 150), (0.7, 400)):
        arrivals = Arrivals(sizes, load, count, 0)
        exact, most = arrivals.shared()
        assert most > 3
        assert arrivals.by_space() == pytest.approx(exact, rel=1e-9 if most <= 8 else most / SLOTS)


def classes(sizes: str, least: float) -> list[tuple[float, float]]:
    """Small, middle and large jobs, a third each of those not smaller than `least`; one class where all are
    equal.
    """
    if sizes == "constant":
        return [(least, inf)]
    drawn = SIZES[sizes][1](np.random.default_rng(0), 300_000)
    edges = [least, *np.quantile(drawn[drawn >= least], [1 / 3, 2 / 3]), inf]
    return list(pairwise(edges))


def assert_processor_sharing(
    runs: Sequence[Arrivals], times: Sequence[np.ndarray], sizes: str, least: float = 0.0
) -> None:
    """The mean time, and the mean slowdown of each class of sizes, are 1 / (1 - rho)."""
    controls, expected = [run.controls() for run in runs], 1 / (1 - runs[0].load)
    assert_found([float(time[WARM_UP:].mean()) for time in times], controls, expected)
    parts = classes(sizes, least)
    for low, high in parts:
        slowdowns = []
        for run, time in zip(runs, times, strict=True):
            chosen = (run.sizes >= low) & (run.sizes < high)
            chosen[:WARM_UP] = False
            slowdowns.append(float(np.mean(time[chosen] / run.sizes[chosen])))
        assert_found(slowdowns, controls, expected, 1 - (1 - CONFIDENCE) / len(parts))


@pytest.mark.parametrize(
    ("sizes", "count"), first(1, [("constant", 600), ("exponential", 1100), ("hyperexponential", 1500)])
)
def test_mean_time_and_slowdown_by_size(sizes: str, count: int) -> None:
    runs = [Arrivals(sizes, 0.5, count, seed) for seed in range(REPLICATIONS)]
    assert_processor_sharing(runs, [run.by_space() for run in runs], sizes)


def test_turns_become_processor_sharing_as_they_get_shorter() -> None:
    """Equal jobs, for which turns that are too long make the greatest difference: under FIFO the mean is
    1 + rho / (2 (1 - rho)), a quarter less.
    """
    runs = [Arrivals("constant", 0.5, 600, seed) for seed in range(REPLICATIONS // 4)]
    controls = [run.controls() for run in runs]
    long, short, fifo = (
        [float(time[WARM_UP:].mean()) for time in times]
        for times in (
            [run.in_turns(1 / 10) for run in runs],
            [run.in_turns(1 / 20) for run in runs],
            [run.by_time(Fifo()) for run in runs],
        )
    )
    assert_found([2 * after - before for before, after in zip(long, short, strict=True)], controls, 2.0)
    assert interval(fifo, controls)[0] == pytest.approx(1.5), "the control variate itself"
    of_long, of_short = (interval(times, controls)[0] - 2.0 for times in (long, short))
    assert of_short / of_long == pytest.approx(0.5, abs=0.1), "the error is proportional to the quantum"
    assert -0.25 / 10 < of_long / 2.0 < 0.0, "at most the part of FIFO's error that goes with the quantum"


@pytest.mark.long
@pytest.mark.parametrize(("sizes", "load", "count"), table_rows("mean time and slowdown by size in turns"))
def test_mean_time_and_slowdown_by_size_in_turns(sizes: str, load: float, count: int) -> None:
    quantum = 1 / 20
    runs = [Arrivals(sizes, load, count, seed) for seed in range(REPLICATIONS)]
    times = [2 * run.in_turns(quantum / 2) - run.in_turns(quantum) for run in runs]
    assert_processor_sharing(runs, times, sizes, least=4 * quantum)
