"""The comparison with ElasticFlow's artifact: its page states what its program prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.elasticflow_campaign import T4, slots
from experiments.elasticflow_refill import Elastic, Outcome, Rules, refilled
from experiments.elasticflow_slots import Request, Setting, jobs_in_time
from experiments.elasticflow_steps import elastic_jobs, row, steps
from experiments.elasticflow_traces import DELAYS_S, STUDIES, in_time_alone, table
from tests.places import ROOT

PAGE = ROOT / "experiments" / "ELASTICFLOW.md"
RENEW = "python -m experiments.elasticflow_traces ../shared/data/traces/itp_elasticflow"
QUEUE = Setting("arrival", 60)


def on_page(text: str) -> bool:
    return text in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.trace)
def test_the_page_is_up_to_date(study: object, shared_dir: Path) -> None:
    text = table(shared_dir / "data" / "traces" / "itp_elasticflow", study)  # type: ignore[arg-type]
    assert on_page(text), f"renew the page: {RENEW}"


def test_the_page_is_up_to_date_on_slots(shared_dir: Path) -> None:
    assert on_page(slots(shared_dir / "data" / "traces" / "itp_elasticflow")), f"renew the page: {RENEW}"


def test_a_step_on_the_page_is_up_to_date(shared_dir: Path) -> None:
    jobs = elastic_jobs(shared_dir / "data" / "traces" / "itp_elasticflow", *T4)
    assert on_page(row("all three, in slots of 360 s", jobs)), f"renew the page: {RENEW}"


@pytest.mark.long
def test_the_page_is_up_to_date_on_steps(shared_dir: Path) -> None:
    assert on_page(steps(shared_dir / "data" / "traces" / "itp_elasticflow")), f"renew the page: {RENEW}"


def test_a_later_start_never_helps(shared_dir: Path) -> None:
    for study in STUDIES:
        shares = in_time_alone(shared_dir / "data" / "traces" / "itp_elasticflow", study)
        assert len(shares) == len(DELAYS_S)
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] < shares[0] < 1


@pytest.mark.parametrize(
    ("change", "end_s"),
    [
        ({}, 60 + 100),
        ({"noticed": True}, 180),
        ({"waits_slots": 1}, 120 + 100),
        ({"waits_slots": 1, "noticed": True}, 240),
        ({"start_s": 45.0}, 60 + 45 + 100),
    ],
)
def test_a_job_alone_ends_when_its_slots_say(change: dict[str, object], end_s: float) -> None:
    """It comes 10 s into a slot of 60 s and runs for 100 s."""
    setting = replace(QUEUE, **change)  # type: ignore[arg-type]
    assert jobs_in_time([Request(10, end_s, 1, 100)], 1, 1, setting) == 1
    assert jobs_in_time([Request(10, end_s - 1, 1, 100)], 1, 1, setting) == 0


def test_the_head_of_the_line_blocks_unless_it_is_passed() -> None:
    """The second needs both GPUs and waits for the first; the third could run beside it."""
    jobs = [Request(0, 300, 1, 300), Request(1, 1000, 2, 60), Request(2, 120, 1, 60)]
    assert jobs_in_time(jobs, 1, 2, QUEUE) == 2
    assert jobs_in_time(jobs, 1, 2, replace(QUEUE, passing=True)) == 3


@pytest.mark.parametrize(
    ("placement", "met"), [("emptiest node", 2), ("first node", 3), ("fullest node", 3), ("anywhere", 3)]
)
def test_jobs_spread_over_nodes_leave_no_whole_one(placement: str, met: int) -> None:
    """Two jobs of a GPU on two nodes of two: the third, which needs a node, is in time if they share one."""
    jobs = [Request(0, 600, 1, 600), Request(0, 600, 1, 600), Request(1, 120, 2, 60)]
    assert jobs_in_time(jobs, 2, 2, replace(QUEUE, placement=placement)) == met


def test_preemption_serves_the_earliest_deadline_and_late_jobs_last_if_told() -> None:
    long, short = Request(0, 1000, 1, 600), Request(1, 120, 1, 60)
    by_deadline = Setting("deadline", 60)
    assert jobs_in_time([long, short], 1, 1, by_deadline) == 1
    assert jobs_in_time([long, short], 1, 1, replace(by_deadline, preemptive=True)) == 2
    hopeless, urgent = Request(0, 100, 1, 600), Request(0, 240, 1, 120)
    assert jobs_in_time([hopeless, urgent], 1, 1, replace(by_deadline, preemptive=True)) == 0
    for late in ("last", "leave"):
        setting = replace(by_deadline, preemptive=True, late=late)
        assert jobs_in_time([hopeless, urgent], 1, 1, setting) == 1


def test_jobs_take_turns() -> None:
    """Two of four slots each in turns end after seven and eight slots of 60 s, not after four and eight."""
    turns = Setting("turns", 60, preemptive=True)
    jobs = [Request(0, 420, 1, 240), Request(0, 480, 1, 240)]
    assert jobs_in_time(jobs, 1, 1, turns) == 2
    assert jobs_in_time([jobs[0]._replace(deadline_s=419), jobs[1]], 1, 1, turns) == 1


def test_where_all_pay_a_start_holds_up_running_jobs() -> None:
    jobs = [Request(0, 300, 1, 300), Request(1, 900, 1, 60)]
    charged = replace(QUEUE, start_s=0.0)
    assert jobs_in_time(jobs, 1, 2, charged) == 2
    late = [jobs[0]._replace(deadline_s=330), jobs[1]]
    assert jobs_in_time(late, 1, 2, replace(QUEUE, start_s=30.0)) == 2
    assert jobs_in_time(late, 1, 2, replace(QUEUE, start_s=30.0, all_pay=True)) == 1


def test_no_jobs() -> None:
    assert jobs_in_time([], 1, 1, QUEUE) == 0


FREE = Rules(slot_s=60, together=False, to_most=False, start_s=0, restart_s=0, per_log2_s=0)
HALF = {1: 1.0, 2: 1.5}


def test_a_plan_takes_the_fewest_gpus_that_are_enough() -> None:
    """120 iterations take one GPU two slots. In one slot two GPUs do 90, so neither job is in time."""
    assert refilled([Elastic(0, 120, 120, HALF)], 1, FREE) == Outcome(1, 1)
    assert refilled([Elastic(0, 119, 120, HALF)], 2, FREE) == Outcome(0, 0)
    assert refilled([Elastic(0, 60, 90, HALF)], 2, FREE) == Outcome(1, 1)
    assert refilled([Elastic(1, 120, 90, HALF)], 2, FREE) == Outcome(1, 1), "it waits for the slot at 60 s"
    assert refilled([Elastic(1, 119, 90, HALF)], 2, FREE) == Outcome(0, 0)


def test_a_job_without_a_plan_is_declined_or_uses_what_is_left() -> None:
    jobs = [Elastic(0, 120, 120, {1: 1.0}), Elastic(0, 120, 120, {1: 1.0})]
    assert refilled(jobs, 1, FREE) == Outcome(1, 1)
    assert refilled(jobs, 1, replace(FREE, admission=False)) == Outcome(2, 1)
    assert refilled(jobs, 2, FREE) == Outcome(2, 2)


def test_arrivals_of_an_instant_may_be_declined_together() -> None:
    hopeless, easy = Elastic(0, 60, 1000, {1: 1.0}), Elastic(0, 600, 60, {1: 1.0})
    later = easy._replace(submit_s=1)
    together = replace(FREE, together=True)
    assert refilled([hopeless, easy], 1, FREE) == Outcome(1, 1)
    assert refilled([hopeless, easy], 1, together) == Outcome(0, 0)
    assert refilled([hopeless, later], 1, together) == Outcome(1, 1)


def test_restarts_that_no_plan_foresees_make_jobs_late() -> None:
    """Both have plans; a start of 30 s leaves each half a slot of work to do after its deadline."""
    jobs = [Elastic(0, 120, 120, {1: 1.0})] * 2
    assert refilled(jobs, 2, replace(FREE, start_s=30)) == Outcome(2, 0)
    assert refilled([jobs[0]._replace(deadline_s=180)] * 2, 2, replace(FREE, start_s=30)) == Outcome(2, 2)


def test_no_elastic_jobs() -> None:
    assert refilled([], 1, FREE) == Outcome(0, 0)
