"""Queueing theory through the ordinary engine: FIFO on c GPUs with jobs of one GPU is the queue M/M/c, or the
loss system M/G/c/c where jobs that would wait are turned away (Erlang B).

The confidence intervals are Student's over independent replications (Law, Simulation Modeling and Analysis,
section 9.4.2), each started empty and with its first jobs left out.
"""

from math import factorial

import numpy as np
import pytest

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import simulate
from policies.fifo import Fifo
from tests.effort import first
from tests.theory.confidence import HALF_WIDTH, interval
from traces.job import Job

WARM_UP = 1000
REPLICATIONS = 10


def erlang_c(servers: int, offered: float) -> float:
    """The probability of having to wait in M/M/c with `offered` Erlangs (Kleinrock 1975, section 3.5)."""
    top = offered**servers / factorial(servers) * servers / (servers - offered)
    return top / (sum(offered**k / factorial(k) for k in range(servers)) + top)


def mean_wait(servers: int, arrivals: float, service: float = 1.0) -> float:
    """Mean wait in the queue of M/M/c, by Erlang C; rates per second."""
    return erlang_c(servers, arrivals / service) / (servers * service - arrivals)


def random_jobs(seed: list[int], count: int, arrivals: float) -> list[Job]:
    """Poisson arrivals, exponential run times of mean 1 s, one GPU."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(1 / arrivals, count)).tolist()
    run_s = rng.exponential(1.0, count).tolist()
    return [
        Job(str(i), t, gpus=1, duration_s=s) for i, (t, s) in enumerate(zip(submit_s, run_s, strict=True))
    ]


def simulated_wait(jobs: list[Job], servers: int) -> float:
    """Mean wait of the jobs after the warm-up, in the engine."""
    waits = {record.job_id: record.queue_s for record in simulate(jobs, Fifo(), f"n1g{servers}").records}
    return float(np.mean([waits[job.job_id] for job in jobs[WARM_UP:]]))


def pooled_wait(jobs: list[Job], servers: int) -> float:
    """The same on one server, `servers` times as fast, by Lindley's recurrence, outside the engine."""
    waits, wait_s, before = [], 0.0, jobs[0]
    for job in jobs:
        assert before.duration_s is not None
        gap_s = job.submit_s - before.submit_s
        wait_s = max(0.0, wait_s + before.duration_s / servers - gap_s) if job is not before else 0.0
        waits.append(wait_s)
        before = job
    return float(np.mean(waits[WARM_UP:]))


@pytest.mark.long
def test_mean_wait_of_m_m_1() -> None:
    """Each run is Lindley's recurrence, which the default tests hold it against."""
    found, half_width = interval(
        [simulated_wait(random_jobs([1, seed], 14_000, 0.5), 1) for seed in range(REPLICATIONS)]
    )
    expected = mean_wait(1, 0.5)
    assert half_width <= HALF_WIDTH * expected
    assert abs(found - expected) <= half_width, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"


@pytest.mark.long
def test_mean_wait_of_m_m_4() -> None:
    """With M/M/1 at four times the speed on the same jobs, whose mean is known, as a control variate."""
    runs = [random_jobs([4, seed], 6_000, 2.8) for seed in range(REPLICATIONS)]
    found, half_width = interval(
        [simulated_wait(jobs, 4) - (pooled_wait(jobs, 4) - mean_wait(1, 2.8, 4.0)) for jobs in runs]
    )
    expected = mean_wait(4, 2.8)
    assert half_width <= HALF_WIDTH * expected
    assert abs(found - expected) <= half_width, f"{found:.4f} +- {half_width:.4f}, theory {expected:.4f}"


def test_erlang_c_by_hand() -> None:
    """c = 1: the load. c = 2 at 1 Erlang: (1/2 x 2) / (1 + 1 + 1)."""
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert mean_wait(1, 0.5) == pytest.approx(1.0)


@pytest.mark.parametrize("load", [0.3, 0.9, 1.5])
def test_one_gpu_is_lindleys_recurrence(load: float) -> None:
    """start_n = max(submit_n, finish_(n-1)) (Lindley 1952), exactly, whatever the load."""
    jobs = random_jobs([7], 3000, load)
    records = {record.job_id: record for record in simulate(jobs, Fifo(), "n1g1").records}
    free_s = 0.0
    for job in jobs:
        start_s = max(job.submit_s, free_s)
        assert job.duration_s is not None
        free_s = start_s + job.duration_s
        record = records[job.job_id]
        assert (record.start_s, record.finish_s) == (start_s, free_s)


def test_many_gpus_are_kiefer_and_wolfowitzs_recurrence() -> None:
    """On c GPUs a job starts when it comes, or when the first becomes free (Kiefer and Wolfowitz 1955)."""
    jobs = random_jobs([8], 3000, 7.5)
    records = {record.job_id: record for record in simulate(jobs, Fifo(), "n2g4").records}
    free_s = [0.0] * 8
    for job in jobs:
        gpu = min(range(8), key=lambda i: free_s[i])
        assert job.duration_s is not None
        free_s[gpu] = max(job.submit_s, free_s[gpu]) + job.duration_s
        assert records[job.job_id].finish_s == pytest.approx(free_s[gpu], rel=1e-12)


# Loss


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


@pytest.mark.parametrize(("servers", "sizes"), first(1, [(4, "constant"), (1, "hyperexponential")]))
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
