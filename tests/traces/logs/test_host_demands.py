"""Cores and host memory that logs state: read where the user asks for them, and nothing of them else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.importing import imported
from traces.native import read_trace


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


def test_rules_that_give_a_job_other_gpus_give_it_as_much_beside_each(tmp_path: Path) -> None:
    rows = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    rows += "1,u,v,4,32,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:10,2020-05-01 10:10:10,600,10\n"
    ((job,), _) = imported(tmp_path, rows, host=True, rules="llm-mix", planner="data-parallel")
    assert job.gpus != 4
    assert job.cpus == 8 * job.gpus
