"""One GPU as a queue M/M/1 whose jobs misstate their sizes, through the ordinary engine.

Any policy that knows nothing of sizes has the mean response time of first come, first served, since what is
left of an exponential job is exponential (Kleinrock, Queueing Systems II, 1976, section 3.4). Knowing all
sizes, shortest remaining time first is optimal (Schrage 1968). Statements with errors lie between.
"""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from scipy.integrate import quad

from clustersim.scheduler import Scheduler
from clustersim.testing import simulate
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import elastic
from tests.theory.confidence import interval
from traces.estimates import Estimates
from traces.job import Job

LOAD, WARM_UP, REPLICATIONS = 0.7, 100, 8
TABLE = {("m", 8): {1: 1.0}}


def jobs_of(seed: int, sigma: float) -> list[Job]:
    """Poisson arrivals, exponential work of mean 1 s on one GPU."""
    rng, count = np.random.default_rng([11, seed]), 800
    submit_s, work = np.cumsum(rng.exponential(1 / LOAD, count)), rng.exponential(1.0, count)
    jobs = [elastic(str(i), float(submit_s[i]), 1, float(work[i])) for i in range(count)]
    return [Estimates(sigma).applied_to(job, seed) for job in jobs]


def mean_response_s(jobs: list[Job], policy: Scheduler) -> float:
    outcome = simulate(jobs, policy, "n1g1", table=TABLE)
    responses = {record.job_id: record.jct_s for record in outcome.records}
    return float(np.mean([responses[job.job_id] for job in jobs[WARM_UP:]]))


def shortest_remaining_s() -> float:
    """Schrage and Miller, "The queue M/G/1 with the shortest remaining processing time discipline", 1966:
    a job of size x waits for lambda (int_0^x t^2 f + x^2 (1 - F(x))) / (2 (1 - rho(x))^2), then stays for
    int_0^x dt / (1 - rho(t)), where rho(x) = lambda int_0^x t f.
    """

    def rho(x: float) -> float:
        return LOAD * (1 - (1 + x) * exp(-x))

    def response_s(x: float) -> float:
        squares = 2 - (x * x + 2 * x + 2) * exp(-x) + x * x * exp(-x)
        return LOAD * squares / 2 / (1 - rho(x)) ** 2 + quad(lambda t: 1 / (1 - rho(t)), 0, x)[0]

    return float(quad(lambda x: response_s(x) * exp(-x), 0, 40)[0])


@pytest.fixture(scope="module")
def means() -> dict[float, np.ndarray]:
    """Mean response of shortest remaining time first by sigma, one value a replication."""
    return {
        sigma: np.array([mean_response_s(jobs_of(seed, sigma), Srtf()) for seed in range(REPLICATIONS)])
        for sigma in (0.0, 1.0, 10.0)
    }


def first_come_s() -> np.ndarray:
    """Mean response of first come, first served in each replication."""
    return np.array([mean_response_s(jobs_of(seed, 0.0), Fifo()) for seed in range(REPLICATIONS)])


def test_errors_cost_what_knowledge_gains(means: dict[float, np.ndarray]) -> None:
    """Of pairs on the same jobs: errors of sigma 1 take some of the gain, those of sigma 10 nearly all."""
    first_come = first_come_s()
    for better, worse in ((means[0.0], means[1.0]), (means[1.0], means[10.0]), (means[1.0], first_come)):
        gain, half_width = interval(worse - better)
        assert gain > half_width
    known, half_width = interval(first_come - means[0.0])
    left, _ = interval(first_come - means[10.0])
    assert abs(left) < 0.25 * (known - half_width)


def test_without_errors_the_mean_is_that_of_theory(means: dict[float, np.ndarray]) -> None:
    """First come, first served, whose mean 1 / (1 - rho) is known, is a control variate."""
    control = first_come_s() - 1 / (1 - LOAD)
    slope = np.cov(means[0.0], control)[0, 1] / np.var(control, ddof=1)
    found, half_width = interval(means[0.0] - slope * control)
    assert abs(found - shortest_remaining_s()) <= half_width, f"{found:.4f} +- {half_width:.4f}"


def test_first_come_first_served_does_not_look_at_sizes() -> None:
    true = jobs_of(0, 0.0)
    ends = [
        {record.job_id: record.finish_s for record in simulate(jobs, Fifo(), "n1g1", table=TABLE).records}
        for jobs in (true, jobs_of(0, 2.0), [replace(job, stated_iterations=1e-12) for job in true])
    ]
    assert ends[0] == ends[1] == ends[2]
