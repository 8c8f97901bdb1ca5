"""Logs of production clusters by hand: a few made-up rows, and the jobs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli import main
from tests.traces.importing import import_log
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


# DLRM


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


def test_the_digest_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    log = pai(tmp_path, ["job", "task"])
    first = import_log(log)[1]["input"]
    assert first["file"] == "pai"
    assert import_log(log)[1]["input"] == first
    (log / "pai_task_table.csv").write_text(TASKS + "b,more,1.0,Failed,1.0,2.0,1.0,1.0,100.0,T4\n")
    assert import_log(log)[1]["input"]["sha256"] != first["sha256"]


# Time zones, and what a log states twice


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
NIGHT = (
    "a,u,v,1,1,1,x,2020-10-25 01:00:00,2020-10-25 01:30:00,2020-10-25 04:30:00,14400,1800\n"
    "b,u,v,1,1,1,x,2020-10-25 05:00:00,2020-10-25 05:00:00,2020-10-25 05:10:00,600,0\n"
)


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
