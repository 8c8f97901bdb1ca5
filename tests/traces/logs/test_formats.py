"""Every format by hand: a few rows, and the jobs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import TableError, UserError
from tests.traces.importing import imported, write
from tests.traces.logs.cluster_samples import CLUSTER_SAMPLES
from tests.traces.logs.live_samples import LIVE_SAMPLES
from tests.traces.logs.paper_samples import PAPER_SAMPLES, WITHOUT_RUN_TIMES
from traces import Job, read_trace, write_trace
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


def test_a_row_of_helios(tmp_path: Path) -> None:
    rows = (
        "a,u,v,8,64,1,FAILED,2020-06-09 18:00:00,2020-06-09 18:01:00,2020-06-09 19:01:00,3600,60\n"
        "b,u,v,0,64,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:01:00,2020-06-09 19:01:00,3600,60\n"
    )
    jobs, report = imported(tmp_path, HELIOS + rows)
    assert jobs == [
        Job("a", 0.0, tenant="v", gpus=8, duration_s=3600.0, state="FAILED", user="u", logged_start_s=60.0)
    ]
    assert report["dropped_by_reason"] == {"gpu_num: must be at least 1": 1}
    assert report["times"] == [
        "submit_time, start_time, end_time: dates",
        "duration in s (the unit of Helios' logs)",
    ]


def test_a_row_of_fleetsim_counts_submissions_in_microseconds(tmp_path: Path) -> None:
    rows = "a,u,v,x,5000000,8,V100,1,24,60,CANCELED\nb,u,v,x,65000000,8,,1,30,60,COMPLETED\n"
    jobs, _ = imported(tmp_path, FLEETSIM + rows)
    assert jobs == [
        Job("a", 0.0, "v", gpus=8, duration_s=24.0, state="CANCELED", estimate_s=60.0, user="u",
            gpu_type="V100"),
        Job("b", 60.0, "v", gpus=8, duration_s=30.0, state="COMPLETED", estimate_s=60.0, user="u"),
    ]  # fmt: skip
    rebased, _ = imported(tmp_path, FLEETSIM + rows, time_unit="s")
    assert [(job.submit_s, job.duration_s) for job in rebased] == [(0.0, 24.0), (6e7, 30.0)]


def test_a_limit_that_is_the_run_time_itself_is_no_estimate(tmp_path: Path) -> None:
    rows = "a,u,v,x,5000000,8,,1,24,24,CANCELED\nb,u,v,x,65000000,8,,1,30,30,COMPLETED\n"
    jobs, report = imported(tmp_path, FLEETSIM + rows)
    assert [job.estimate_s for job in jobs] == [None, None]
    assert "left out of 2 jobs: estimate: is the run time itself in every row" in report["assumptions"]


def test_a_row_of_sacct_keeps_what_it_says_beside_the_work(tmp_path: Path) -> None:
    at = "2024-05-01T12:00:0"
    rows = [
        f"1|ann|vision|gpu|high|{at}0|{at}5|x|3600|120|1|gres/gpu=9|cpu=4,gres/gpu:a100=8,gres/gpu=8|COMPLETED|500",
        f"2|bob|nlp|gpu|low|{at}1|Unknown|x|60|UNLIMITED|1|gres/gpu=2||CANCELLED by 7|",
        f"3|bob|nlp|gpu|low|{at}2|None|x|60|Partition_Limit|1||gres/gpu:a100=1,gres/gpu:h100=1|TIMEOUT|1",
    ]
    jobs, _ = imported(tmp_path, SACCT + "\n".join(rows))
    assert jobs == [
        Job("1", 0.0, "vision", gpus=8, duration_s=3600.0, priority=500, state="COMPLETED",
            estimate_s=7200.0, user="ann", gpu_type="a100", logged_start_s=5.0, partition="gpu", qos="high"),
        Job("2", 1.0, "nlp", gpus=2, duration_s=60.0, state="CANCELLED", user="bob", partition="gpu",
            qos="low"),
        Job("3", 2.0, "nlp", gpus=2, duration_s=60.0, priority=1, state="TIMEOUT", user="bob",
            partition="gpu", qos="low"),
    ]  # fmt: skip
    by_qos, report = imported(tmp_path, SACCT + "\n".join(rows), tenant="QOS")
    assert [job.tenant for job in by_qos] == ["high", "low", "low"]
    assert "the tenant is QOS, as the user says" in report["assumptions"]
    with pytest.raises(TableError, match=r"unknown column 'Qos'; its columns are JobIDRaw, .*QOS"):
        imported(tmp_path, SACCT + "\n".join(rows), tenant="Qos")


def test_a_written_out_limit_of_sacct_is_an_estimate(tmp_path: Path) -> None:
    head = "JobIDRaw|Account|Submit|ElapsedRaw|AllocTRES|State|Timelimit\n"
    jobs, _ = imported(tmp_path, head + "1|a|2024-05-01T12:00:00|60|gres/gpu=1|x|1-00:00:00\n")
    assert jobs[0].estimate_s == 86400.0


def test_rows_of_swf(tmp_path: Path) -> None:
    rows = [
        "  1   10   5   60    4  59.5  -1   4   120  -1  1   7   3  -1  2  9 -1 -1",
        "  2   20  -1   30   -1    -1  -1   2    -1  -1  0  -1  -1  -1 -1 -1 -1 -1",
        "  3   30   5   60    4    -1  -1   4   120  -1  3   7   3  -1 -1 -1 -1 -1",
        "  4   40   5   -1    4    -1  -1   4   120  -1  5   7   3  -1 -1 -1 -1 -1",
        "  5   50   5",
    ]
    jobs, report = imported(tmp_path, SWF + "\n".join(rows))
    assert jobs == [
        Job("1", 0.0, "3", gpus=4, duration_s=60.0, state="completed", estimate_s=120.0, user="7",
            logged_start_s=5.0, partition="9", qos="2"),
        Job("2", 10.0, gpus=2, duration_s=30.0, state="failed"),
    ]  # fmt: skip
    assert report["dropped_by_reason"] == {
        "status: is a part of a job that has a row of its own": 1,
        "run_time is empty": 1,
        "has 3 cells where the header has 18": 1,
    }
    assert [row["line"] for row in report["dropped"]] == [6, 7, 8]
    assert report["warnings"] == ["processors count as GPUs: SWF knows no GPUs"]
    assert imported(tmp_path, rows[0])[1]["format"] == "swf"
    assert imported(tmp_path, SWF + rows[0], tenant="queue")[0][0].tenant == "2"


def philly(**changes: Any) -> dict[str, Any]:
    entry = json.loads(SAMPLES["philly"])[0]
    return entry | changes


def attempt(start: str | None, end: str | None, gpus: int) -> dict[str, Any]:
    def at(time: str | None) -> str | None:
        return f"2017-10-07 {time}" if time and time != "None" else time

    return {
        "start_time": at(start),
        "end_time": at(end),
        "detail": [{"ip": f"m{i}", "gpus": [f"gpu{i}"]} for i in range(gpus)],
    }


def test_attempts_of_a_philly_job_add_up_to_the_gpu_time_that_it_held(tmp_path: Path) -> None:
    attempts = [
        attempt("01:00:10", "01:01:10", 4),
        attempt("02:00:00", None, 4),
        attempt("None", "02:00:00", 4),
        attempt("03:00:00", "03:01:00", 8),
    ]
    entries = [philly(attempts=attempts), philly(jobid="b", attempts=[]), philly(jobid="c", attempts=None), 7]
    jobs, report = imported(tmp_path, json.dumps(entries, indent=1))
    assert jobs == [Job("a", 0.0, "v", gpus=8, duration_s=90.0, state="Pass", user="u", logged_start_s=10.0)]
    assert report["demand"]["gpu_seconds"] == 60 * 4 + 60 * 8
    assert report["dropped_by_reason"] == {
        "has no attempt: the job never ran": 2,
        "is not a job: a job is a JSON object": 1,
    }
    text = json.dumps(entries, indent=1)
    lines = [text[: text.index(f'"jobid": "{job_id}"')].rsplit("{", 1)[0].count("\n") + 1 for job_id in "bc"]
    assert [row["line"] for row in report["dropped"]][:2] == lines


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"jobid": "a", "attempts": [}]', "log.txt:1: is not JSON"),
        ('[\n{"jobid": "a", "attempts": []}\n{"jobid": "b"}]', "log.txt:3: is not JSON: a comma or ]"),
        ('[{"jobid": "a", "attempts": []}', "log.txt:1: is not JSON: a comma or ]"),
        ('[{"jobid": "a", "attempts": NaN}]', "NaN is no JSON number"),
        ('[{"jobid": "a", "attempts": ' + "9" * 5000 + "}]", "is not JSON that can be read"),
        ('[{"jobid": "a", "attempts": ' + "[" * 100_000 + "]", "nested too deeply"),
        ('[{"jobid": "a", "attempts": []}]', "holds no usable job"),
        ('{"jobid": "a", "attempts": []}', "is no table, and of no known log format"),
    ],
    ids=range(8),
)
def test_json_that_is_no_philly_log(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TableError) as caught:
        imported(tmp_path, text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"submitted_time": 1e999}, {"submitted_time": "soon"}, {"submitted_time": None}, {"jobid": "\ud800"},
        {"submitted_time": {"a": 1}}, {"attempts": "many"}, {"attempts": [[], 5, None]},
        {"attempts": [{"start_time": "0001-01-01 00:00:00", "end_time": "9999-12-31 00:00:00", "detail": 3}]},
        {"submitted_time": 10**400}, {"user": "\udfff"}, {"vc": "x" * 200_000},
    ],
    ids=range(11),
)  # fmt: skip
def test_entries_of_philly_that_are_no_jobs_are_dropped_with_a_reason(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    text = json.dumps(
        [philly(), philly(jobid="bad", **changes) if "jobid" not in changes else philly(**changes)]
    )
    jobs, report = imported(tmp_path, text.replace("Infinity", "1e999"))
    assert [job.job_id for job in jobs] == ["a"]
    assert len(report["dropped"]) == 1
    assert report["dropped"][0]["reason"]
    json.dumps(report).encode()


def test_philly_takes_its_tenants_from_the_virtual_cluster_or_the_user(tmp_path: Path) -> None:
    assert imported(tmp_path, SAMPLES["philly"], tenant="user")[0][0].tenant == "u"
    with pytest.raises(UserError, match=r"unknown tenant of a Philly log 'ip'; known: user, vc|vc, user"):
        imported(tmp_path, SAMPLES["philly"], tenant="ip")
