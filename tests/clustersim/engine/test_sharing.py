"""Jobs that hold part of a GPU: how they share it, how fast they are, and that no GPU is oversubscribed."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path

import pytest
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.records import EventRecord, Run
from clustersim.rundir import placement_text
from itertime.errors import UserError
from traces.job import Job


def part(name: str, fraction: float, run_s: float, submit_s: float = 0.0, **more: object) -> Job:
    return Job(name, submit_s, gpus=1, duration_s=run_s, gpu_fraction=fraction, **more)  # type: ignore[arg-type]


def run(jobs: Iterable[Job], policy: str = "fifo", cluster: str = "n1g1", **settings: object) -> Run:
    return clustersim.run(list(jobs), policy, cluster=cluster, overheads=None, **settings)


def finishes(run: Run) -> dict[str, float | None]:
    return {job.job_id: job.finish_s for job in run.jobs}


def most_held(events: Iterable[EventRecord]) -> float:
    """The most that jobs ever hold of one shared GPU after an instant, from the texts of the log."""
    held: dict[str, tuple[str, float]] = {}
    most, now = 0.0, -inf
    for event in [*events, None]:
        if event is None or event.time_s > now:
            sums: dict[str, float] = {}
            for gpu, share in held.values():
                sums[gpu] = sums.get(gpu, 0.0) + share
            most = max([most, *sums.values()])
        if event is None:
            break
        now = event.time_s
        if event.event in ("preempt", "finish"):
            held.pop(event.job_id, None)
        gpu, mark, share = placement_text(event.placement).partition(":")
        if mark:
            held[event.job_id] = gpu, float(share)
    return most


@pytest.mark.parametrize("jobs", [2, 3, 4, 7])
def test_jobs_of_a_kth_of_a_gpu_finish_as_if_alone(jobs: int) -> None:
    done = run(part(str(i), 1 / jobs, 100.0 + i) for i in range(jobs))
    assert finishes(done) == {str(i): 100.0 + i for i in range(jobs)}
    assert most_held(done.events) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("jobs", "slowdown"), [(2, 1.5), (3, 1.1), (5, 1.02)])
def test_each_of_k_jobs_takes_the_slowdown_to_the_k_minus_1(jobs: int, slowdown: float) -> None:
    done = run((part(str(i), 0.2, 100.0) for i in range(jobs)), sharing={"slowdown": slowdown})
    for finish_s in finishes(done).values():
        assert finish_s == pytest.approx(100.0 * slowdown ** (jobs - 1))


def test_a_job_is_as_fast_as_alone_once_the_other_has_ended() -> None:
    """Beside each other 40 s of work take 60 s; then 60 s of the longer job are left."""
    done = run([part("a", 0.5, 100.0), part("b", 0.5, 40.0)], sharing={"slowdown": 1.5})
    assert finishes(done) == {"a": 120.0, "b": 60.0}
    assert [(e.time_s, e.event, e.job_id, e.unit_s) for e in done.events if e.event == "rate"] == [
        (60.0, "rate", "a", 1.0)
    ]


def test_slowdowns_by_pairs_of_models() -> None:
    pairs = {"lm": {"vision": 2.0, "lm": 3.0}, "vision": {"lm": 1.25}}
    jobs = [part("l", 0.5, 100.0, model="lm"), part("v", 0.5, 100.0, model="vision")]
    assert finishes(run(jobs, sharing={"pairs": pairs})) == {"v": 125.0, "l": 125.0 + 100.0 - 125.0 / 2}


def test_parts_take_the_fullest_gpu_with_room() -> None:
    jobs = [part("a", 0.7, 50.0), part("b", 0.5, 50.0), part("c", 0.3, 50.0), part("d", 0.4, 50.0)]
    events = run(jobs, cluster="n1g4").events
    places = {e.job_id: placement_text(e.placement) for e in events if e.event == "start"}
    assert places == {"a": "0x1#0:0.7", "b": "0x1#1:0.5", "c": "0x1#0:0.3", "d": "0x1#1:0.4"}


def test_gpu_hours_and_use_count_parts() -> None:
    done = run([part("a", 0.25, 100.0), part("b", 0.5, 100.0)], cluster="n1g2")
    assert [job.gpu_seconds for job in done.jobs] == [25.0, 50.0]
    assert [tuple(row)[1:3] for row in done.snapshots] == [(0.75, 1.25), (0, 0)]
    assert done.summary["gpu_allocated_ratio"] == 0.375
    assert done.summary["cost_usd"] == pytest.approx(75 / 3600 * 5)


def test_a_preemptive_policy_takes_a_shared_gpu_back() -> None:
    """The short job of 2 GPUs needs all parts of both; the parts run again, together, when it has ended."""
    jobs = [part(str(i), 0.25, 100.0) for i in range(5)] + [Job("w", 1.0, gpus=2, duration_s=10.0)]
    done = run(jobs, "srtf", "n1g2")
    assert finishes(done) == {str(i): 110.0 for i in range(5)} | {"w": 11.0}


def test_one_gpu_serves_waiting_parts_under_easy_while_a_large_job_waits() -> None:
    jobs = [part("a", 0.5, 100.0), Job("w", 1.0, gpus=1, duration_s=10.0), part("b", 0.5, 90.0, 2.0)]
    done = run(jobs, "easy")
    assert finishes(done) == {"a": 100.0, "w": 110.0, "b": 92.0}


@st.composite
def traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(2, 16))):
        now += draw(st.sampled_from((0.0, 1.0, 30.0)))
        run_s = draw(st.sampled_from((1.5, 20.0, 33.3, 400.0)))
        fraction = draw(st.sampled_from((None, 0.1, 0.25, 1 / 3, 0.5, 0.6, 0.999999)))
        if fraction is None:
            jobs.append(Job(str(i), now, gpus=draw(st.sampled_from((1, 2, 4))), duration_s=run_s))
        else:
            jobs.append(part(str(i), fraction, run_s, now))
    return jobs


def test_the_check_finds_a_gpu_that_gives_too_much(tmp_path: Path) -> None:
    clustersim.run(
        [part("a", 0.5, 100.0), part("b", 0.5, 50.0)], "fifo", cluster="n1g2", overheads=None, out=tmp_path
    )
    log = tmp_path / "events.csv"
    log.write_text(log.read_text().replace("0x1#0:0.5", "0x1#0:0.75"))
    broken = {rule.rule for rule in check_run_folder(tmp_path) if rule.violations}
    assert {"capacity", "gang", "conservation"} <= broken


def test_the_check_finds_a_job_that_is_too_fast(tmp_path: Path) -> None:
    jobs = [part("a", 0.5, 100.0), part("b", 0.5, 50.0)]
    clustersim.run(jobs, "fifo", cluster="n1g1", overheads=None, sharing={"slowdown": 1.5}, out=tmp_path)
    log = tmp_path / "events.csv"
    log.write_text(log.read_text().replace(",1.5\n", ",1\n"))
    assert "sharing" in {rule.rule for rule in check_run_folder(tmp_path) if rule.violations}


@pytest.mark.parametrize(
    "sharing",
    [
        {"slowdown": 0.5},
        {"slowdown": True},
        {"pairs": {"a": 2}},
        {"pairs": {"a": {"b": "x"}}},
        {"k": 1},
        {"profiles": {1: [0, 0, 1, 0]}},
    ],
)
def test_impossible_settings_are_refused(sharing: dict[str, object]) -> None:
    with pytest.raises(UserError, match="sharing"):
        run([part("a", 0.5, 1.0)], sharing=sharing)
