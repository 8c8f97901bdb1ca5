"""Traces of papers by hand: a few rows, and the jobs that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.cli import main
from itertime.errors import TableError
from tests.traces.importing import imported
from tests.traces.logs.paper_samples import (
    CHRONUS,
    MORPHLING,
    MURI,
    MURI_RESULTS,
    POLLUX,
    TIRESIAS,
    gavel,
    shockwave,
)
from traces import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")


def test_a_row_of_chronus_counts_in_minutes_and_has_a_deadline_after_its_submission(tmp_path: Path) -> None:
    rows = "0,v,4,100,9,vgg,10,8,15-30,10-5,0,soft\n1,v,1,160,9,vgg,20,8,160,10,1,best\n"
    rows += "2,v,0,160,9,vgg,2,8,9,1,0,strict\n"
    jobs, report = imported(tmp_path, CHRONUS + rows)
    assert jobs == [
        Job("0", 0.0, "v", gpus=4, duration_s=600.0, deadline_s=900.0),
        Job("1", 3600.0, "v", gpus=1, duration_s=1200.0),
    ]
    assert report["counts"]["dropped"] == 1


def test_a_row_of_muri_counts_in_milliseconds(tmp_path: Path) -> None:
    jobs, report = imported(
        tmp_path, MURI + "0,8,500,9,vgg,16,1500,0,100,1,2,3,1\n1,2,2500,9,x,16,250,0,9,1,2,3,0\n"
    )
    assert jobs == [Job("0", 0.0, gpus=8, duration_s=1.5, priority=1), Job("1", 2.0, gpus=2, duration_s=0.25)]
    assert report["demand"]["gpu_seconds"] == 8 * 1.5 + 2 * 0.25


def test_a_row_of_muris_results_keeps_when_the_job_held_its_gpus(tmp_path: Path) -> None:
    """A job that was stopped between its start and its end held its GPUs for less than the time between."""
    rows = "1000,7,8,100,400,1000,600,450,900,400,450,3,0\n1300,3,2,0,1200,1300,100,100,1300,90,1200,1,0\n"
    jobs, report = imported(tmp_path, MURI_RESULTS + rows)
    assert jobs == [
        Job("3", 0.0, gpus=2, duration_s=100.0, logged_start_s=1200.0),
        Job("7", 100.0, gpus=8, duration_s=450.0, logged_start_s=400.0),
    ]
    assert report["demand"]["gpu_seconds"] == 8 * 450 + 2 * 100


def test_a_row_of_tiresias_counts_in_seconds(tmp_path: Path) -> None:
    jobs, _ = imported(tmp_path, TIRESIAS + "0,4,50,9,vgg,160,50\n1,0,60,9,vgg,160,10\n")
    assert jobs == [Job("0", 0.0, gpus=4, duration_s=160.0)]


def test_a_row_of_rubick_says_whether_it_is_guaranteed(tmp_path: Path) -> None:
    rows = "t5-0,5,0.25,t5,8,8,0,ga,9,0\nllama7-1,9,60,llama7,64,8,1.25,248,9,1\nx,10,60,x,1,1,0,x,1,2\n"
    jobs, report = imported(tmp_path, MORPHLING + rows)
    assert jobs == [
        Job("t5-0", 0.0, gpus=8, duration_s=0.25, qos="best-effort"),
        Job("llama7-1", 4.0, gpus=64, duration_s=60.0, qos="guaranteed"),
    ]
    assert report["dropped_by_reason"] == {"is_sla: must be 0 or 1": 1}


@pytest.mark.parametrize(
    ("rows", "run_times"),
    [("0,600,1\n60,86400,2\n", [600.0, 86400.0]), ("0,0.5,1\n60,24,2\n", [1800.0, 86400.0])],
    ids=["seconds", "hours"],
)
def test_lengths_in_gaia_tell_hours_from_seconds(tmp_path: Path, rows: str, run_times: list[float]) -> None:
    jobs, report = imported(tmp_path, "arrival_time,length,cpus\n" + rows)
    assert [job.duration_s for job in jobs] == run_times
    assert jobs[1].submit_s == (60.0 if run_times[0] == 600 else 60 * 3600.0)
    assert report["warnings"] == ["cpus, the unit of demand of the log, count as GPUs"]


def test_lengths_in_gaia_that_could_be_either_are_refused_with_the_option(tmp_path: Path) -> None:
    rows = "arrival_time,length,cpus\n0,20,1\n5,400,1\n"
    with pytest.raises(TableError, match=r"length is from 20 to 400: .*; state the unit: --time-unit s or"):
        imported(tmp_path, rows)
    assert imported(tmp_path, rows, time_unit="min")[0][0].duration_s == 1200.0


def test_columns_that_a_trace_may_lack(tmp_path: Path) -> None:
    jobs, report = imported(tmp_path, MORPHLING.replace(",is_sla", "") + "t5-0,5,60,t5,8,8,0,ga,9\n")
    assert jobs == [Job("t5-0", 0.0, gpus=8, duration_s=60.0)]
    assert "the log has no column is_sla" in report["assumptions"]
    jobs, _ = imported(tmp_path, MURI.replace(",priority", "") + "0,8,500,9,vgg,16,1500,0,100,1,2,3\n")
    assert jobs == [Job("0", 0.0, gpus=8, duration_s=1.5)]


def test_a_row_of_shockwave_runs_as_long_as_it_says(tmp_path: Path) -> None:
    """The batches of its jobs change, so model and steps are no work of theirs."""
    rows = shockwave("LM (batch size 5)", 900, 2, 30.5, 10, "gns") + shockwave(
        "LM (batch size 5)", 9, 1, 0, 11
    )
    jobs, report = imported(tmp_path, "# made up\n" + rows)
    assert jobs == [Job("2", 0.0, gpus=2, duration_s=30.5)]
    assert report["dropped_by_reason"] == {
        "duration: must be greater than 0; leave out jobs that never ran": 1
    }


LATER = "\t".join(["A3C", "python3 a.py", "folder", "-n", "0", "77", "4", "1.5", "-1.0", "20.25"]) + "\n"


@pytest.mark.parametrize(
    ("rows", "jobs"),
    [
        (
            gavel("ResNet-50 (batch size 16)", 500, 7.5, 8) + gavel("A3C", 40, 9.0, 1),
            [("ResNet-50", 16, 500.0, 8, 0.0), ("A3C", 1, 40.0, 1, 1.5)],
        ),
        (gavel("CycleGAN", 3, 0.0, 2, 1.0, -1.0), [("CycleGAN", 1, 3.0, 2, 0.0)]),
        (LATER, [("A3C", 1, 77.0, 4, 0.0)]),
    ],
    ids=["7 columns", "9 columns", "10 columns"],
)
def test_rows_of_gavel_are_steps_of_a_model(tmp_path: Path, rows: str, jobs: list[Any]) -> None:
    found, report = imported(tmp_path, rows)
    assert report["format"] == "gavel"
    assert [(j.model, j.global_batch, j.iterations, j.gpus, j.submit_s) for j in found] == jobs
    assert {j.duration_s for j in found} == {None}
    assert "state iterations of a model and no run time" in report["warnings"][0]


def test_priorities_of_gavel_are_weights(tmp_path: Path) -> None:
    rows = gavel("A3C", 9, 0, 1, 5.0, -1.0) + gavel("A3C", 9, 1, 1, 1.0, -1.0) + gavel("A3C", 9, 2, 1, 0, -1)
    jobs, report = imported(tmp_path, rows)
    assert [(job.weight, job.priority) for job in jobs] == [(5.0, 0), (1.0, 0), (1.0, 0)]
    assert "priorities are weights here; SLOs are left out" in report["assumptions"]


def test_rows_of_gavel_that_are_no_jobs_are_dropped(tmp_path: Path) -> None:
    rows = (
        gavel("LM (batch size 5)", 9, 0, 1)
        + gavel("LM (batch size 5)", 0, 1, 1)
        + gavel("LM (batch size 5)", 9, 1, 0)
    )
    jobs, report = imported(tmp_path, rows + "LM\t9\n" + gavel("LM (batch size 0)", 9, 0, 1))
    assert [job.job_id for job in jobs] == ["1"]
    assert report["counts"]["dropped"] == 4


def test_speeds_of_another_log_give_run_times(tmp_path: Path) -> None:
    """Between two numbers of GPUs the speed is on a line in logarithms; beyond them it is not known."""
    (tmp_path / "speeds").write_text(
        shockwave("LM (batch size 5)", 1000, 1, 100, 0)
        + shockwave("LM (batch size 5)", 1000, 1, 50, 0)
        + shockwave("LM (batch size 5)", 900, 1, 100, 0)
        + shockwave("LM (batch size 5)", 4000, 4, 100, 0)
    )
    rows = "".join(gavel("LM (batch size 5)", 600, 0, gpus) for gpus in (1, 2, 4, 8))
    rows += gavel("LM (batch size 10)", 600, 0, 1)
    jobs, report = imported(tmp_path, rows, speeds=str(tmp_path / "speeds"))
    assert [(job.gpus, job.iterations) for job in jobs] == [(1, 600.0), (2, 600.0), (4, 600.0)]
    assert [job.duration_s for job in jobs] == pytest.approx([60.0, 30.0, 15.0])
    assert list(report["dropped_by_reason"].values()) == [2]
    assert [file["format"] for file in report["speeds"]] == ["shockwave"]
    assert report["warnings"] == []


def test_jobs_of_sia_take_work_and_speeds_from_elsewhere(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "bert.csv").write_text("global_batch_size,2,8\n384,0.5,2\n")
    names = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    (tmp_path / "work").write_text(names + "a,0,100,bert,,384,1,600\nb,0,300,bert,,384,1,600\n")
    rows = POLLUX + "bert-0,5,bert,4,384\nbert-1,6,bert,4,768\n"
    work, speeds = str(tmp_path / "work"), str(tables)
    jobs, report = imported(tmp_path, rows, work_of=work, speeds=speeds)
    assert jobs == [
        Job(
            "bert-0",
            0.0,
            model="bert",
            gpus=4,
            global_batch=384,
            iterations=200.0,
            duration_s=pytest.approx(200),
        )
    ]
    assert report["dropped_by_reason"] == {"states neither run time nor iterations": 1}
    assert imported(tmp_path, rows, work_of=work)[0][0].duration_s is None
    with pytest.raises(
        TableError, match=r"no job can be imported; line 2: states neither run time .*--work-of"
    ):
        imported(tmp_path, rows, speeds=speeds)
    steps = rows.replace("batch_size\n", "batch_size,num_steps\n").replace("384\n", "384,50\n")
    stated, _ = imported(tmp_path, steps.replace("768\n", "768,\n"), work_of=work, speeds=speeds)
    assert [job.iterations for job in stated] == [50.0]


def test_logs_without_speeds_or_work_are_no_source_of_them(tmp_path: Path) -> None:
    (tmp_path / "itp").write_text("job_id,submission_time,duration,num_gpu\na,0,600,1\n")
    rows, itp = gavel("A3C", 9, 0, 1), str(tmp_path / "itp")
    with pytest.raises(TableError, match="no job states model, batch, iterations and run time; name"):
        imported(tmp_path, rows, speeds=itp)
    with pytest.raises(TableError, match="no job states model, batch and iterations; name"):
        imported(tmp_path, rows, work_of=itp)


def test_rules_need_run_times(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="states no run time, which rules turn into work; --speeds SOURCE"):
        imported(tmp_path, gavel("A3C", 9, 0, 1), rules="llm-mix")


def test_a_log_gives_a_throughput_table_with_which_jobs_of_iterations_run(tmp_path: Path) -> None:
    rows = shockwave("LM (batch size 5)", 1000, 1, 100, 0) + shockwave("LM (batch size 5)", 500, 1, 100, 0)
    rows += shockwave("LM (batch size 5)", 900, 1, 100, 0) + shockwave("A3C", 30, 4, 10, 0)
    log, table, trace = tmp_path / "log", tmp_path / "table.csv", tmp_path / "gavel.csv"
    log.write_text(rows)
    (tmp_path / "jobs").write_text(gavel("LM (batch size 5)", 90, 0, 1) + gavel("A3C", 30, 1, 4))
    assert main(["trace", "import-table", str(log), "-o", str(table)]) == 0
    assert table.read_text().splitlines() == [
        "model,global_batch,gpus,iterations_per_s",
        "A3C,1,4,3.0",
        "LM,5,1,9.0",
    ]
    assert main(["trace", "import", str(tmp_path / "jobs"), "-o", str(trace)]) == 0
    assert main(["trace", "check", str(trace), "--table", str(table)]) == 0
