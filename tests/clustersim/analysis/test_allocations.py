"""Allocations from the event log, the GPUs they are drawn on, and where the GPU time of a run went."""

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim import Run
from clustersim.analysis import CATEGORIES, Allocation, allocations, gpu_blocks, gpu_time
from clustersim.analysis.tables import RecordTable, jobs_of, numbered, per_run, rows_by_number
from clustersim.records import ALLOCATES, RELEASES, EventRecord, Exact
from tests.effort import examples
from traces import Job

GPUS = 4


def four(node: int) -> int:
    return GPUS


def event(time_s: float, kind: str, job_id: str, placement: tuple[tuple[int, int], ...] = ()) -> EventRecord:
    gpus = sum(count for _, count in placement)
    return EventRecord(time_s, kind, job_id, gpus, placement, "", 0.0, "")


def given_to(
    job_id: str, from_s: float, to_s: float, *placement: tuple[int, int], ended: str = ""
) -> Allocation:
    return Allocation(event(from_s, "start", job_id, placement), to_s, ended)


@pytest.fixture(scope="module")
def mixed() -> Run:
    """LLM jobs and jobs with a duration, resized and preempted, more than fit at once."""
    models = ["gpt3-1.3b", "llama2-7b", "megatron-18.4b"]
    jobs = [
        Job(f"m{i}", 60.0 * i, model=models[i % 3], global_batch=512, iterations=40 + 10 * i, gpus=8 << i % 3)
        for i in range(12)
    ]
    jobs += [Job(f"d{i}", 45.0 * i, gpus=1 + i % 5, duration_s=300.0 + i) for i in range(20)]
    return clustersim.run(sorted(jobs, key=lambda job: job.submit_s), "srtf", cluster="n6g8")


def test_gpus_are_kept_where_a_job_stays() -> None:
    found = [given_to("a", 0, 10, (0, 2)), given_to("b", 0, 5, (0, 1)), given_to("c", 5, 9, (0, 2)),
             given_to("b", 10, 12, (0, 1)), given_to("a", 10, 12, (0, 2), (1, 4))]  # fmt: skip
    blocks = gpu_blocks(found, four)
    assert blocks[0] == [(0, 0, 0, 2)]
    assert blocks[1] == blocks[3] == [(0, 0, 2, 1)]
    assert blocks[2] == [(0, 0, 2, 2)]
    assert blocks[4] == [(0, 0, 0, 2), (1, 1, 0, 4)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 6), st.integers(0, 2), st.integers(1, GPUS)), max_size=25
    )
)
def test_no_gpu_is_drawn_twice(wishes: list[tuple[int, int, int, int]]) -> None:
    """Random allocations that fit by count are drawn on as many GPUs as they hold, each once at a time."""
    found: list[Allocation] = []
    for number, (from_s, length, node, count) in enumerate(sorted(wishes)):
        instants = range(from_s, from_s + length)
        used = [
            sum(a.given.gpus for a in found if a.given.placement[0][0] == node and a.from_s <= t < a.to_s)
            for t in instants
        ]
        if not used or max(used) + count <= GPUS:
            found.append(given_to(f"j{number}", from_s, from_s + length, (node, count)))
    owners: dict[tuple[int, int, int], int] = {}
    for i, (allocation, blocks) in enumerate(zip(found, gpu_blocks(found, four), strict=True)):
        gpus = [
            (n, g) for a, b, first, row in blocks for n in range(a, b + 1) for g in range(first, first + row)
        ]
        assert len(gpus) == (allocation.given.gpus if allocation.held_s else 0)
        for n, g in gpus:
            for t in range(int(allocation.from_s), int(allocation.to_s)):
                assert owners.setdefault((n, g, t), i) == i


# Where GPU time went


def test_every_gpu_second_is_counted_once_and_as_the_metrics_do(mixed: Run) -> None:
    time = gpu_time(mixed)
    assert time is not None
    assert set(time.seconds) == set(CATEGORIES)
    assert min(time.seconds.values()) >= 0
    assert sum(time.seconds.values()) == pytest.approx(time.total, rel=1e-12)
    idle = sum(time.seconds[name] for name in ("stranded", "waiting", "idle"))
    summary = mixed.summary
    assert 1 - (idle + time.seconds["overhead"]) / time.total == pytest.approx(summary["gpu_useful_ratio"])
    assert 1 - idle / time.total == pytest.approx(summary["gpu_allocated_ratio"])
    assert time.seconds["stranded"] / time.total == pytest.approx(summary["fragmentation_ratio"])
    assert time.seconds["overhead"] / 3600 == pytest.approx(summary["lost_gpu_h"])
    known = sum(job.gpu_seconds - job.overhead_gpu_s for job in mixed.jobs if not job.model)
    assert time.seconds["running"] == pytest.approx(known)


def test_one_plan_s_split_is_that_of_its_iteration() -> None:
    job = Job("a", 0.0, model="megatron-39.1b", global_batch=512, iterations=100, gpus=64)
    run = clustersim.run([job], "fifo", cluster="n16g8", overheads=None)
    time, (plan,) = gpu_time(run), run.plans
    assert time is not None
    held = run.jobs[0].gpu_seconds
    assert time.seconds["bubble"] == pytest.approx(held * plan.bubble_s / plan.iteration_s)
    assert time.seconds["tp_comm"] == pytest.approx(held * plan.tp_comm_s / plan.iteration_s)
    assert time.seconds["idle"] == pytest.approx(time.total / 2)
    assert time.seconds["overhead"] == time.seconds["waiting"] == 0


def test_what_the_network_adds_is_apart() -> None:
    job = Job("a", 0.0, model="megatron-39.1b", global_batch=512, iterations=100, gpus=64)
    run = clustersim.run([job], "fifo", cluster="n16g8", overheads=None)
    (plan,), finish_s = run.plans, run.jobs[0].finish_s
    assert finish_s is not None
    half_s = finish_s / 2
    start = next(e for e in run.events if e.event == "start")
    slower = EventRecord(half_s, "rate", "a", 0, (), "", 0.0, "", unit_s=Exact(2 * plan.iteration_s))
    events = [run.events[0], start, slower, run.events[-1]]
    time = gpu_time(replace(run, cluster=replace(run.cluster, network="contention"), events=events))
    assert time is not None
    assert time.seconds["network"] == pytest.approx(64 * half_s / 2)
    assert time.seconds["bubble"] == pytest.approx(64 * 1.5 * half_s * plan.bubble_s / plan.iteration_s)
    assert sum(time.seconds.values()) == pytest.approx(time.total)
    ideal = gpu_time(run)
    assert ideal is not None
    assert ideal.seconds["network"] == 0


@pytest.fixture(scope="module")
def run() -> Run:
    jobs = [Job(f"j{i}", 10.0 * i, gpus=1 + i % 4, duration_s=40.0 + i) for i in range(12)]
    return clustersim.run(jobs, "srtf", cluster="n2g4")


def test_a_column_has_the_values_of_the_records(run: Run) -> None:
    table = RecordTable([replace(run.jobs[0], finish_s=None), *run.jobs])
    assert table.values("job_id") == ["j0", *(job.job_id for job in run.jobs)]
    assert np.isnan(table["finish_s"][0])
    assert table["finish_s"][1:].tolist() == [job.finish_s for job in run.jobs]
    assert table.equal("state", "finished").tolist() == [True, *(j.state == "finished" for j in run.jobs)]


def test_results_are_kept_by_run_and_forgotten_with_it(run: Run) -> None:
    computed = []

    @per_run
    def count(given: Run) -> int:
        computed.append(given.policy)
        return len(given.jobs)

    other = replace(run, policy="other", jobs=run.jobs[:3])
    assert (count(run), count(other), count(run), count(other)) == (12, 3, 12, 3)
    assert computed == ["srtf", "other"]
    assert jobs_of(other) is jobs_of(other)
    assert jobs_of(other) is not jobs_of(run)
    del other
    gc.collect()
    again = replace(run, jobs=run.jobs[:5])  # may have the address of the run that is gone
    assert count(again) == 5


@given(st.lists(st.integers(0, 4), max_size=20))
def test_rows_by_number(values: list[int]) -> None:
    numbers, distinct = numbered(values)
    assert [distinct[number] for number in numbers] == values
    rows = rows_by_number(numbers, len(distinct))
    assert [values[row] for group in rows for row in group] == [
        v for v in distinct for _ in range(values.count(v))
    ]
    assert all(np.all(np.diff(group) > 0) for group in rows)


KINDS = ("submit", "start", "restart", "resize", "preempt", "interrupt", "finish", "rate", "node_down")


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["j0", "j1", "lost"])), max_size=14))
def test_allocations_are_those_of_a_loop_over_the_log(run: Run, log: list[tuple[str, str]]) -> None:
    """Of any log, even one that no engine writes."""
    events = [
        EventRecord(1.0 + i // 2, kind, job_id, 2, ((0, 2),), "", 0.5, "")
        for i, (kind, job_id) in enumerate(log)
    ]
    held: dict[str, EventRecord] = {}
    expected = []
    for event in events:
        if event.event in ALLOCATES or event.event in RELEASES:
            if event.job_id in held:
                expected.append((held.pop(event.job_id), event.time_s, event.event))
            if event.event in ALLOCATES:
                held[event.job_id] = event
    end_s = max(events[-1].time_s if events else 0.0, run.manifest["end_s"])
    expected += [(event, end_s, "") for event in held.values()]
    place = {id(event): i for i, event in enumerate(events)}
    found = [tuple(one) for one in allocations(replace(run, events=events))]
    assert found == sorted(expected, key=lambda one: place[id(one[0])])


def test_a_job_of_the_log_without_a_record_is_refused(run: Run) -> None:
    with pytest.raises(KeyError, match="without a record"):
        gpu_time(replace(run, jobs=run.jobs[1:]))


TRACE = "".join(
    ["job_id,submit_s,model,gpus,global_batch,iterations,duration_s,state\n"]
    + [f"m{i},{600 * i},megatron-1.7b,{8 << i % 2},512,{2000 + 500 * i},,\n" for i in range(8)]
    + [f"d{i},{900 * i},,{1 << i % 4},,,{9000 + 700 * i},{'Failed' * (i == 2)}\n" for i in range(6)]
)


@pytest.mark.parametrize("policy", ["fifo", "elasticflow"])
def test_the_gpu_time_of_the_report_is_whole(policy: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    run = clustersim.run(
        tmp_path / "trace.csv", policy, cluster="n4g8", seed=3,
        failures={"mtbf_gpu_h": 60, "repair_scale": 0.1, "spare_nodes": 1, "end_as_logged": True},
        overheads={"storage_shared": True, "storage_bytes_per_s": 2e9},
        calendar=[{"at_s": 5000, "maintenance": "0-1", "for_s": 900}],
    )  # fmt: skip
    assert {"node_down", "node_up", "interrupt", "restart", "fail"} <= {event.event for event in run.events}
    assert run.summary["interruptions"] == sum(job.interruptions for job in run.jobs) > 3
    split = gpu_time(run)
    assert split is not None
    assert sum(split.seconds.values()) == pytest.approx(split.total)
    overhead_gpu_s, lost_gpu_s = (
        sum(getattr(job, name) for job in run.jobs) for name in ("overhead_gpu_s", "lost_work_gpu_s")
    )
    assert split.seconds["lost"] == pytest.approx(lost_gpu_s, rel=1e-3)
    assert split.seconds["overhead"] == pytest.approx(overhead_gpu_s, rel=1e-3)
    assert run.summary["lost_gpu_h"] == pytest.approx((overhead_gpu_s + lost_gpu_s) / 3600)
    assert split.seconds["down"] > 0
