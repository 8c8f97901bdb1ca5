"""The parts of a report beyond the headline: packed jobs, allocations, pairs, fairness, plans, accuracy."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

import clustersim
from clustersim import Run
from clustersim.analysis import allocations, gpu_time
from clustersim.records import plan_words
from clustersim.report import group_runs
from clustersim.report.fairness import by_tenant
from clustersim.report.page_data import page_data
from clustersim.report.plans import accuracy
from traces import Job

JOBS = [
    Job(
        f"m{i}", 100.0 + 60 * i, model=["gpt3-1.3b", "llama2-7b"][i % 2], global_batch=512,
        iterations=40 + 9 * i, gpus=8 << i % 2, tenant=f"team-{i % 3}", deadline_s=1e5,
    )
    for i in range(8)
]  # fmt: skip
JOBS += [Job(f"d{i}", 100.0 + 45 * i, gpus=1 + i % 5, duration_s=300.0 + i, tenant="solo") for i in range(10)]
JOBS.append(Job("huge", 100.0, gpus=999, duration_s=1.0))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    ordered = sorted(JOBS, key=lambda job: job.submit_s)
    return [clustersim.run(ordered, policy, cluster="n4g8") for policy in ("fifo", "srtf")]


# The data of the page


def test_packed_times_are_those_of_the_records(runs: list[Run]) -> None:
    data = page_data(group_runs(runs))
    jobs, step_s = data["jobs"], data["step_s"]
    assert data["from_s"] == 100.0
    assert step_s <= 1e-3
    for packed, run in zip(data["runs"], runs, strict=True):
        rows = list(accumulate(packed["row"]))
        assert [jobs["id"][row] for row in rows] == [job.job_id for job in run.jobs]
        for row, start, finish, job in zip(rows, packed["start"], packed["finish"], run.jobs, strict=True):
            assert jobs["submit"][row] * step_s + 100 == pytest.approx(job.submit_s, abs=step_s)
            for steps, time_s in ((start, job.start_s), (finish, job.finish_s)):
                assert (steps is None) == (time_s is None)
                assert steps is None or steps * step_s + 100 == pytest.approx(time_s, abs=step_s)


def test_packed_allocations_are_those_of_the_log(runs: list[Run]) -> None:
    data = page_data(group_runs(runs))
    for packed, run in zip(data["runs"], runs, strict=True):
        held, found = packed["held"], allocations(run)
        assert [data["jobs"]["id"][row] for row in held["job"]] == [one.given.job_id for one in found]
        begins = list(accumulate(held["from"]))
        for begin, length, one in zip(begins, held["to"], found, strict=True):
            assert begin * data["step_s"] + 100 == pytest.approx(one.from_s, abs=data["step_s"])
            assert length * data["step_s"] == pytest.approx(one.held_s, abs=2 * data["step_s"])
        assert sum(held["blocks"]) == len(held["first"]) == len(held["row"])
        gpus = sum((more + 1) * row for more, row in zip(held["more"], held["row"], strict=True))
        assert gpus == sum(one.given.gpus for one in found)
        assert {held["plans"][i] for i in held["plan"]} == {plan_words(one.given.plan) for one in found}


def test_runs_over_different_traces_do_not_mix() -> None:
    one = clustersim.run([Job("a", 0.0, gpus=1, duration_s=10.0)], "fifo", cluster="n1g8")
    two = clustersim.run([Job("a", 5.0, gpus=1, duration_s=10.0)], "srtf", cluster="n1g8")
    data = page_data(group_runs([one, two]))
    assert data["jobs"]["id"] == ["a", "a"]
    assert [list(accumulate(run["row"])) for run in data["runs"]] == [[0], [1]]


def test_nodes_out_of_service(runs: list[Run]) -> None:
    from clustersim.records import EventRecord

    extra = [
        EventRecord(t, kind, "", 0, ((1, 8),), "", 0.0, "")
        for t, kind in ((200.0, "node_down"), (300.0, "node_up"))
    ]
    extra.append(EventRecord(400.0, "node_down", "", 0, ((2, 8),), "", 0.0, ""))
    fields: dict[str, Any] = {name: getattr(runs[0], name) for name in Run.__dataclass_fields__}
    events = sorted([*runs[0].events, *extra], key=lambda event: event.time_s)
    data = page_data(group_runs([Run(**{**fields, "events": events})]))
    step_s = data["step_s"]
    assert [(n, a * step_s + 100, b * step_s + 100) for n, a, b in data["runs"][0]["down"]] == [
        (1, pytest.approx(200.0), pytest.approx(300.0)),
        (2, pytest.approx(400.0), pytest.approx(events[-1].time_s)),
    ]


def test_an_empty_trace_packs() -> None:
    run = clustersim.run([], "fifo", cluster="n1g8")
    data = page_data(group_runs([run]))
    assert (data["end"], data["jobs"]["id"], data["runs"][0]["held"]["job"]) == (0, [], [])


# Tables


def test_many_tenants_are_put_together() -> None:
    jobs = [Job(f"j{i}", float(i), gpus=1, duration_s=100.0 + i, tenant=f"t{i}") for i in range(30)]
    tenants = by_tenant([clustersim.run(jobs, "fifo", cluster="n4g8")])
    assert len(tenants) == 13
    assert tenants[-1].name == "18 other tenants"
    assert sum(int(cells[0]) for one in tenants for _, cells in one.rows) == 30


def test_accuracy_is_a_range_of_factors(runs: list[Run]) -> None:
    words = accuracy(gpu_time(runs[0]), runs[0].plans).split()
    low, high = float(words[words.index("take") + 1]), float(words[words.index("to") + 1])
    known = [plan for plan in runs[0].plans if plan.low_s and plan.high_s]
    factors = [(plan.low_s / plan.iteration_s, plan.high_s / plan.iteration_s) for plan in known]
    assert min(low for low, _ in factors) - 0.01 <= low < 1 < high <= max(high for _, high in factors) + 0.01
    assert "known accuracy" in accuracy(None, [])
    unsure = [p._replace(low_s=None, high_s=None, gpu_type="h100") if p is known[0] else p for p in known]
    time = gpu_time(runs[0])
    assert time is not None
    by_plan = {plan.key: 30.0 if plan is unsure[0] else 70.0 / (len(unsure) - 1) for plan in unsure}
    told = accuracy(replace(time, by_plan=by_plan), unsure)
    assert told.endswith("; of 30 % of the time, on h100, no accuracy is known")
