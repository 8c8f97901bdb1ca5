"""Logs of production clusters by hand: a few made-up rows, and the jobs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli import main
from itertime.errors import TableError, UserError
from tests.traces.importing import import_log
from tests.traces.logs.cluster_samples import DLRM, KALOS, OPENB, SEREN
from traces import Job
from traces.logs import FORMATS
from traces.logs.importer import read
from traces.logs.log import Log, ReadOptions
from traces.logs.source import open_log

pytestmark = pytest.mark.usefixtures("wide_terminal")


def imported(folder: Path, text: str, **options: Any) -> tuple[list[Job], dict[str, Any]]:
    (folder / "log").write_text(text)
    return import_log(folder / "log", **options)


def as_logged(path: Path, **options: Any) -> Log:
    with open_log(path) as source:
        return read(source, ReadOptions(**options))


# Acme

DAY = "2023-05-17 "
KALOS_ROWS = (
    f"a,u,2,16,9,9,9,Pretrain,FAILED,{DAY}11:00:00+00:00,{DAY}11:00:10+00:00,{DAY}11:01:10+00:00,,,70,10,1120\n"
    f"b,v,1,8,9,9,9,Eval,CANCELLED,{DAY}12:00:00+00:00,{DAY}12:00:30+00:00,,,{DAY}12:00:40+00:00,40,30,320\n"
    f"c,v,1,8,9,9,9,Eval,CANCELLED,{DAY}13:00:00+00:00,,,,{DAY}13:00:40+00:00,40,,\n"
    f"d,v,1,0,9,9,9,Other,COMPLETED,{DAY}13:00:00+00:00,{DAY}13:00:00+00:00,{DAY}13:01:00+00:00,,,60,0,0\n"
)


def test_run_times_of_kalos_are_those_of_its_time_stamps(tmp_path: Path) -> None:
    """Its durations count from the submission. An end may be stated as a failure or a stop."""
    jobs, report = imported(tmp_path, KALOS + KALOS_ROWS)
    assert jobs == [
        Job("a", 0.0, "u", gpus=16, duration_s=60.0, state="FAILED", user="u", logged_start_s=10.0),
        Job("b", 3600.0, "v", gpus=8, duration_s=10.0, state="CANCELLED", user="v", logged_start_s=3630.0),
    ]
    assert report["format"] == "acme"
    assert report["dropped_by_reason"] == {
        "start_time is empty: the job never ran": 1,
        "gpu_num: must be at least 1": 1,
    }
    assert "the stated run time is not the time from start to end in 2 of 2 jobs" in report["assumptions"]
    assert {job.tenant for job in imported(tmp_path, KALOS + KALOS_ROWS, tenant="type")[0]} == {
        "Pretrain",
        "Eval",
    }


def test_dates_of_seren_have_an_offset(tmp_path: Path) -> None:
    rows = (
        "1,u,1,8,9,Other,FAILED,2023-03-01 00:18:00+08:00,2023-03-01 00:18:30+08:00,"
        "2023-03-01 00:20:30+08:00,120,30,960\n"
        "2,u,1,8,9,Debug,COMPLETED,2023-02-28 16:20:00+00:00,2023-03-01 00:21:00+08:00,"
        "2023-03-01 00:22:00+08:00,60,60,480\n"
    )
    jobs, report = imported(tmp_path, SEREN + rows)
    assert [(job.submit_s, job.duration_s, job.logged_start_s) for job in jobs] == [
        (0.0, 120.0, 30.0),
        (120.0, 60.0, 180.0),
    ]
    assert not any("offset" in text or "stated run time" in text for text in report["assumptions"])
    ends = [job.logged_end_s for job in as_logged(tmp_path / "log").jobs]
    assert [end - 1677601080 for end in ends if end] == [150.0, 240.0]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("job_id,arrival_time,gpu_workers,iterations,iteration_time", "k,9.5,64,1000,0.06"),
        ("arrival,name,num_iters,time_per_iter,gpu_workers,cpu", "9.5,k,1000,0.06,64,3"),
        ("id,submit_time,duration,gpu_workers", "k,9.5,60,64"),
        ("id;submission;step_ms;steps;gpu_workers", "k;9.5;60;1000;64"),
    ],
)
def test_converted_kalos_under_the_names_of_several_converters(tmp_path: Path, header: str, row: str) -> None:
    jobs, report = imported(tmp_path, f"{header}\n{row}\n")
    assert jobs == [Job("k", 0.0, gpus=64, duration_s=60.0)]
    assert report["format"] == "kalos-converted"
    assert report["clock"]["shift_s"] == 9.5


def test_converted_kalos_whose_columns_may_mean_several_things_is_refused(tmp_path: Path) -> None:
    for header, says in (
        (
            "arrival,gpu_workers,iterations,fwd_step_s,bwd_step_s",
            "length of an iteration is stated by fwd_step",
        ),
        ("gpu_workers,iterations,step_s", "submission is stated by no column; name the columns: --columns"),
        ("arrival,gpu_workers", "run time is stated by no column"),
    ):
        with pytest.raises(TableError) as caught:
            imported(tmp_path, header + "\n1,1,1,1,1\n")
        assert says in str(caught.value)


def test_products_of_steps_and_their_length_give_run_times_in_any_log(tmp_path: Path) -> None:
    columns = "submit_s=at,gpus=n,steps=k,step_s=each"
    text = "at,n,k,each\n0,4,100,250\n1,4,0,250\n2,4,1e12,1e9\n3,4,,5\n"
    jobs, report = imported(tmp_path, text, columns=columns, time_unit="step_s=ms,s")
    assert [(job.duration_s, job.iterations) for job in jobs] == [(25.0, None)]
    assert "k x each is the run time on n GPUs" in report["assumptions"][1]
    assert [row["line"] for row in report["dropped"]] == [3, 4, 5]
    with pytest.raises(UserError, match="or both steps=COLUMN and step_s=COLUMN"):
        imported(tmp_path, text, columns="submit_s=at,gpus=n,steps=k")


# openb


def test_pods_of_openb_hold_parts_of_gpus_and_demand_models(tmp_path: Path) -> None:
    rows = (
        "a,9,9,1,250,T4,LS,Running,100,1160,160\n"
        "b,9,9,8,1000,V100M16|V100M32,BE,Failed,110,3720,120\n"
        "c,9,9,0,0,,BE,Succeeded,110,3720,120\n"
        "d,9,9,1,500,,BE,Pending,130,900,\n"
        "e,9,9,1,500,,BE,Running,130,,140\n"
    )
    jobs, report = imported(tmp_path, OPENB + rows)
    assert jobs == [
        Job(
            "a", 0.0, gpus=1, duration_s=1000.0, state="Running", gpu_type="T4", logged_start_s=60.0, qos="LS"
        ),
        Job("b", 10.0, gpus=8, duration_s=3600.0, state="Failed", logged_start_s=20.0, qos="BE"),
    ]
    assert report["parts_of_gpus"] == 1
    assert report["held_gpu_seconds"] == 0.25 * 1000 + 8 * 3600
    assert report["dropped_by_reason"] == {
        "num_gpu: must be at least 1": 1,
        "scheduled_time is empty: the pod was never scheduled": 1,
        "deletion_time is empty: the pod was not deleted": 1,
    }
    first = as_logged(tmp_path / "log").jobs[0]
    assert (first.logged_start_s, first.logged_end_s, first.held_gpus) == (160.0, 1160.0, 0.25)


def test_a_list_of_pods_without_times_is_no_log(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,9,9,1,1000\n"
    with pytest.raises(TableError, match="log:1: states no times: a list of pods to pack, not a log of jobs"):
        imported(tmp_path, text)


# DLRM


def test_instances_that_are_older_than_the_log_or_outlast_it_count_within_it(tmp_path: Path) -> None:
    beside = "8,8,{},{},1,1,9,9,9,9,-1"
    rows = [
        ("old", 1, ",,500"),
        ("new", 1, "100,150,400"),
        ("lasting", 1, "200,210,"),
        ("all", 1, ",,"),
        ("waits", 1, "300,,"),
        ("cpu", 0, "5,5,1000"),
        ("short", 1, "7,7,7"),
    ]
    text = "".join(f"{n},HN,svc,{beside.format(g, g)},{times}\n" for n, g, times in rows)
    jobs, report = imported(tmp_path, DLRM + text)
    assert [(job.job_id, job.submit_s, job.duration_s, job.logged_start_s) for job in jobs] == [
        ("all", 0.0, 1000.0, 0.0),
        ("old", 0.0, 500.0, 0.0),
        ("new", 100.0, 250.0, 150.0),
        ("lasting", 200.0, 790.0, 210.0),
    ]
    assert {job.tenant for job in jobs} == {"svc"}
    assert [warning.split(":")[0] for warning in report["warnings"]] == [
        "2 instances are older than the log and count from its start, 0 s",
        "2 instances outlast the log and count to its last time, 1000 s",
    ]
    assert report["dropped_by_reason"] == {
        "scheduled_time is empty: the instance was never scheduled": 1,
        "gpu_request: must be at least 1": 1,
        "does not end after its start": 1,
    }


# PAI

JOBS = (
    "a,ia,u,Terminated,100.0,900.0\nb,ib,v,Failed,200.0,700.0\nc,ic,v,Running,300.0,\n"
    "d,id,v,Terminated,400.0,500.0\ne,ie,w,Terminated,,\nf,if,w,Failed,500.0,600.0\n"
)
TASKS = (
    "a,worker,4.0,Terminated,160.0,860.0,600.0,30.0,25.0,T4\n"
    "a,chief,1.0,Terminated,150.0,850.0,600.0,30.0,100.0,T4\n"
    "a,ps,2.0,Terminated,110.0,900.0,600.0,30.0,,\n"
    "b,worker,3.0,Failed,210.0,610.0,600.0,30.0,50.0,V100\n"
    "c,worker,1.0,Running,310.0,,600.0,30.0,100.0,V100\n"
    "d,ps,1.0,Terminated,410.0,490.0,600.0,30.0,,\n"
    "f,worker,many,Failed,510.0,590.0,600.0,30.0,100.0,V100\n"
    "z,worker,1.0,Terminated,1.0,2.0,600.0,30.0,100.0,V100\n"
)
INSTANCES = (
    "a,worker,n1,w1,ia,Terminated,170.0,850.0,m1\na,ps,n2,w2,ia,Terminated,110.0,900.0,m1\n"
    "a,worker,n3,w3,ia,Terminated,180.0,870.0,m2\nb,worker,n4,w4,ib,Failed,,,m2\n"
)
GROUPS = "ia,u,,g1,bert\nib,v,V100,g2,\n"
HEADERS = {
    "job": "job_name,inst_id,user,status,start_time,end_time\n",
    "task": "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n",
    "instance": "job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine\n",
    "group_tag": "inst_id,user,gpu_type_spec,group,workload\n",
}
TABLES = {"job": JOBS, "task": TASKS, "instance": INSTANCES, "group_tag": GROUPS}


def pai(folder: Path, names: list[str], headers: bool = False) -> Path:
    log = folder / "pai"
    log.mkdir()
    for name in names:
        (log / f"pai_{name}_table.csv").write_text(HEADERS[name] * headers + TABLES[name])
        (log / f"pai_{name}_table.header").write_text(HEADERS[name])
    (log / "README").write_text("tables of PAI\n")
    return log


@pytest.mark.parametrize("headers", [False, True])
def test_jobs_of_pai_are_joined_from_jobs_and_tasks(tmp_path: Path, headers: bool) -> None:
    jobs, report = import_log(pai(tmp_path, ["job", "task"], headers))
    assert jobs == [
        Job("a", 0.0, "u", gpus=2, duration_s=710.0, state="Terminated", user="u", logged_start_s=50.0),
        Job("b", 100.0, "v", gpus=2, duration_s=400.0, state="Failed", user="v", logged_start_s=110.0),
    ]
    assert report["format"] == "pai"
    assert report["parts_of_gpus"] == 1
    assert report["held_gpu_seconds"] == 2 * 710 + 1.5 * 400
    assert report["counts"]["rows"] == 6 + headers * 0
    assert report["dropped_by_reason"] == {
        "no task with GPUs states start and end: the job had not ended, or never ran": 1,
        "no task of the job has GPUs": 1,
        "start_time is empty: the job was not submitted": 1,
        "plan_gpu or inst_num of a task is not a number; write a plain number such as 3600 or 0.5": 1,
    }


def test_instances_of_pai_say_when_and_groups_which_type(tmp_path: Path) -> None:
    jobs, report = import_log(pai(tmp_path, ["job", "task", "instance", "group_tag"]))
    assert jobs == [
        Job("a", 0.0, "u", gpus=2, duration_s=700.0, state="Terminated", user="u", logged_start_s=70.0),
        Job("b", 100.0, "v", gpus=2, duration_s=400.0, state="Failed", user="v", gpu_type="V100",
            logged_start_s=110.0),
    ]  # fmt: skip
    assert report["assumptions"][0] == "tables of the folder that are used: group, instance, job, task"


def test_the_digest_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    log = pai(tmp_path, ["job", "task"])
    first = import_log(log)[1]["input"]
    assert first["file"] == "pai"
    assert import_log(log)[1]["input"] == first
    (log / "pai_task_table.csv").write_text(TASKS + "b,more,1.0,Failed,1.0,2.0,1.0,1.0,100.0,T4\n")
    assert import_log(log)[1]["input"]["sha256"] != first["sha256"]


def test_folders_that_hold_no_log_and_tables_without_their_folder(tmp_path: Path) -> None:
    log = pai(tmp_path, ["job", "task"])
    with pytest.raises(
        TableError, match=r"pai_task_table.csv:1: is one table of Alibaba PAI.*; give the fold"
    ):
        import_log(log / "pai_task_table.csv")
    with pytest.raises(UserError, match="pai: is a folder; give the file of the log"):
        import_log(log, log_format="itp")
    with pytest.raises(UserError, match="is a folder"):
        import_log(log, columns="submit_s=1,gpus=2,duration_s=3")
    (log / "pai_job_table.csv").unlink()
    with pytest.raises(TableError, match="pai: is a folder of no known log; give a file of it"):
        import_log(log)
    with pytest.raises(TableError, match="holds no job table of Alibaba PAI"):
        import_log(log, log_format="pai")
    (log / "pai_job_table.csv").write_text(JOBS)
    (log / "pai_job_table_2.csv").write_text(JOBS)
    with pytest.raises(
        TableError, match=r"pai_job_table.csv and pai_job_table_2.csv both hold the job table"
    ):
        import_log(log)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="empty: is a folder of no known log"):
        import_log(tmp_path / "empty")
    for i in range(70):
        (tmp_path / "empty" / str(i)).write_text("")
    with pytest.raises(UserError, match="holds 70 files"):
        import_log(tmp_path / "empty")


def test_rows_of_another_length_beside_the_jobs_are_counted(tmp_path: Path) -> None:
    log = pai(tmp_path, ["job", "task"])
    (log / "pai_task_table.csv").write_text(TASKS + "b,worker,1.0\n")
    report = import_log(log)[1]
    assert report["warnings"] == [
        "1 rows of the tables beside the jobs' have another number of cells, and are left out"
    ]


# Time zones, and what a log states twice


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
NIGHT = (
    "a,u,v,1,1,1,x,2020-10-25 01:00:00,2020-10-25 01:30:00,2020-10-25 04:30:00,14400,1800\n"
    "b,u,v,1,1,1,x,2020-10-25 05:00:00,2020-10-25 05:00:00,2020-10-25 05:10:00,600,0\n"
)


def test_dates_without_an_offset_are_of_the_zone_that_the_user_names(tmp_path: Path) -> None:
    jobs, report = imported(tmp_path, HELIOS + NIGHT)
    assert jobs[1].submit_s == 4 * 3600
    assert any(text.startswith("dates without an offset are taken as UTC") for text in report["assumptions"])
    assert "the stated run time is not the time from start to end in 1 of 2 jobs" in report["assumptions"]
    jobs, report = imported(tmp_path, HELIOS + NIGHT, time_zone="Europe/Berlin")
    assert jobs[1].submit_s == 5 * 3600  # the night in which clocks go back
    assert "dates without an offset are of Europe/Berlin, as the user says" in report["assumptions"]
    assert not any("stated run time" in text for text in report["assumptions"])


@pytest.mark.parametrize("zone", ["Europe/Berln", "", "../../etc/passwd", "/etc/passwd", "a\0b", "x" * 5000])
def test_an_unknown_zone_is_a_mistake_of_the_user(tmp_path: Path, zone: str) -> None:
    with pytest.raises(UserError, match="unknown name in --time-zone"):
        imported(tmp_path, HELIOS + NIGHT, time_zone=zone)


def test_the_command_takes_a_zone_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(HELIOS + NIGHT)
    out = tmp_path / "out.csv"
    assert (
        main(["trace", "import", str(tmp_path / "log"), "-o", str(out), "--time-zone", "Asia/Shanghai"]) == 0
    )
    assert main(["trace", "import", str(pai(tmp_path, ["job", "task"])), "-o", str(out)]) == 0
    assert json.loads((tmp_path / "out.import.json").read_text())["format"] == "pai"


@pytest.mark.parametrize("name", sorted({"helios", "acme", "openb", "dlrm", "pai", "philly"} & set(FORMATS)))
def test_logs_that_state_start_and_end_keep_both(tmp_path: Path, name: str) -> None:
    from tests.traces.logs.test_formats import SAMPLES, write

    (job,) = as_logged(write(tmp_path / "log", SAMPLES[name])).jobs
    assert job.logged_start_s is not None
    assert job.logged_end_s == job.logged_start_s + 600


def test_an_end_before_the_start_is_left_out_and_counted(tmp_path: Path) -> None:
    row = "a,u,v,1,1,1,x,2020-10-25 01:00:00,2020-10-25 01:30:00,2020-10-25 01:20:00,600,0\n"
    _, report = imported(tmp_path, HELIOS + row)
    assert "left out of 1 jobs: logged end: lies before the start or the submission" in report["assumptions"]
