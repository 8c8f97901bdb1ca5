"""Forecasts that are known without a simulation, states of live queues, and the past jobs of run times."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from clustersim.backtest import SiteFacts
from clustersim.cli import main
from clustersim.cluster import Cluster
from clustersim.errors import PolicyError
from clustersim.forecast import LiveState, Options, Request, RunTimes, SitePolicy, predict_start, read_state
from clustersim.forecast.run_times import ENOUGH, OUTLIVED_S
from clustersim.forecast.state import state_at
from experiments import predict_start as start_study
from itertime.errors import UserError
from tests.effort import examples
from tests.places import ROOT
from tests.traces.logs.live_samples import SQUEUE, kube_list, scontrol, slurm_job, slurm_json, when, workload
from traces import Job, write_trace
from traces.logs import ReadOptions
from traces.logs.log import Log, LoggedJob
from traces.native import PackedJobs

# States and histories of jobs, made up


NOW_S = 10_000.0


def running(job_id: str, gpus: int, elapsed_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that has run for so long, and was submitted as it started."""
    start_s = NOW_S - elapsed_s
    return LoggedJob(
        job_id,
        start_s,
        gpus=gpus,
        estimate_s=limit_s,
        logged_start_s=start_s,
        state="RUNNING",
        line=1,
        **more,
    )


def waiting(job_id: str, gpus: int, waited_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that has waited for so long."""
    return LoggedJob(job_id, NOW_S - waited_s, gpus=gpus, estimate_s=limit_s, state="PENDING", line=2, **more)


def ended(job_id: str, gpus: int, run_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that started at 0, when it was submitted, and ended."""
    return LoggedJob(job_id, 0.0, gpus=gpus, duration_s=run_s, estimate_s=limit_s, logged_start_s=0.0, **more)


def state_of(*jobs: LoggedJob, now_s: float = NOW_S, log_format: str = "squeue") -> LiveState:
    log = Log(log_format, (), False, PackedJobs(LoggedJob, jobs))
    return state_at(log, now_s, UTC, {"file": "state.txt", "sha256": ""})


def options_of(cluster: str = "n4g1", policy: str = "fifo", **more: Any) -> Options:
    """Options with a stated cluster."""
    order = more.pop("order", "auto")
    settings: Sequence[str] = more.pop("settings", ())
    site_facts = more.pop("site_facts", SiteFacts(clusters={"": Cluster.parse(cluster)}))
    return Options(policy=SitePolicy(policy, settings, order), site_facts=site_facts, **more)


# Forecasts


CASE = some.tuples(some.integers(1, 4), some.integers(1, 60), some.integers(1, 60))
"""GPUs, minutes so far, minutes left or of the limit."""


def test_a_job_behind_one_job_starts_as_that_ends() -> None:
    """All four GPUs are held by a job with 1,000 s behind it, which runs for 0.7 of its limit of 5,000 s."""
    state = state_of(running("a", 4, 1000, 5000), waiting("b", 2, 60, 600))
    found = predict_start(state, Request("b"), options=options_of(ratio=0.7, by_s=NOW_S + 2400))
    assert found.delays_s == pytest.approx([0.7 * 5000 - 1000])
    start = found.summary["start"]
    assert start["p10_s"] == start["p50_s"] == start["p90_s"] == pytest.approx(2500)
    assert (start["within_1h"], start["by_then"], start["never"]) == (1.0, 0.0, 0.0)
    assert found.wait is not None
    assert found.wait.short_s == pytest.approx(2500)
    assert (found.wait.needed, found.wait.free, found.wait.overtakers) == (2, (0, 0), ())
    assert [name for name, _ in found.wait.holders] == ["a"]


def test_a_job_with_room_starts_now() -> None:
    found = predict_start(state_of(running("a", 3, 9, 99)), Request(None, 1, 60.0), options=options_of())
    assert found.delays_s.tolist() == [0.0]
    assert found.wait is None


def test_run_times_are_drawn_given_the_time_so_far() -> None:
    """A job has run for 400 s of a limit of 1,000 s; past ratios are 0.01, 0.02, ..., 1.00. So it runs for
    one of 0.41 to 1.00 of its limit, each as likely, and the wait is 10 to 600 s.
    """
    history = [ended(f"h{k}", 1, 10.0 * k, 1000) for k in range(1, 101)]
    state = state_of(running("a", 4, 400, 1000), waiting("b", 4, 0, 100))
    options = options_of(draws=600, with_changes=False, arrivals=False)
    delays_s = predict_start(state, Request("b"), history, options).delays_s
    assert set(np.round(delays_s).astype(int)) <= set(range(10, 601, 10))
    sigma = np.sqrt((60**2 - 1) / 12 / 600) * 10  # of the mean of 600 draws
    assert delays_s.mean() == pytest.approx(305, abs=4 * sigma)


def test_quantiles_come_true_as_often_as_stated() -> None:
    """120 jobs, each behind one job that runs for U(0, 1) of its limit, given what it has run for already.

    Of 19 draws p10, p50 and p90 are the 2nd, 10th and 18th. Another draw from the same distribution is at
    most the k-th of n with the chance k / (n + 1): here 10, 50 and 90 %.
    """
    jobs, draw = 120, np.random.default_rng(7)
    history = [ended(f"h{k}", 1, float(ratio) * 1000, 1000) for k, ratio in enumerate(draw.random(400))]
    hits = np.zeros(3)
    for seed in range(jobs):
        elapsed_s = float(draw.uniform(0, 900))
        truth_s = float(draw.uniform(elapsed_s, 1000)) - elapsed_s
        state = state_of(running("a", 4, elapsed_s, 1000), waiting("b", 1, 0, 100))
        options = options_of(draws=19, seed=seed, with_changes=False, arrivals=False)
        start = predict_start(state, Request("b"), history, options).summary["start"]
        hits += [truth_s <= start[f"{name}_s"] for name in ("p10", "p50", "p90")]
    shares = np.array([0.1, 0.5, 0.9])
    within = 3.3 * np.sqrt(shares * (1 - shares) / jobs) + 0.02  # 1 in 1,000; 400 past ratios are not all
    assert (np.abs(hits / jobs - shares) <= within).all()


@settings(max_examples=examples(25), deadline=None)
@given(some.lists(CASE, max_size=4), some.lists(CASE, min_size=1, max_size=6), some.data())
def test_fifo_is_a_list_of_free_times(
    runs: list[tuple[int, int, int]], waits: list[tuple[int, int, int]], data: some.DataObject
) -> None:
    """With ratio 1 on single GPUs, fifo gives each job in turn the GPUs that become free first."""
    held = 0
    jobs, free_s = [], list[float]()
    for k, (gpus, before, left) in enumerate(runs):
        if held + gpus <= 4:
            held += gpus
            jobs.append(running(f"r{k}", gpus, 60 * before, 60 * (before + left)))
            free_s += [60.0 * left] * gpus
    free_s += [0.0] * (4 - held)
    heapify(free_s)
    queue = sorted(enumerate(waits), key=lambda item: (-item[1][1], item[0]))
    jobs += [waiting(f"w{k}", gpus, 60 * waited, 60 * limit) for k, (gpus, waited, limit) in enumerate(waits)]
    expected, last_s = {}, 0.0
    for k, (gpus, _, limit) in queue:
        last_s = max([last_s, *(heappop(free_s) for _ in range(gpus))])
        expected[f"w{k}"] = last_s
        for _ in range(gpus):
            heappush(free_s, last_s + 60.0 * limit)
    asked = data.draw(some.sampled_from(sorted(expected)))
    found = predict_start(state_of(*jobs), Request(asked), options=options_of(with_changes=False))
    assert found.delays_s == pytest.approx([expected[asked]], abs=0.01)


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "sjf", "multifactor", "quota", "srtf"])
def test_no_start_lies_before_now(policy: str) -> None:
    history = [ended(f"h{k}", 1, 30.0 * k, 3000, tenant=f"t{k % 2}") for k in range(1, 60)]
    state = state_of(
        running("a", 2, 400, 5000, tenant="t0"), running("b", 1, 6000, 5000, tenant="t1"),
        waiting("c", 4, 90, 1000, tenant="t0"), waiting("d", 1, 30, 500, tenant="t1"),
        waiting("e", 2, 20, 50, tenant="t0"),
    )  # fmt: skip
    found = predict_start(state, Request("e"), history, options_of(policy=policy, draws=10))
    assert (found.delays_s >= 0).all()
    assert all(change["p10_s"] >= 0 for change in found.summary["changes"])


def test_a_policy_that_needs_the_past_is_refused() -> None:
    state = state_of(running("a", 4, 400, 5000), waiting("c", 4, 90, 1000))
    with pytest.raises(PolicyError, match="Las knows running jobs from their start alone"):
        predict_start(state, Request("c"), options=options_of(policy="las"))


def test_later_jobs_change_nothing_under_fifo_and_overtake_under_sjf() -> None:
    """Past jobs came every 150 s and took 100 s on all four GPUs."""
    history = [
        replace(ended(f"h{k}", 4, 100.0, 200), submit_s=150.0 * k, logged_start_s=150.0 * k)
        for k in range(60)
    ]
    state = state_of(running("a", 4, 10, 200), waiting("d", 4, 30, 5000))
    (fifo, fifo_alone), (sjf, sjf_alone) = (
        [
            predict_start(state, Request("d"), history, options_of(policy=name, draws=10, arrivals=arrivals))
            for arrivals in (True, False)
        ]
        for name in ("fifo", "sjf")
    )
    assert fifo.delays_s.tolist() == fifo_alone.delays_s.tolist()
    assert sjf.delays_s.mean() > sjf_alone.delays_s.mean()


def test_fewer_gpus_start_where_more_do_not_fit() -> None:
    """Two of four GPUs are free, so half of the request starts now and the whole one after 600 s."""
    state = state_of(running("a", 2, 0, 600), waiting("b", 4, 0, 3600))
    changes = predict_start(state, Request("b"), options=options_of()).summary["changes"]
    half = next(change for change in changes if change["change"] == "2 GPUs")
    assert (half["p50_s"], half["earlier"], half["later"]) == (0.0, 1.0, 0.0)
    assert half["gain_s"] == pytest.approx(600, abs=1.1)


def test_a_shorter_limit_is_backfilled() -> None:
    """One GPU is free until the job ahead gets all four, in 1,000 s: a limit of 750 s fits before it."""
    state = state_of(running("a", 3, 0, 1000), waiting("big", 4, 60, 900), waiting("b", 1, 0, 3000))
    summary = predict_start(state, Request("b"), options=options_of(policy="easy")).summary
    by_name = {change["change"]: change for change in summary["changes"]}
    assert summary["start"]["p50_s"] > 999
    assert by_name["limit 25.0 min"]["p50_s"] > 999
    assert by_name["limit 12.5 min"]["p50_s"] == 0.0
    assert [(other["job_id"], other["ahead"]) for other in summary["waits_for"]["others"]] == [("big", True)]


def test_another_partition() -> None:
    """Pools by partition: two of GPUs, of which one is idle."""
    history = [ended("h1", 4, 100, 100, partition="a"), ended("h2", 4, 100, 100, partition="b")]
    state = state_of(
        running("r", 4, 0, 5000, partition="a"), running("s", 1, 0, 5000, partition="b"),
        waiting("w", 2, 0, 4000, partition="a"),
    )  # fmt: skip
    options = options_of(site_facts=SiteFacts("partition"), draws=5)
    summary = predict_start(state, Request("w"), history, options).summary
    moved = next(change for change in summary["changes"] if change["change"] == "partition b")
    assert (moved["p90_s"], moved["earlier"]) == (0.0, 1.0)
    assert summary["start"]["p10_s"] > 0


def test_stated_priorities_order_a_live_queue() -> None:
    jobs = (
        running("r", 4, 0, 1000), waiting("old", 4, 500, 1000, priority=5),
        waiting("urgent", 4, 10, 1000, priority=9),
    )  # fmt: skip
    first = predict_start(state_of(*jobs), Request("urgent"), options=options_of(with_changes=False))
    assert first.delays_s == pytest.approx([1000], abs=1.1)
    assert first.summary["policy"]["queue"] == "priority"
    of_a_log = state_of(*jobs, log_format="slurm")
    second = predict_start(of_a_log, Request("urgent"), options=options_of(with_changes=False))
    assert second.delays_s == pytest.approx([2000], abs=1.1)
    new = predict_start(state_of(*jobs), Request(None, 4, 60.0), options=options_of(with_changes=False))
    assert new.delays_s == pytest.approx([3000], abs=1.1)


def test_equal_results_whatever_the_order_of_rows() -> None:
    history = [ended(f"h{k}", 1, 30.0 * k, 3000, user=f"u{k % 3}") for k in range(1, 80)]
    jobs = [running("a", 4, 400, 5000), waiting("c", 4, 90, 1000), waiting("d", 1, 30, 500)]
    one = predict_start(state_of(*jobs), Request("d"), history, options_of(draws=10))
    two = predict_start(state_of(*jobs[::-1]), Request("d"), history[::-1], options_of(draws=10))
    assert one.summary == two.summary


PAGE = (ROOT / "docs" / "predict-start.md").read_text(encoding="utf-8")


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    begin = "    clustersim predict-start traces/"
    command = next(line for line in PAGE.splitlines() if line.startswith(begin))
    text = PAGE.partition(command)[2].split("```text\n")[1].split("```")[0].splitlines()
    assert main(shlex.split(command)[1:]) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()]
    assert shown[shown.index(text[0]) :] == text


@pytest.mark.parametrize("arm", start_study.ARMS[1:3])
def test_coverage_of_a_small_log(arm: tuple[str, bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """That few draws of few jobs are right is shown elsewhere; here, that shares are shares and ascend."""
    for name, value in {"JOBS": 60, "CUTS": 1, "DRAWS": 3}.items():
        monkeypatch.setattr(start_study, name, value)
    found = start_study.coverage(*arm, seed=1)
    assert 1 <= found.jobs <= 3
    assert 0 <= found.shares[0] <= found.shares[1] <= found.shares[2] <= 1
    assert start_study.interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / 3**0.5), abs=1e-3)


# States of live queues and logs, and past jobs


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


@pytest.mark.parametrize(
    ("reason", "gpus", "says"),
    [
        ("AssocMaxJobsLimit", 2, "AssocMaxJobsLimit is a limit that this simulation does not know"),
        ("JobArrayTaskLimit", 2, "JobArrayTaskLimit is a limit"),
        (
            "Resources",
            2,
            "it would start now, as 4 GPUs are free and nothing here keeps it waiting; but the ",
        ),
        ("None", 2, "the scheduler may not have looked at it yet"),
        ("Resources", 8, ""),
    ],
)
def test_a_start_that_may_be_too_early_has_a_note(reason: str, gpus: int, says: str) -> None:
    state = state_of(running("r", 4, 10.0, 100.0), waiting("w", gpus, 5.0, 50.0, reason=reason))
    facts = SiteFacts("none", {"": Cluster(1, 8)})
    caveat = predict_start(state, Request("w"), options=Options(site_facts=facts)).summary["caveat"]
    assert says in caveat
    assert bool(says) == bool(caveat)
