"""What resizes cost elasticflow and vtrain-aware: the accounting; and that the table comes out again."""

from math import fsum

import pytest

import clustersim
from clustersim.records import EventRecord
from experiments import resize_costs as costs
from experiments.resize_costs import Paid
from tests.places import ROOT
from traces.synthetic import Recipe, generate

PAGE = ROOT / "docs" / "policies" / "elasticflow.md"
RENEW = "python -m experiments.resize_costs"


def event(time_s: float, name: str, job: str, gpus: int = 0, overhead_s: float = 0.0) -> EventRecord:
    return EventRecord(time_s, name, job, gpus, (), "", overhead_s, "")


def test_an_overhead_counts_as_far_as_it_was_paid() -> None:
    """`a` grows at 40 s and is cut off after 20 of 30 s, shrinks, is stopped and comes back to end early."""
    events = [
        event(0, "submit", "a"),
        event(0, "start", "a", 8, 30),
        event(5, "start", "b", 4, 30),
        event(40, "resize", "a", 32, 30),
        event(60, "resize", "a", 16, 35),
        event(65, "finish", "b"),
        event(100, "preempt", "a"),
        event(150, "restart", "a", 8, 50),
        event(170, "finish", "a"),
    ]
    assert costs.paid(events) == {
        "launch": Paid(2, 60.0, 30.0 * 8 + 30.0 * 4),
        "growing": Paid(1, 20.0, 20.0 * 32),
        "shrinking": Paid(1, 35.0, 35.0 * 16),
        "restart": Paid(1, 20.0, 20.0 * 8),
    }


@pytest.mark.parametrize("policy", list(costs.POLICIES))
def test_kinds_add_up_to_what_jobs_lost(policy: str) -> None:
    recipe = Recipe(
        60, 4.0, 128, arrivals="bursty", rules="llm-mix", planner="data-parallel", load_of="process", seed=3
    )
    jobs = generate(recipe)[0]
    run = clustersim.run(jobs, policy, cluster="n16g8")
    found = costs.paid(run.events)
    assert fsum(p.seconds for p in found.values()) == pytest.approx(fsum(job.lost_s for job in run.jobs))
    gpu_seconds = fsum(job.overhead_gpu_s for job in run.jobs)
    assert fsum(p.gpu_seconds for p in found.values()) == pytest.approx(gpu_seconds)
    assert found["launch"].times == run.summary["finished"]
    assert found["growing"].times + found["shrinking"].times == run.summary["resizes"]
    assert found["growing"].times > 0 < found["shrinking"].times


@pytest.mark.long
def test_the_table_comes_out_again() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(costs.HEAD) + 2
    rows = lines[first : first + len(costs.POLICIES) * len(costs.LOADS)]
    cells = [tuple(line.split(" | ")[:2]) for line in rows]
    assert cells == [(f"| {policy}", f"{load:g}") for policy in costs.POLICIES for load in costs.LOADS], RENEW
    assert costs.row("vtrain-aware", 1.0, costs.runs_of("vtrain-aware", 1.0, seeds=5)) in rows, RENEW
