"""Notes on a run or a comparison: load, queueing, tail, identical schedules, jobs that cannot be resized."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.analysis import with_window
from clustersim.records import Run
from clustersim.report import comparison_table, notes, render_report
from clustersim.report.distance import CHEAP
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


def test_the_offered_load_is_stated_with_its_arrival_window() -> None:
    text = note([run_of(stream(21, 100.0, 60.0))], "Offered load")
    assert text == "Offered load: 0.63 of the cluster's GPU time over 33.3 min of arrivals."
    jobs = [*stream(21, 100.0, 60.0), Job("wide", 50.0, gpus=99, duration_s=60.0)]
    text = note([run_of(jobs)], "Offered load")
    assert text.endswith("arrivals, without 1 of 22 jobs that cannot run or were not reached.")


def test_jobs_that_are_submitted_at_once_have_no_load() -> None:
    assert note([run_of(stream(3, 0.0))], "All jobs are submitted at once")
    assert not note([run_of(stream(1, 0.0))], "All jobs")
    assert not notes([run_of([])])


def test_without_queueing_a_comparison_says_so() -> None:
    idle = stream(20, 100.0)
    runs = [run_of(idle), run_of(idle, "srtf")]
    text = note(runs, "No queueing")
    assert text.startswith("No queueing: this comparison says little about scheduling (no job waited ")
    assert note([runs[0]], "No queueing: this run says little")
    assert not note([run_of(stream(20, 40.0))], "No queueing")


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


def test_the_tail_of_a_few_jobs_is_named() -> None:
    jobs = [*stream(199, 1.0, 2.0, gpus=1), Job("z", 198.0, gpus=1, duration_s=802.0)]
    runs = [run_of(jobs), run_of(jobs, "srtf")]
    text = note(runs, "The makespan")
    one = "the last 2 of 200 jobs ran alone for 80 % of it under fifo"
    assert text.startswith(f"The makespan is largely the tail of a few jobs: {one}; ")
    assert not note([run_of(stream(200, 1.0, 2.0))], "The makespan")
    assert not note([run_of(jobs[-3:])], "The makespan"), "three jobs have no tail"


def test_identical_schedules_are_named(tmp_path: Path) -> None:
    jobs = stream(8, 10.0)
    jobs[3] = Job("0003", 30.0, gpus=8, duration_s=5.0)
    fifo, skip, srtf = (run_of(jobs, name) for name in ("fifo", "fifo-skip", "srtf"))
    assert fifo.summary["jct_mean_s"] != srtf.summary["jct_mean_s"]
    text = note([fifo, skip, srtf], "fifo and fifo-skip gave identical schedules")
    assert text.endswith("every job started, finished and held GPUs alike.")
    assert not note([fifo, srtf], "fifo and srtf")
    assert not note([fifo, skip], "fifo and", read_records=False)
    write_run(tmp_path, skip)
    assert note([fifo, read_run(tmp_path)], "fifo and fifo-skip gave identical"), "also if one was read back"


def test_elastic_policies_on_rigid_jobs_are_named() -> None:
    rigid = stream(4, 10.0)
    runs = [run_of(rigid), run_of(rigid, "max-min"), run_of(rigid, "afs")]
    text = note(runs, "No job can be resized")
    assert text.endswith("max-min and afs have no choice of sizes.")
    assert not note([runs[0]], "No job can be resized")
    planned = [Job("a", 0.0, model="megatron-1.7b", gpus=8, global_batch=64, iterations=50.0)]
    assert not note([run_of(planned, "max-min")], "No job can be resized")


def test_a_window_is_stated_and_fills_headline_and_verdict() -> None:
    jobs = stream(10, 30.0)
    whole = run_of(jobs)
    run = with_window(whole, 60.0, 90.0)
    text = note([run], "Measured in a window")
    assert "the 3 of 10 jobs submitted from 60 s to 150 s, however late they finish" in text
    window = run.summary["window"]
    heads, (row,), _ = comparison_table([run], None)
    cells = dict(zip(heads, row, strict=True))
    assert cells["JCT mean, s"] == f"{window['jct_mean_s']:.0f}" != f"{whole.summary['jct_mean_s']:.0f}"
    absent = ("Makespan", "GPUs useful", "GPUs allocated, arrivals")
    assert not any(head.startswith(absent) for head in heads), "those of the whole run, or twice the same"
    assert "GPUs allocated, %" in heads
    first = verdict([run], None)[0]
    assert first.startswith("fifo finished 3 of 3 jobs")
    assert "Measured in a window: the 3 of 10 jobs" in render_report([run])


def test_a_window_of_a_run_that_ends_early_names_no_false_last_submission() -> None:
    """Jobs that the run did not reach are in the window, though submitted after its end."""
    run = with_window(run_of(stream(10, 30.0), until_s=100.0), 60.0, None)
    text = note([run], "Measured in a window")
    assert text.endswith("the 8 of 10 jobs submitted from 60 s on, and the GPUs from then to 90 s.")


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


def test_policies_are_compared_over_the_jobs_of_the_window() -> None:
    jobs = stream(10, 30.0)
    runs = [with_window(run_of(jobs, name), 60.0, 90.0) for name in ("fifo", "srtf")]
    assert "over the 3 jobs that every policy finished" in verdict(runs, "fifo")[0]


def test_the_terminal_and_the_page_have_the_same_notes(capsys: pytest.CaptureFixture[str]) -> None:
    from clustersim.commands.output.runs import print_comparison

    jobs = stream(12, 100.0)
    runs = [run_of(jobs), run_of(jobs, "srtf")]
    print_comparison(runs, "fifo", json=False)
    printed, page = " ".join(capsys.readouterr().out.split()), render_report(runs)
    said = notes(runs)
    assert len(said) >= 3
    for sentence in said:
        assert sentence in printed
        shown = re.sub("`(.*?)`", r"<code>\1</code>", sentence)
        assert shown.replace("'", "&#39;") in page


def test_waiting_and_both_utilisations_are_in_headline_and_verdict() -> None:
    jobs = [Job("long", 0.0, gpus=8, duration_s=1000.0), Job("short", 100.0, gpus=8, duration_s=300.0)]
    run = run_of(jobs, "srtf")
    heads, (row,), _ = comparison_table([run], None)
    cells = dict(zip(heads, row, strict=True))
    assert cells["Waiting mean, min"] == "2.50"
    assert cells["GPUs allocated, arrivals, %"] == "100.0"
    first, second = verdict([run], None)[:2]
    assert first.endswith("; they waited 2.50 min on average, 0 min of it for their first GPUs.")
    assert second.endswith("; while jobs arrived, 100.0 % were allocated.")


def test_the_verdict_of_a_comparison_states_all_waiting() -> None:
    """srtf starts `short` at once, at the cost of `long`, which waits though it had started."""
    jobs = [Job("long", 0.0, gpus=8, duration_s=1000.0), Job("short", 100.0, gpus=8, duration_s=300.0)]
    runs = [run_of(jobs), run_of(jobs, "srtf")]
    said = [sentence for sentence in verdict(runs, "fifo") if sentence.startswith("Jobs wait least")]
    assert said == [
        "Jobs wait least, 2.50 min on average under srtf, and longest, 7.50 min on average under fifo."
    ]
    alike = verdict([runs[0], run_of(jobs, "fifo-skip")], "fifo")
    assert not any(sentence.startswith("Jobs wait") for sentence in alike)


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


def test_the_distance_from_the_best_possible_is_stated() -> None:
    """Under fifo the short job waits for the long one; srtf preempts, which is best."""
    jobs = [
        Job("long", 0.0, gpus=8, duration_s=100.0, deadline_s=50.0),
        Job("short", 0.5, gpus=8, duration_s=10.0, deadline_s=200.0),
    ]
    runs = [run_of(jobs), run_of(jobs, "srtf")]
    method = runs[0].manifest["bound"]["method"]
    assert note(runs[:1], "Mean JCT") == "Mean JCT is within x1.75 of the best possible."
    assert note(runs[:1], "Makespan is within") == "Makespan is within x1.00 of the best possible."
    assert note(runs[:1], "Deadlines met") == "Deadlines met: 50.0 of at most 50.0 %."
    text = note(runs, "Mean JCT")
    assert text == "Mean JCT is within x1.00 of the best possible under srtf, and within x1.75 under fifo."
    assert note(runs, "Makespan is") == "Makespan is within x1.00 of the best possible under every policy."
    cheap = note(runs, "These distances")
    assert bool(cheap) == (method in CHEAP)
    assert method in cheap or not cheap
    assert "JCT x best possible" in comparison_table(runs, "fifo").heads
    page = render_report(runs)
    assert text in page
    assert "Best possible" in page
    bare = [run_of(jobs, bound="none")]
    assert not note(bare, "Mean JCT")
    assert "JCT x best possible" not in comparison_table(bare, None).heads


def test_the_bound_in_a_forged_manifest_harms_no_page() -> None:
    made = run_of(stream(5, 10.0))
    for stated in 7, "x", {}, {"method": [], "jct_mean_s": "<b>"}, {"method": "<b>", "jct_mean_s": 1.0}:
        page = render_report([replace(made, manifest={**made.manifest, "bound": stated})])
        assert "<b>" not in page.partition("<script")[0]


def test_deadlines_that_can_be_met_and_are_not_are_named() -> None:
    jobs = [Job("a", 0.0, gpus=8, duration_s=100.0), Job("b", 0.5, gpus=8, duration_s=10.0, deadline_s=20.0)]
    assert note([run_of(jobs)], "No deadline") == "No deadline is met, and some can be."
