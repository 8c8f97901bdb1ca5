"""Queueing theory beyond FIFO: processor sharing (M/G/1-PS) and loss (Erlang B), through the ordinary engine.

Confidence intervals as in `test_theory`: Student's over independent replications, 99 %, at most 5 % wide
either way.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from scipy import stats

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from traces.job import Job

CONFIDENCE, HALF_WIDTH = 0.99, 0.05
SLOTS = 8
TABLE = {("shared", 1): {n: n / SLOTS for n in range(1, SLOTS + 1)}}


class Sharing(Scheduler):
    """Processor sharing as far as whole GPUs go: every job holds the same number of GPUs; when they do not
    divide evenly, or are too few, the jobs take turns of `quantum_s` seconds.
    """

    def __init__(self, quantum_s: float):
        self.quantum_s = quantum_s
        self._turn = 0

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        if not jobs:
            return proposal
        each, over = divmod(state.cluster.gpus, len(jobs))
        self._turn += 1
        favoured = {(self._turn * max(1, over) + i) % len(jobs) for i in range(over)}
        wanted = {job: each + (i in favoured) for i, job in enumerate(jobs)}
        for job in list(state.running):
            if not wanted[job]:
                proposal.stop(job)
            elif wanted[job] < job.gpus:
                proposal.resize(job, wanted[job])
        for job, gpus in wanted.items():
            if gpus > proposal.gpus(job):
                put = proposal.resize if proposal.gpus(job) else proposal.start
                assert put(job, gpus) is not None
        if over:
            proposal.wake_at = state.now + self.quantum_s
        return proposal


class Loss(Scheduler):
    """Whoever comes while all GPUs are taken is turned away."""

    def admit(self, job: JobView, state: State) -> bool:
        return state.free > len(state.pending)

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            assert proposal.start(job) is not None
        return proposal


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half-width."""
    t = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(np.mean(values)), float(t * stats.sem(values))


def erlang_b(servers: int, offered: float) -> float:
    """Blocking probability of M/G/c/c (Erlang 1917; Kleinrock 1975, section 3.6)."""
    terms = [offered**k / factorial(k) for k in range(servers + 1)]
    return terms[-1] / sum(terms)


def hyperexponential(rng: np.random.Generator, count: int) -> np.ndarray:
    """Mean 1 s, squared coefficient of variation 3: under FIFO jobs would wait twice as long."""
    return rng.exponential(np.where(rng.random(count) < 0.75, 0.5, 2.5), count)


def constant(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.ones(count)


SIZES = {"hyperexponential": hyperexponential, "constant": constant}


@pytest.mark.parametrize(("servers", "sizes"), [(1, "hyperexponential"), (4, "constant")])
def test_erlang_b(servers: int, sizes: str) -> None:
    """The share of jobs that are turned away depends on the run times through their mean alone."""
    offered = 0.7 * servers

    def lost(seed: int) -> float:
        rng = np.random.default_rng([servers, seed])
        submit_s = np.cumsum(rng.exponential(1 / offered, 8000))
        run_s = SIZES[sizes](rng, 8000)
        jobs = [Job(str(i), submit_s[i], gpus=1, duration_s=run_s[i]) for i in range(8000)]
        records = simulate(jobs, Loss(), f"n1g{servers}").records
        return sum(record.state == "rejected" for record in records) / len(records)

    found, half_width = interval([lost(seed) for seed in range(10)])
    expected = erlang_b(servers, offered)
    assert half_width <= HALF_WIDTH * expected
    assert abs(found - expected) <= half_width, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"


def test_mean_time_in_m_d_1_processor_sharing() -> None:
    """E[T] = E[S] / (1 - rho), whatever the distribution of S (Kleinrock, Queueing Systems II, 1976, section
    4.4); for equal jobs, which under FIFO would take 1 + rho / (2 (1 - rho)), a quarter less.

    The control variate is the time that the server was busy, whose mean is known.
    """
    load, count, slowness = 0.5, 1200, 100.0  # runs of 100 s, so that a turn of 1 s is short

    def run(seed: int) -> tuple[float, float]:
        rng = np.random.default_rng([11, seed])
        submit_s = np.cumsum(rng.exponential(slowness / load, count))
        work = constant(rng, count) * slowness  # in seconds on all GPUs, on which the rate is 1
        jobs = [
            Job(str(i), submit_s[i], model="shared", global_batch=1, gpus=SLOTS, iterations=work[i])
            for i in range(count)
        ]
        outcome: Outcome = simulate(jobs, Sharing(quantum_s=4.0), f"n1g{SLOTS}", table=TABLE)
        assert all(record.state == "finished" for record in outcome.records)
        times = [record.jct_s for record in outcome.records if record.jct_s is not None]
        return float(np.mean(times)) / slowness, float(work.sum() / submit_s[-1]) - load

    runs = np.array([run(seed) for seed in range(10)])
    slope = np.cov(runs.T)[0, 1] / np.var(runs[:, 1], ddof=1)
    found, half_width = interval(list(runs[:, 0] - slope * runs[:, 1]))
    expected = 1 / (1 - load)
    assert half_width <= HALF_WIDTH * expected, f"{found:.4f} +- {half_width:.4f}"
    assert abs(found - expected) <= half_width, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"


def test_erlang_b_by_hand() -> None:
    """c = 1: a / (1 + a). c = 2 at 1 Erlang: (1/2) / (1 + 1 + 1/2)."""
    assert erlang_b(1, 0.7) == pytest.approx(0.7 / 1.7)
    assert erlang_b(2, 1.0) == pytest.approx(0.2)
