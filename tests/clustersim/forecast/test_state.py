"""States of live queues and logs, and the past jobs from which run times are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from clustersim.forecast import RunTimes, read_state
from clustersim.forecast.run_times import ENOUGH, OUTLIVED_S
from itertime.errors import UserError
from tests.clustersim.forecast.states import ended, running
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


U = np.linspace(0, 0.999, 50)


def kind(times: RunTimes) -> str:
    return next(iter(times.used))


def test_the_closest_group_with_enough_jobs() -> None:
    of_user = [ended(f"a{k}", 64, 300, 1000, user="ann") for k in range(ENOUGH)]
    of_size = [ended(f"b{k}", 7, 500, 1000, user=f"u{k}") for k in range(ENOUGH)]
    for job, expected, run_s in (
        (running("x", 7, 10, 2000, user="ann"), "user", {600.0}),
        (running("x", 8, 10, 2000, user="bob"), "size", {1000.0}),
        (running("x", 1, 10, 2000, user="bob"), "all", {600.0, 1000.0}),
        (running("x", 7, 700, 2000, user="ann"), "size", {1000.0}),  # none of ann's jobs went on as long
        (running("x", 7, 1100, 2000, user="ann"), "evenly up to the limit", None),
        (running("x", 7, 2100, 2000, user="ann"), "outlived its limit", {2100 + OUTLIVED_S}),
    ):
        times = RunTimes.of([*of_user, *of_size])
        elapsed_s = 10_000 - (job.logged_start_s or 0)
        drawn = times.drawn(job, elapsed_s, U)
        assert kind(times) == expected
        assert run_s is None or set(drawn) == run_s


def test_without_a_history() -> None:
    times = RunTimes.of(ratio=0.5)
    assert set(times.drawn(running("x", 1, 400, 1000), 400, U)) == {500.0}
    assert set(times.drawn(running("x", 1, 600, 1000), 600, U)) == {1000.0}
    assert set(times.drawn(running("x", 1, 1200, 1000), 1200, U)) == {1200 + OUTLIVED_S}
    with pytest.raises(UserError, match="state:1: job x: states no time limit; give --history LOG"):
        times.drawn(running("x", 1, 0, None), 0, U)
    assert set(RunTimes.of(default_limit_s=60.0).drawn(running("x", 1, 0, None), 0, U)) == {60.0}


def test_without_a_limit_run_times_are_those_of_past_jobs() -> None:
    times = RunTimes.of([ended(f"a{k}", 1, 100.0 * (k + 1), None) for k in range(40)])
    assert set(times.drawn(running("x", 1, 1950, None), 1950, U)) == {100.0 * k for k in range(20, 41)}
    assert kind(times) == "run time: user"
    longer = times.drawn(running("x", 1, 5000, None), 5000, U)
    assert np.median(longer) == pytest.approx(10_000, rel=0.05)


@given(
    some.floats(0, 1e6), some.none() | some.floats(1, 1e6),
    some.lists(some.tuples(some.floats(1, 1e6), some.none() | some.floats(1, 1e6)), max_size=30),
)  # fmt: skip
def test_no_job_ends_before_now(
    elapsed_s: float, limit_s: float | None, past: list[tuple[float, float | None]]
) -> None:
    times = RunTimes.of([ended(f"h{k}", 1, *one) for k, one in enumerate(past)])
    if limit_s is None and not past:
        return
    drawn = times.drawn(running("x", 1, elapsed_s, limit_s), elapsed_s, U)
    assert np.isfinite(drawn).all()
    assert (drawn >= elapsed_s).all()
    assert (drawn > 0).all()
