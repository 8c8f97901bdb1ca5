"""Forecasts that are known without a simulation; the page shows what its command prints."""

from __future__ import annotations

import shlex
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from clustersim.backtest import SiteFacts
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.forecast import Request, predict_start
from experiments import predict_start as start_study
from tests.clustersim.forecast.states import NOW_S, ended, options_of, running, state_of, waiting
from tests.effort import examples
from tests.places import ROOT

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


def test_under_fifo_later_jobs_change_nothing() -> None:
    history = [ended(f"h{k}", 1, 30.0 * k, 3000) for k in range(1, 60)]
    state = state_of(running("a", 4, 400, 5000), waiting("c", 4, 90, 1000), waiting("d", 1, 30, 500))
    with_later, without = (
        predict_start(state, Request("d"), history, options_of(draws=10, arrivals=arrivals))
        for arrivals in (True, False)
    )
    assert with_later.delays_s.tolist() == without.delays_s.tolist()


def test_under_sjf_later_jobs_overtake() -> None:
    history = [
        replace(ended(f"h{k}", 4, 100.0, 200), submit_s=150.0 * k, logged_start_s=150.0 * k)
        for k in range(60)
    ]
    state = state_of(running("a", 4, 10, 200), waiting("d", 4, 30, 5000))
    with_later, without = (
        predict_start(state, Request("d"), history, options_of(policy="sjf", draws=10, arrivals=arrivals))
        for arrivals in (True, False)
    )
    assert with_later.delays_s.mean() > without.delays_s.mean()


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
