"""States: which jobs run, wait and are held back, in every live format and in logs."""

from __future__ import annotations

from pathlib import Path

from clustersim.forecast import read_state
from tests.traces.logs.live_samples import SQUEUE, kube_list, scontrol, slurm_job, slurm_json, when, workload
from traces import Job, write_trace
from traces.logs import ReadOptions

LINE = "{id}|vision|ann|gpu|high|{state}|2024-05-01T12:00:00|{start}|N/A|10:00|1|gres:gpu:1|500|{why}\n"


def squeue(*rows: tuple[str, str, str, str]) -> str:
    return SQUEUE + "".join(
        LINE.format(id=name, state=state, start=start, why=why) for name, state, start, why in rows
    )


def names(path: Path, text: str, now: str | None = None) -> tuple[list[str], list[str], list[str], str]:
    path.write_text(text)
    state = read_state(path, now=now)
    groups = [[job.job_id for job in jobs] for jobs in (state.running, state.waiting, state.held)]
    return groups[0], groups[1], groups[2], state.moment(state.now_s)


def test_squeue(tmp_path: Path) -> None:
    text = squeue(
        ("1", "RUNNING", "2024-05-01T12:00:30", "None"),
        ("2", "PENDING", "2024-05-01T18:00:00", "(Resources)"),
        ("3", "PENDING", "N/A", "(JobHeldUser)"),
        ("4", "PENDING", "N/A", "(Dependency)"),
        ("5", "PENDING", "N/A", "(QOSMaxGRESPerUser)"),
        ("6", "CG", "2024-05-01T12:00:10", "None"),
    )
    path = tmp_path / "state.txt"
    found = names(path, text)
    assert found == (["1", "6"], ["2", "5"], ["3", "4"], "2024-05-01 12:00:30")
    assert read_state(path).limited == 1


def test_scontrol_and_json(tmp_path: Path) -> None:
    pending = {"JobId": "18", "JobState": "PENDING", "Reason": "Priority", "StartTime": "Unknown"}
    found = names(tmp_path / "a", scontrol() + scontrol(**pending))
    assert found == (["17"], ["18"], [], "2024-05-01 12:00:05")
    jobs = slurm_json(slurm_job(), slurm_job(job_id=18, job_state=["PENDING"], state_reason="Resources"))
    assert names(tmp_path / "b", jobs) == (["17"], ["18"], [], "2024-05-01 12:00:05")


def test_kueue(tmp_path: Path) -> None:
    text = kube_list(
        workload("runs", when("Admitted", "12:05:00")),
        workload("waits", when("QuotaReserved", "12:00:00", "False", message="insufficient quota")),
        workload("off", active=False),
        workload("done", when("Admitted", "12:01:00"), when("Finished", "12:03:00")),
    )
    found = names(tmp_path / "state.json", text)
    assert found == (["team/runs"], ["team/waits"], ["team/off"], "2024-05-01 12:05:00")


def test_a_log_at_a_moment(tmp_path: Path) -> None:
    """Nothing after the moment shows: neither later submissions, nor that waiting jobs ever start."""
    path = tmp_path / "log.csv"
    jobs = [
        Job("ended", 0.0, gpus=1, duration_s=50.0, logged_start_s=0.0),
        Job("runs", 10.0, gpus=1, duration_s=100.0, logged_start_s=20.0),
        Job("waits", 30.0, gpus=1, duration_s=10.0, logged_start_s=90.0),
        Job("later", 70.0, gpus=1, duration_s=10.0, logged_start_s=90.0),
    ]
    write_trace(jobs, path)
    state = read_state(path, now="60")
    groups = (state.ended, state.running, state.waiting)
    assert [[job.job_id for job in group] for group in groups] == [["ended"], ["runs"], ["waits"]]
    assert state.source["submitted_later"] == 1
    assert state.moment(60.0) == "t=60 s"


def test_dates_are_of_the_stated_zone(tmp_path: Path) -> None:
    path = tmp_path / "state.txt"
    path.write_text(squeue(("1", "RUNNING", "2024-05-01T12:00:30", "None")))
    state = read_state(path, ReadOptions(time_zone="Asia/Shanghai"), "2024-05-01T13:00:00")
    assert state.moment(state.now_s) == "2024-05-01 13:00:00"
