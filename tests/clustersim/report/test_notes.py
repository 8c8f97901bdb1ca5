"""Notes on runs, and words for readers: one unit in a sentence or row, no keys, text that stands out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.records import Run
from clustersim.report import comparison_table, notes, render_report
from clustersim.report.fairness import by_size
from clustersim.report.sections import deadline_rows
from clustersim.report.verdict import sizes_given, verdict
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
    packed = note([run_of(trace, policy, sharing=sharing)], f"{policy} ran jobs on the same GPUs")
    assert ("sharing.slowdown" in packed) == says


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
