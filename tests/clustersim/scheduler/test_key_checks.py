"""A frozen key that changes ends an ordinary run, at the cost of one key in four decisions."""

from __future__ import annotations

from math import nan

import pytest

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.key_checks import _same
from tests.builders import Acts, free_setup, rigid

CLUSTER = Cluster(1, 4)


class ByKey(Scheduler):
    """Counts decisions and keys; `factor`: how fast waiting jobs age."""

    def __init__(self, factor: float, changing: bool = False):
        self.factor, self.changing, self.decisions, self.keys = factor, changing, 0, 0

    def schedule(self, state: State) -> Proposal:
        self.decisions += 1
        proposal = state.proposal()
        for job in state.pending_by(self.key, changing=self.changing).walk(proposal.fits):
            proposal.start(job)
        return proposal

    def key(self, job: JobView) -> float:
        self.keys += 1
        return job.requested - self.factor * job.waited_s


JOBS = [rigid(f"{i:02}", 10.0 * i, 4, 100.0) for i in range(20)]


def test_a_frozen_key_that_ages_ends_the_run() -> None:
    """The jobs from 01 on wait. The fourth decision, at 30 s, looks at one of them."""
    with pytest.raises(
        PolicyError,
        match=r"policy ByKey at t=30 s: the key of job 0[12] changed while it waits, from 4.0 to 3.[89], "
        r"but a key is looked up once \(.*test_key_checks.py:\d+\); pass changing=True to run_by or "
        r"pending_by, or call rerank\(job\)",
    ):
        Simulation(JOBS, free_setup(CLUSTER, ByKey(0.01))).run()


def test_the_check_looks_up_one_key_in_four_decisions() -> None:
    """There are 39 decisions: job 10 comes when job 00 ends. All are checked in which a job waits."""
    policy = ByKey(0.0)
    Simulation(JOBS, free_setup(CLUSTER, policy)).run()
    assert (policy.decisions, policy.keys) == (39, len(JOBS) + 39 // 4)


def test_a_key_without_an_order_is_called_that() -> None:
    """NaN differs from itself, which is no change that `changing=True` would mend."""
    with pytest.raises(PolicyError, match=r"the key of job 0[12] is nan: NaN has no order \(.*py:\d+\)$"):
        Simulation(JOBS, free_setup(CLUSTER, ByKey(nan))).run()


def test_a_new_key_at_every_decision_is_refused_with_the_remedy() -> None:
    policy = Acts(lambda state, proposal: proposal.run_by(lambda job: job.requested))
    with pytest.raises(
        PolicyError, match=r"more than 16 different keys; .*a method of the policy, not a lambda"
    ):
        Simulation(JOBS, free_setup(CLUSTER, policy)).run()


def test_keys_that_may_change_are_not_checked() -> None:
    policy = ByKey(0.01, changing=True)
    recorder = Simulation(JOBS, free_setup(CLUSTER, policy)).run()
    assert [job.start_s for job in recorder.jobs] == [100.0 * i for i in range(20)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.001, False),
        ((1, 2.0), (1, 2.0 + 1e-13), True),
        ((1, 2.0), (1, 2.5), False),
        ((1,), (1, 2), False),
        (("a", (3.0, 1)), ("a", (3.0, 1)), True),
        ("a", "b", False),
        (1, 1.0, True),
    ],
)
def test_rounding_is_no_change(one: object, other: object, same: bool) -> None:
    assert _same(one, other) is same
