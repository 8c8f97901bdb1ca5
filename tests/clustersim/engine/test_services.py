"""Instances of inference services: served ahead of the policy until their time is over."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from clustersim.analysis import service_levels
from clustersim.records import Run
from clustersim.scheduler import Proposal, State
from tests.builders import acting, rigid
from traces.job import Job


def instance(
    name: str, submit_s: float, gpus: int, lasts_s: float, service: str = "chat", **more: object
) -> Job:
    return rigid(name, submit_s, gpus, lasts_s, service=service, **more)


def run(*jobs: Job, policy: Any = "fifo", cluster: str = "n1g4", **settings: object) -> Run:
    return clustersim.run(list(jobs), policy, cluster=cluster, **{"overheads": None, **settings})


def test_what_services_need_and_get() -> None:
    done = run(rigid("a", 0, 2, 100), rigid("b", 1, 2, 100), instance("s", 10, 1, 30))
    assert done.summary["services"] == {
        "instances": 1, "demanded_gpu_h": 30 / 3600, "unmet_gpu_h": 0.0, "met_ratio": 1.0,
    }  # fmt: skip
    done = run(
        rigid("a", 0, 4, 25), instance("s", 10, 2, 30), instance("t", 12, 4, 8), services_preempt=False
    )
    assert done.summary["services"]["unmet_gpu_h"] == pytest.approx((2 * 15 + 4 * 8) / 3600)
    assert done.summary["services"]["met_ratio"] == pytest.approx(1 - 62 / 92)


def test_metrics_of_jobs_leave_instances_out() -> None:
    done = run(rigid("a", 0, 2, 100), instance("s", 0, 2, 500))
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
    seen = []

    def watch(state: State, proposal: Proposal) -> None:
        ids = [job.id for job in (*state.pending, *state.running)]
        seen.append((state.now, state.free, state.in_service, ids, [event.kind for event in state.events]))

    run(rigid("a", 0, 4, 5), instance("s", 10, 3, 20), policy=acting(watch), until_s=50.0)
    assert seen == [
        (0.0, 4, 4, ["a"], ["submitted"]),
        (10.0, 1, 1, ["a"], ["services"]),
        (30.0, 4, 4, ["a"], ["services"]),
    ]
