"""Jobs that do more or less than they state, under every policy: no job waits for ever, and those that state
the truth keep what they were promised.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from clustersim.overheads import Overheads
from clustersim.runs import list_policies, make_policy
from clustersim.testing import Case, check_case
from clustersim.testing.checks import CASES
from policies.edf_admission import EdfAdmission
from policies.elasticflow import ElasticFlow
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import Bench, elastic, finishes, states, times
from traces.estimates import Estimates

NAMES = [info.name for info in list_policies()]
ELASTIC = next(case for case in CASES if case.name == "elastic jobs with deadlines and overheads")
HOSTILE = (1e-12, 1e12)
FACTORS = (1e-6, 0.1, 0.9, 1 - 1e-12, 1.0, 1 + 1e-15, 1.1, 10.0, 1e6)


def hostile(seed: int) -> Case:
    """The elastic jobs with deadlines of the kit, a few of them with no statement, others with odd ones."""
    random, jobs = Random(seed), []
    for job in ELASTIC.jobs[:16]:
        true = job.iterations or 0.0
        stated = random.choice([None, *HOSTILE, *(true * factor for factor in FACTORS)])
        jobs.append(replace(job, stated_iterations=stated))
    return replace(ELASTIC, name=f"hostile statements {seed}", jobs=tuple(jobs))


def drawn(sigma: float) -> Case:
    jobs = tuple(Estimates(sigma).applied_to(job, 1) for job in ELASTIC.jobs[:16])
    return replace(ELASTIC, name=f"statements of sigma {sigma:g}", jobs=jobs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", [drawn(2.0), hostile(0)], ids=lambda case: case.name)
def test_every_policy_serves_every_job(case: Case, name: str) -> None:
    """Within the rules of the audit, in the same way twice and in any order of rows, with keys that hold."""
    check_case(lambda: make_policy(name, {}), case)


# Shortest first


def test_a_job_that_outlives_its_statement_does_not_run_for_ever_first() -> None:
    """`long` states 40 s and does 1,000; from 36 s on it counts as 4 s. `tiny`, of 3 s, goes first."""
    bench = Bench("n1g1", {("m", 8): {1: 1.0}})
    jobs = [
        elastic("long", 0, 1, 1000, stated_iterations=40.0),
        elastic("tiny", 100, 1, 3),
        elastic("short", 100, 1, 20),
    ]
    found = times(bench.run(jobs, Srtf()))
    assert found == {"tiny": (100, 103), "long": (0, 1003), "short": (1003, 1023)}


def test_first_come_first_served_does_not_care() -> None:
    jobs = [elastic(str(i), 5.0 * i, 1, 30 - i) for i in range(9)]
    bench = Bench("n1g2", {("m", 8): {1: 1.0}})
    wrong = [replace(job, stated_iterations=1.0 + i) for i, job in enumerate(jobs)]
    assert finishes(bench.run(jobs, Fifo())) == finishes(bench.run(wrong, Fifo()))


# Reservations


ONE = {("m", 8): {1: 1.0}, ("wide", 8): {2: 1.0}}


@pytest.mark.parametrize("policy", [ElasticFlow, EdfAdmission])
def test_a_job_that_overstays_breaks_no_promise_to_others(policy: type) -> None:
    """`a` states 40 s, to be done by 50, and does 100. `b` needs both GPUs for 40 s by 100, and gets them."""
    a = elastic("a", 0, 1, 100, 50.0, stated_iterations=40.0)
    b = elastic("b", 1, 2, 40, 100.0, model="wide")
    outcome = Bench("n1g2", ONE).run([a, b], policy())
    assert states(outcome) == {"a": "finished", "b": "finished"}
    assert (outcome.of("a").deadline_met, outcome.of("b").deadline_met) == (False, True)
    assert outcome.of("a").finish_s == pytest.approx(140, abs=2)


@pytest.mark.parametrize("policy", [ElasticFlow, EdfAdmission])
def test_a_job_that_ends_early_leaves_its_reservation_to_others(policy: type) -> None:
    """`a` reserves 90 s of 100 and is done after 10. `c`, of 60 s, would have been declined before that."""
    a = elastic("a", 0, 1, 10, 100.0, stated_iterations=90.0)
    early, late = elastic("early", 5, 1, 60, 100.0), elastic("c", 20, 1, 60, 100.0)
    outcome = Bench("n1g1", ONE).run([a, early, late], policy())
    assert states(outcome) == {"a": "finished", "early": "rejected", "c": "finished"}
    assert outcome.of("c").deadline_met


def test_a_job_that_cannot_be_in_time_any_more_keeps_no_other_out() -> None:
    """`a`, whose reservation was widened, outlives it. `c` needs all GPUs, and that `b` reserves others: `a`,
    which is late, must not make that impossible.
    """
    table = {("m", 8): {1: 1.0, 2: 1.9, 4: 3.6}, ("wide", 8): {4: 1.0}}
    charged = Overheads(scheduling_s=0.0, launch_s=1.0, plain_restart_s=10.0)
    jobs = [
        elastic("a", 60, 1, 800, 118.0, stated_iterations=40.0),
        elastic("b", 120, 1, 80, 270.0),
        elastic("c", 140, 4, 40, 250.0, model="wide"),
    ]
    outcome = Bench("n1g4", table, overheads=charged).run(jobs, ElasticFlow())
    assert {record.job_id: record.deadline_met for record in outcome.records} == {
        "a": False, "b": True, "c": True
    }  # fmt: skip
