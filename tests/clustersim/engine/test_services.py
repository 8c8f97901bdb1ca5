"""Instances of inference services: served ahead of the policy until their time is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import service_levels
from clustersim.audit import check_run_folder
from clustersim.records import Run
from traces.job import Job


def instance(
    name: str, submit_s: float, gpus: int, lasts_s: float, service: str = "chat", **more: object
) -> Job:
    return Job(name, submit_s, gpus=gpus, duration_s=lasts_s, service=service, **more)  # type: ignore[arg-type]


def train(name: str, submit_s: float, gpus: int, run_s: float) -> Job:
    return Job(name, submit_s, gpus=gpus, duration_s=run_s)


def run(*jobs: Job, policy: str = "fifo", cluster: str = "n1g4", **settings: object) -> Run:
    return clustersim.run(list(jobs), policy, cluster=cluster, **{"overheads": None, **settings})


def story(run: Run) -> list[tuple[float, str, str]]:
    return [(e.time_s, e.event, e.job_id) for e in run.events if e.event != "submit"]


def test_an_instance_takes_the_gpus_of_the_job_that_started_last() -> None:
    done = run(train("a", 0, 2, 100), train("b", 1, 2, 100), instance("s", 10, 1, 30))
    assert story(done) == [
        (0, "start", "a"), (1, "start", "b"), (10, "preempt", "b"), (10, "start", "s"), (40, "served", "s"),
        (40, "restart", "b"), (100, "finish", "a"), (131, "finish", "b"),
    ]  # fmt: skip
    assert done.summary["services"] == {
        "instances": 1, "demanded_gpu_h": 30 / 3600, "unmet_gpu_h": 0.0, "met_ratio": 1.0,
    }  # fmt: skip


def test_without_preemption_an_instance_waits_and_leaves_in_time_all_the_same() -> None:
    done = run(
        train("a", 0, 4, 25), instance("s", 10, 2, 30), instance("t", 12, 4, 8), services_preempt=False
    )
    assert story(done) == [
        (0, "start", "a"), (20, "served", "t"), (25, "finish", "a"), (25, "start", "s"), (40, "served", "s"),
    ]  # fmt: skip
    jobs = {job.job_id: job for job in done.jobs}
    assert (jobs["t"].start_s, jobs["t"].finish_s, jobs["t"].gpu_seconds, jobs["t"].wait_s) == (
        None,
        20,
        0,
        8,
    )
    assert done.summary["services"]["unmet_gpu_h"] == pytest.approx((2 * 15 + 4 * 8) / 3600)
    assert done.summary["services"]["met_ratio"] == pytest.approx(1 - 62 / 92)


def test_metrics_of_jobs_leave_instances_out() -> None:
    done = run(train("a", 0, 2, 100), instance("s", 0, 2, 500))
    assert (done.summary["jct_mean_s"], done.summary["makespan_s"], done.summary["finished"]) == (100, 100, 1)
    assert done.summary["gpu_allocated_ratio"] == 1.0


def test_the_share_of_time_with_all_of_the_need_met() -> None:
    """From 10 to 30 chat needs 2 of 2 GPUs, and has one while rank holds the other."""
    done = run(
        instance("r", 0, 1, 20, "rank"), instance("c", 0, 1, 40), instance("d", 10, 1, 20), cluster="n1g2"
    )
    levels = {level.service: level for level in service_levels(done)}
    assert levels["chat"].satisfied_ratio == pytest.approx(30 / 40)
    assert levels["chat"].unmet_gpu_h == pytest.approx(10 / 3600)
    assert levels["rank"].satisfied_ratio == 1.0


def test_policies_see_neither_instances_nor_their_gpus() -> None:
    from clustersim.scheduler import Proposal, Scheduler, State

    seen = []

    class Watch(Scheduler):
        def schedule(self, state: State) -> Proposal:
            ids = [job.id for job in (*state.pending, *state.running)]
            seen.append(
                (state.now, state.free, state.in_service, ids, [event.kind for event in state.events])
            )
            return state.proposal()

    run(train("a", 0, 4, 5), instance("s", 10, 3, 20), policy=Watch, until_s=50.0)  # type: ignore[arg-type]
    assert seen == [
        (0.0, 4, 4, ["a"], ["submitted"]),
        (10.0, 1, 1, ["a"], ["services"]),
        (30.0, 4, 4, ["a"], ["services"]),
    ]


@st.composite
def traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(2, 14))):
        now += draw(st.sampled_from((0.0, 1.0, 30.0)))
        gpus, run_s = draw(st.sampled_from((1, 2, 3, 4))), draw(st.sampled_from((1.5, 20.0, 33.3, 200.0)))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            jobs.append(instance(str(i), now, gpus, run_s, draw(st.sampled_from(("chat", "rank")))))
        elif kind == 1:
            jobs.append(Job(str(i), now, gpus=1, duration_s=run_s, gpu_fraction=0.5))
        else:
            jobs.append(train(str(i), now, gpus, run_s))
    return jobs


def test_the_check_finds_an_instance_that_leaves_late(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    clustersim.run([instance("s", 10, 1, 30)], "fifo", cluster="n1g4", overheads=None, out=folder)
    log = folder / "events.csv"
    log.write_text(log.read_text().replace("40,served", "45,served"))
    assert "services" in {rule.rule for rule in check_run_folder(folder) if rule.violations}
