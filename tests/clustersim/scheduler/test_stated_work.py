"""What policies see of jobs that misstate their work: the statement, and never the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clustersim.failures import Failures
from clustersim.jobs.active import LEAST_LEFT
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from tests.builders import elastic, rigid
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}
Look = Callable[[JobView], float]


class Watcher(Scheduler):
    """Starts every job and notes `look` of the first one each `every_s` seconds."""

    def __init__(self, look: Look, every_s: float = 1.0):
        self.look, self.every_s = look, every_s
        self.seen: dict[float, float] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            proposal.start(job)
        for job in (*state.running, *state.pending):
            if job.order == 0:
                self.seen[state.now] = self.look(job)
                proposal.wake_at = state.now + self.every_s
        return proposal


def seen(job: Job, look: Look, **settings: object) -> tuple[dict[float, float], Outcome]:
    policy = Watcher(look)
    outcome = simulate([job], policy, "n1g4", table=TABLE, **settings)  # type: ignore[arg-type]
    return policy.seen, outcome


def left(job: JobView) -> float:
    return job.remaining(1)


LOOKS = [
    left, lambda job: job.oracle_remaining(1), lambda job: job.work_left, lambda job: job.oracle_work_left
]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_a_job_that_does_less_than_it_states(look: Look) -> None:
    """10 iterations at one a second, 25 stated: 15 are left when it ends."""
    found, outcome = seen(elastic("a", 0, 1, 10, stated_iterations=25.0), look)
    assert found == pytest.approx({float(t): 25.0 - t for t in range(11) if t < 10})
    assert outcome.of("a").finish_s == 10.0


@pytest.mark.parametrize("look", LOOKS)
def test_a_job_that_does_more_than_it_states(look: Look) -> None:
    """From nine tenths of the 10 stated iterations on, a tenth of them is left until the 20th is done."""
    found, outcome = seen(elastic("a", 0, 1, 20, stated_iterations=10.0), look)
    assert found == pytest.approx({float(t): max(10.0 - t, LEAST_LEFT * 10) for t in range(20)})
    assert outcome.of("a").finish_s == 20.0


def test_a_job_outlives_its_statement_once_it_has_done_all_of_it() -> None:
    for stated, since_s in ((10.0, 10.0), (20.0, 99.0), (None, 99.0), (25.0, 99.0)):
        found, _ = seen(elastic("a", 0, 1, 20, stated_iterations=stated), lambda job: job.outlived)
        assert found == {float(t): t >= since_s for t in range(20)}


def test_every_count_tells_the_same_work() -> None:
    found, _ = seen(
        elastic("a", 0, 1, 20, stated_iterations=12.0),
        lambda job: job.remaining(4) * job.rate(4) - job.remaining() * job.rate(1),
    )
    assert max(map(abs, found.values())) < 1e-12


def test_the_work_left_never_grows_while_a_job_runs() -> None:
    """On which `run_by(falling=True)` relies."""
    for stated in (1e-12, 3.0, 19.9, 20.0, 20.1, 1e12):
        found, _ = seen(elastic("a", 0, 1, 20, stated_iterations=stated), left)
        values = list(found.values())
        assert values == sorted(values, reverse=True)
        assert min(values) > 0


def test_a_true_statement_changes_no_digit() -> None:
    job = elastic("a", 0, 2, 20 / 3)
    for look in (*LOOKS, lambda job: job.oracle_remaining(), lambda job: job.oracle_remaining(4)):
        assert seen(job, look)[0] == seen(replace(job, stated_iterations=20 / 3), look)[0]


def test_what_the_engine_charges_is_about_the_truth() -> None:
    """Records, restarts and their loads know nothing of the statement."""
    job, charged = elastic("a", 0, 1, 20, deadline_s=25.0), Overheads(plain_restart_s=3.0)
    records = [
        seen(replace(job, stated_iterations=stated), left, overheads=charged)[1].records
        for stated in (None, 1.0, 1e6)
    ]
    assert records[0] == records[1] == records[2]


def test_the_estimate_of_the_run_time_is_a_statement_of_its_own() -> None:
    """`estimate_s` less the work done, whatever iterations are stated."""
    job = elastic("a", 0, 1, 20, estimate_s=12.0)
    plain, _ = seen(job, lambda job: job.estimated_remaining())
    assert plain == pytest.approx({float(t): 12.0 - t for t in range(20)})
    assert seen(replace(job, stated_iterations=50.0), lambda job: job.estimated_remaining())[0] == plain
    ends, _ = seen(replace(job, stated_iterations=50.0), lambda job: job.estimated_end_s())
    assert set(ends.values()) == {12.0}


def test_work_lost_in_a_failure_is_stated_to_be_left_again() -> None:
    """Unsaved work is lost: what is left by the statement grows by the same number of iterations."""
    failures = Failures(mtbf_gpu_h=0.01, kinds={"a": (1, 0.001)})
    charged = Overheads(launch_s=0.0, plain_restart_s=0.0, checkpoint_interval_s=7.0)
    job = elastic("a", 0, 1, 100)
    setting = {"failures": failures, "overheads": charged, "seed": 1}
    truth, outcome = seen(job, left, **setting)
    assert outcome.of("a").lost_work_s > 0
    over, _ = seen(replace(job, stated_iterations=150.0), left, **setting)
    assert over == pytest.approx({t: value + 50.0 for t, value in truth.items()})


def test_jobs_of_a_duration_are_known_by_the_oracle_alone() -> None:
    found, _ = seen(rigid("a", 0, 1, 5), lambda job: job.oracle_remaining())
    assert found == pytest.approx({float(t): 5.0 - t for t in range(5)})
