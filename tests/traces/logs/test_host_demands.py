"""Cores and host memory that logs state: read where the user asks for them, and nothing of them else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.importing import imported
from traces.native import read_trace, write_trace

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,8,32,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:10,2020-05-01 10:10:10,600,10
2,u,v,1,0,1,COMPLETED,2020-05-01 11:00:00,2020-05-01 11:00:00,2020-05-01 11:10:00,600,0
"""
SLURM = """JobIDRaw|Account|Submit|ElapsedRaw|AllocTRES|State|ReqTRES
1|a|2024-05-01T10:00:00|600|billing=64,cpu=64,gres/gpu=8,mem=512G,node=1|COMPLETED|cpu=1
2|a|2024-05-01T10:00:05|600||COMPLETED|cpu=4,gres/gpu=1,mem=1500M,node=1
3|a|2024-05-01T10:00:09|600|gres/gpu=1,node=1|COMPLETED|
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,pod_phase,creation_time,deletion_time,scheduled_time
p1,10500,16384,1,1000,Running,0,100,10
p2,8000,0,2,1000,Running,5,105,10
"""
PAI = {
    "pai_job_table.csv": "j1,i1,u,Terminated,100,300\n",
    "pai_task_table.csv": (
        "j1,worker,2,Terminated,110,300,600,29.3,100,V100\nj1,ps,1,Terminated,110,300,1000,50,,\n"
    ),
}


@pytest.mark.parametrize(
    ("log", "cpus", "memory_gb"),
    [
        (HELIOS, [32.0, None], [None, None]),
        (SLURM, [64.0, 4.0, None], [549.755813888, 1.572864, None]),
        (OPENB, [10.5, 8.0], [17.179869184, None]),
        (PAI, [12.0], [58.6]),
    ],
    ids=["helios", "slurm", "openb", "pai"],
)
def test_they_are_those_of_the_whole_job(
    log: str | dict[str, str], cpus: list[float | None], memory_gb: list[float | None], tmp_path: Path
) -> None:
    jobs, report = imported(tmp_path, log, host=True)
    assert [job.cpus for job in jobs] == pytest.approx(cpus)
    assert [job.host_memory_gb for job in jobs] == pytest.approx(memory_gb)
    count = sum(a is not None or b is not None for a, b in zip(cpus, memory_gb, strict=True))
    assert any(note.startswith(f"{count} jobs state cores") for note in report["assumptions"])
    plain, _ = imported(tmp_path, log)
    assert all(job.cpus is None and job.host_memory_gb is None for job in plain)
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs


def test_columns_name_them(tmp_path: Path) -> None:
    log = "id,at,n,took,c,m\n1,0,2,60,8,64.5\n2,5,1,60,,\n"
    columns = "job_id=id,submit_s=at,gpus=n,duration_s=took,cpus=c,host_memory_gb=m"
    jobs, _ = imported(tmp_path, log, columns=columns, time_unit="s")
    assert [(job.cpus, job.host_memory_gb) for job in jobs] == [(8.0, 64.5), (None, None)]


def test_a_log_without_them_says_so(tmp_path: Path) -> None:
    log = "id,at,n,took\n1,0,2,60\n"
    columns = "job_id=id,submit_s=at,gpus=n,duration_s=took"
    _, report = imported(tmp_path, log, columns=columns, time_unit="s", host=True)
    assert "no job of this columns log states cores or host memory" in report["warnings"]


def test_values_that_are_none_are_left_out_and_counted(tmp_path: Path) -> None:
    jobs, report = imported(tmp_path, HELIOS.replace(",32,1,", ",-3,1,"), host=True)
    assert [job.cpus for job in jobs] == [None, None]
    assert any("left out of 1 jobs: cpu_num" in note for note in report["assumptions"])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,0,2,60,0,", "cpus=0: is outside 0.001 to 1e+09; leave the cell empty"),
        ("a,0,2,60,,-1", "host_memory_gb=-1: is outside"),
        ("a,0,2,60,many,", "cpus=many: is not a number"),
    ],
)
def test_a_trace_with_an_impossible_demand_is_refused(row: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"job_id,submit_s,gpus,duration_s,cpus,host_memory_gb\n{row}\n")
    with pytest.raises(Exception, match=r"trace.csv:2: ") as found:
        read_trace(path)
    assert says in str(found.value)


def test_a_demand_needs_gpus_among_which_it_is_divided(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,model,global_batch,iterations,cpus\na,0,megatron-1.7b,64,5,8\n")
    with pytest.raises(Exception, match=r"trace.csv:2: cpus=8: needs gpus"):
        read_trace(path)
