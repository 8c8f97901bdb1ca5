"""Every format by hand: a few rows, and the jobs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import TableError
from tests.traces.importing import imported, write
from tests.traces.logs.cluster_samples import CLUSTER_SAMPLES
from tests.traces.logs.live_samples import LIVE_SAMPLES
from tests.traces.logs.paper_samples import PAPER_SAMPLES, WITHOUT_RUN_TIMES
from traces import read_trace, write_trace
from traces.logs import FORMATS
from traces.logs.source import open_log

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
FLEETSIM = (
    "# a slice\n# of a log\n"
    "job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n"
)
SACCT = (
    "JobIDRaw|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    "ReqTRES|AllocTRES|State|Priority\n"
)
SWF = "; Version: 2.2\n; MaxProcs: 128\n;\n"
SAMPLES: dict[str, str | dict[str, str]] = {
    **CLUSTER_SAMPLES,
    **PAPER_SAMPLES,
    **WITHOUT_RUN_TIMES,
    **LIVE_SAMPLES,
    "itp": "job_id,submission_time,duration,num_gpu\na,0,600,1\n",
    "philly": json.dumps(
        [
            {
                "status": "Pass",
                "vc": "v",
                "jobid": "a",
                "user": "u",
                "submitted_time": "2017-10-07 01:00:00",
                "attempts": [
                    {
                        "start_time": "2017-10-07 01:00:00",
                        "end_time": "2017-10-07 01:10:00",
                        "detail": [{"ip": "m", "gpus": ["gpu0"]}],
                    }
                ],
            }
        ]
    ),
    "philly-table": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-07 01:00:00,600,1,600,v\n",
    "helios": HELIOS
    + "a,u,v,1,1,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:10:00,600,0\n",
    "fleetsim": FLEETSIM + "a,u,v,train,5000000,1,,1,600,900,COMPLETED\n",
    "slurm": SACCT + "1|u|v|p|q|2024-05-01T12:00:00|Unknown|Unknown|600|60|1||gres/gpu=1|COMPLETED|5\n",
    "swf": SWF + "1 0 -1 600 1 -1 -1 -1 -1 -1 1 7 3 -1 -1 -1 -1 -1\n",
}


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_log_is_recognised_as_its_format_only(tmp_path: Path, name: str) -> None:
    with open_log(write(tmp_path / "log", SAMPLES[name])) as source:
        assert [known for known, form in FORMATS.items() if form.matches(source.head)] == [name]


@pytest.mark.parametrize("name", sorted(set(FORMATS) - set(WITHOUT_RUN_TIMES)))
def test_ten_minutes_on_a_gpu_are_a_sixth_of_a_gpu_hour_in_every_format(tmp_path: Path, name: str) -> None:
    """What is imported is a trace that reads back, too."""
    jobs, report = imported(tmp_path, SAMPLES[name])
    assert (report["format"], len(jobs), jobs[0].gpus, jobs[0].duration_s) == (name, 1, 1, 600.0)
    assert report["times"]
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv", known_models=["bert"]) == jobs


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"philly", "pollux"}))
def test_a_log_of_a_format_may_have_any_line_ends_and_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    plain, _ = imported(tmp_path, sample)
    if isinstance(sample, str):
        marked: str | dict[str, str] = "\ufeff" + sample.replace("\n", "\r\n")
    else:
        marked = {file: "\ufeff" + text.replace("\n", "\r\n") for file, text in sample.items()}
    assert imported(tmp_path, marked, "other")[0] == plain


def philly(**changes: Any) -> dict[str, Any]:
    entry = json.loads(SAMPLES["philly"])[0]
    return entry | changes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"jobid": "a", "attempts": ' + "9" * 5000 + "}]", "is not JSON that can be read"),
        ('[{"jobid": "a", "attempts": ' + "[" * 100_000 + "]", "nested too deeply"),
    ],
    ids=range(2),
)
def test_huge_json_is_no_philly_log(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TableError) as caught:
        imported(tmp_path, text)
    assert says in str(caught.value)
