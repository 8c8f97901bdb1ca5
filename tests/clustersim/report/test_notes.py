"""Notes on runs, words for readers, and the parts of a report beyond the headline."""

import re
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.analysis import allocations, gpu_time
from clustersim.records import Run, plan_words
from clustersim.report import comparison_table, group_runs, notes, render_report
from clustersim.report.fairness import by_size, by_tenant
from clustersim.report.page_data import page_data
from clustersim.report.plans import accuracy
from clustersim.report.sections import deadline_rows
from clustersim.report.sentences import sizes_given, verdict
from clustersim.rundir import read_run, write_run
from clustersim.scheduler import JobView, Scheduler, State
from policies.fifo import Fifo
from policies.max_min import MaxMin
from traces import Job


def run_of(jobs: list[Job], policy: str | type[Scheduler] = "fifo", **settings: Any) -> Run:
    return clustersim.run(jobs, policy, cluster="n2g4", **{"overheads": None, **settings})


def stream(count: int, gap_s: float, duration_s: float = 50.0, gpus: int = 8) -> list[Job]:
    return [Job(f"{i:04}", gap_s * i, gpus=gpus, duration_s=duration_s) for i in range(count)]


def note(runs: list[Run], beginning: str, **options: bool) -> str:
    """The one note that begins so; empty if there is none."""
    found = [sentence for sentence in notes(runs, **options) if sentence.startswith(beginning)]
    assert len(found) <= 1
    return found[0] if found else ""


def test_one_job_of_two_hundred_that_waits_is_hardly_any() -> None:
    jobs = [*stream(200, 100.0), Job("extra", 10.0, gpus=8, duration_s=30.0)]
    assert "at most 0.5 % of the jobs waited" in note([run_of(jobs)], "No queueing")


def test_gpus_of_another_type_than_the_nodes_have_are_said() -> None:
    types = ["H100", "h100", "a100", "NVIDIA-A100-SXM4-80GB", None]
    run = run_of([Job(str(k), 0.0, gpus=8, duration_s=9.0, gpu_type=name) for k, name in enumerate(types)])
    assert run.summary["other_gpu_types"] == run.manifest["other_gpu_types"] == {"H100": 1, "h100": 1}
    assert note([run], "GPU types").startswith("GPU types: 1 job for H100 and 1 job for h100, but the nodes")
    assert not note([run_of(stream(3, 9.0))], "GPU types")


class Picky(Fifo):
    def admit(self, job: JobView, state: State) -> bool:
        return not state.running


def test_where_jobs_are_declined_or_get_fewer_gpus_there_is_contention() -> None:
    crowded = stream(20, 20.0)
    picky = run_of(crowded, Picky)
    assert picky.summary["waited_ratio"] == 0.0
    assert picky.summary["rejected"] > 0
    assert not note([picky], "No queueing")
    assert not note([picky], "No queueing", read_records=False)
    elastic = [
        Job(str(i), 1.0 * i, model="megatron-1.7b", gpus=8, min_gpus=1, global_batch=64, iterations=500.0)
        for i in range(4)
    ]
    shrunk = run_of(elastic, MaxMin)
    assert shrunk.summary["waited_ratio"] == 0.0
    assert not note([shrunk], "No queueing")
    assert not note([shrunk], "No queueing", read_records=False)  # far from the best possible


@pytest.mark.parametrize(
    ("policy", "jobs", "slowdown", "says"),
    [("lucid", 3, 0, True), ("muri", 3, 0, True), ("lucid", 1, 0, False), ("fifo", 3, 0, False),
     ("lucid", 3, 1.2, False)],
)  # fmt: skip
def test_a_policy_that_packs_where_nothing_slows_down_is_named(
    policy: str, jobs: int, slowdown: float, says: bool
) -> None:
    trace = [Job(f"j{i}", i, gpus=8, duration_s=2000.0 + 500 * i) for i in range(jobs)]
    sharing = {"slowdown": slowdown} if slowdown else None
    run = run_of(trace, policy, sharing=sharing)
    assert ("sharing.slowdown" in note([run], f"{policy} ran jobs on the same GPUs")) == says
    assert run.summary.get("packed_without_slowdown", 0) == (jobs - 1 if says else 0)


def test_identical_schedules_are_named_also_if_one_was_read_back(tmp_path: Path) -> None:
    jobs = [*stream(8, 10.0), Job("short", 30.0, gpus=8, duration_s=5.0)]
    fifo, skip, srtf = (run_of(jobs, name) for name in ("fifo", "fifo-skip", "srtf"))
    assert not note([fifo, srtf], "fifo and srtf")
    assert not note([fifo, skip], "fifo and", read_records=False)
    write_run(tmp_path, skip)
    assert note([fifo, read_run(tmp_path)], "fifo and fifo-skip gave identical schedules")


@pytest.mark.parametrize(
    ("durations", "says"),
    [
        ([100.0] * 4, "to 100 % of the jobs under max-min."),
        ([1e4, 100.0, 100.0], "to 67 % of the jobs under max-min (fewer to 33 %)."),
    ],
)
def test_other_sizes_than_requested_are_stated_with_their_shares(durations: list[float], says: str) -> None:
    run = run_of([Job(str(i), 2e4 * i, gpus=4, duration_s=s) for i, s in enumerate(durations)])
    held = [replace(job, gpu_seconds=(job.gpu_seconds * (0.5 if s == 1e4 else 2.0)))
            for job, s in zip(run.jobs, durations, strict=True)]  # fmt: skip
    (text,) = sizes_given([replace(run, jobs=held, policy="max-min")])
    assert text.endswith(says)


def test_a_run_of_an_older_version_has_a_headline_and_no_false_notes() -> None:
    new = ("offered_load", "arrival_window_s", "load_jobs", "wait_mean_s", "wait_p99_s", "waited_ratio",
           "tail_jobs", "tail_ratio", "gpu_allocated_arrival_ratio",
           "jct_over_bound", "makespan_over_bound", "deadlines_of_bound")  # fmt: skip
    run = run_of(stream(20, 100.0))
    for name in new:
        del run.summary[name]
    assert notes([run]) == []
    assert "for their first GPUs on average" in verdict([run], None)[0]
    heads, _, _ = comparison_table([run], None)
    assert not any(head.startswith("Waiting") for head in heads)
    assert "No queueing" not in render_report([run])


def test_the_bound_in_a_forged_manifest_harms_no_page() -> None:
    made = run_of(stream(5, 10.0))
    for stated in 7, "x", {}, {"method": [], "jct_mean_s": "<b>"}, {"method": "<b>", "jct_mean_s": 1.0}:
        page = render_report([replace(made, manifest={**made.manifest, "bound": stated})])
        assert "<b>" not in page.partition("<script")[0]


@pytest.fixture(scope="module")
def run() -> Run:
    """One GPU after the other: run times of minutes, waiting of hours."""
    jobs = [
        Job(str(i), float(i), gpus=8, duration_s=600.0 + 900 * i, deadline_s=3000.0 + 20 * i)
        for i in range(12)
    ]
    return clustersim.run(jobs, "fifo", cluster="n1g8")


def units(text: str) -> list[str]:
    return re.findall(r"\d (s|min|h|d)\b", text)


def test_a_sentence_has_one_unit(run: Run) -> None:
    account = verdict([run], None)[0]
    assert len(units(account)) == 4
    assert len(set(units(account))) == 1


def test_a_row_of_waiting_and_completion_has_one_unit(run: Run) -> None:
    early = replace(run, jobs=[replace(job, queue_s=min(job.queue_s or 0.0, 90.0)) for job in run.jobs])
    for members in by_size([run, early]):
        for _, cells in members.rows:
            assert len(set(units(f"{cells[4]} {cells[5]}"))) == 1


def test_a_column_of_lateness_has_one_unit(run: Run) -> None:
    kinder = replace(
        run, policy="other", jobs=[replace(job, deadline_s=(job.finish_s or 0.0) - 40.0) for job in run.jobs]
    )
    cells = [row[4] for _, row in deadline_rows([run, kinder])]
    assert len(cells) == 2
    assert len({unit for cell in cells for unit in units(cell)}) == 1


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
