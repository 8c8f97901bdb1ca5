"""Queueing theory of loss (Erlang B), through the ordinary engine.

Confidence intervals are those of `tests.theory.confidence`, at most 5 % wide either way.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import simulate
from tests.theory.confidence import HALF_WIDTH, interval
from traces.job import Job


class Loss(Scheduler):
    """A job that comes while all GPUs are taken is rejected."""

    def admit(self, job: JobView, state: State) -> bool:
        return state.free > len(state.pending)

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            assert proposal.start(job) is not None
        return proposal


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


def test_erlang_b_by_hand() -> None:
    """c = 1: a / (1 + a). c = 2 at 1 Erlang: (1/2) / (1 + 1 + 1/2)."""
    assert erlang_b(1, 0.7) == pytest.approx(0.7 / 1.7)
    assert erlang_b(2, 1.0) == pytest.approx(0.2)
