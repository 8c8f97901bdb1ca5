"""Jobs that a policy runs on the same GPUs: by hand, what is refused, audits, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from clustersim.cluster import SharedPlacement
from clustersim.errors import PolicyError
from clustersim.records import ALLOCATES
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.speed import Interference, Packing
from itertime.errors import UserError
from policies.fifo import Fifo
from tests.builders import acting, rigid
from traces.job import Job

PROFILES = {"a": [0.1, 0.1, 0.7, 0.1], "b": [0.1, 0.6, 0.2, 0.1], "c": [0.05, 0.05, 0.8, 0.1]}


class Pairs(Scheduler):
    """First come, first served, in pairs of jobs of as many GPUs where nothing is free."""

    packs = 2

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending:
            if proposal.start_shared(job, 0.5):
                continue
            for group in proposal.groups():
                if len(group) == 1 and proposal.gpus(group[0]) == job.requested:
                    assert proposal.start_shared(job, 0.5, beside=group[0])
                    break
        return proposal


def packed(jobs: list[Job], **settings: Any) -> clustersim.Run:
    return clustersim.run(jobs, Pairs, **{"cluster": "n1g8", "overheads": None, **settings})


def test_two_jobs_run_on_the_same_gpus() -> None:
    """By hand, with a slowdown of 1.5. a: 0 to 50 s alone, so 50 s are left, which take 75 s beside b. b has
    done 50 s by then, and its other 50 s take 50 s alone.
    """
    run = packed([rigid("a", 0, 8, 100.0), rigid("b", 50, 8, 100.0)], sharing={"slowdown": 1.5})
    assert [job.finish_s for job in run.jobs] == [pytest.approx(125.0), pytest.approx(175.0)]
    assert [job.gpu_seconds for job in run.jobs] == [pytest.approx(4 * 125.0), pytest.approx(4 * 125.0)]
    assert run.manifest["packs"] == 2
    assert [(row.time_s, row.allocated) for row in run.snapshots] == [(0, 4), (50, 8), (125, 4), (175, 0)]
    places = [event.placement for event in run.events if event.event in ALLOCATES]
    assert places == [SharedPlacement(((0, 8),), 0, 500_000)] * 2


def test_a_third_job_waits_and_a_job_of_other_size_does_not_join() -> None:
    jobs = [
        rigid("a", 0, 16, 100.0),
        rigid("b", 0, 16, 200.0),
        rigid("c", 1, 16, 10.0),
        rigid("d", 2, 8, 10.0),
    ]
    run = packed(jobs, cluster="n2g8", sharing={"slowdown": 1.0})
    starts = {job.job_id: job.start_s for job in run.jobs}
    assert starts == {"a": 0, "b": 0, "c": 100, "d": 200}


def test_a_plain_policy_states_nothing() -> None:
    assert "packs" not in clustersim.run([rigid("a", 0, 8, 10.0)], Fifo, cluster="n1g8").manifest


SHARE = "must be below 1 and at least 1 / packs; packs="


@pytest.mark.parametrize(
    ("packs", "share", "text"),
    [(1, 0.5, f"{SHARE}1 here"), *((2, share, f"{SHARE}2 here") for share in (0.3, 0.0, 1.0, -1))],
)
def test_shares_that_are_refused(packs: int, share: float, text: str) -> None:
    policy = acting(lambda state, proposal: proposal.start_shared(next(iter(state.pending)), share), packs)
    with pytest.raises(PolicyError, match=text):
        clustersim.run([rigid("a", 0, 8, 10.0)], policy, cluster="n1g8")


def test_no_job_joins_one_that_holds_its_gpus_alone() -> None:
    def join(state: State, proposal: Proposal) -> None:
        alone, joining = state.pending
        proposal.start(alone)
        proposal.start_shared(joining, 0.5, beside=alone)

    with pytest.raises(PolicyError, match="job a holds no part of GPUs in this proposal"):
        clustersim.run(
            [rigid("a", 0, 4, 10.0), rigid("b", 0, 4, 10.0)], acting(join, packs=2), cluster="n1g8"
        )


def test_gpu_hours_and_use_count_shares() -> None:
    jobs = [rigid("a", 0, 1, 100.0, gpu_fraction=0.25), rigid("b", 0, 1, 100.0, gpu_fraction=0.5)]
    run = clustersim.run(jobs, "fifo", cluster="n1g2", overheads=None)
    assert [job.gpu_seconds for job in run.jobs] == [25.0, 50.0]
    assert [tuple(row)[1:3] for row in run.snapshots] == [(0.75, 1.25), (0, 0)]
    assert run.summary["gpu_allocated_ratio"] == 0.375
    assert run.summary["cost_usd"] == pytest.approx(75 / 3600 * 5)


def test_networks_are_refused() -> None:
    with pytest.raises(UserError, match="runs jobs on the same GPUs, and no model says what network=tiers"):
        clustersim.run([rigid("a", 0, 8, 10.0)], "lucid", cluster="n2g8", network="tiers")


# Interleaving and bounds


def test_interleaved_jobs_take_the_longest_stage_of_each_step() -> None:
    """By hand, beside the stages of a, 0.1, 0.1, 0.7, 0.1. Those of b one step ahead are 0.6, 0.2, 0.1, 0.1,
    in all 0.6 + 0.2 + 0.7 + 0.1 = 1.6; one step behind 0.1, 0.1, 0.6, 0.2: 0.1 + 0.1 + 0.7 + 0.2 = 1.1.
    """
    sharing = Interference(profiles=PROFILES)
    assert sharing.factor("a", ["b"]) == sharing.factor("b", ["a"]) == pytest.approx(1.1)
    assert sharing.factor("a", ["a"]) == pytest.approx(0.7 * 2 + 0.1 * 2)
    assert sharing.factor("a", []) == 1.0
    assert Interference(1.3, profiles=PROFILES).factor("a", ["z"]) == 1.3
    one = {name: [float(i == j) for j in range(4)] for i, name in enumerate("pqrs")}
    alone = Interference(profiles=one)
    assert alone.factor("p", ["q", "r", "s"]) == 1.0  # four jobs, each on a resource of its own
    assert alone.factor("p", ["p"]) == 2.0


def test_the_density_is_the_most_work_of_jobs_that_share() -> None:
    jobs = [rigid("x", 0, 1, 10.0, model="a"), rigid("y", 0, 1, 10.0, model="b")]
    assert Packing(1, Interference()).density(jobs) == 1.0
    assert Packing(2, Interference()).density(jobs) == 2.0
    assert Packing(2, Interference(1.6, {"a": {"b": 1.25}})).density(jobs) == pytest.approx(
        1 / 1.25 + 1 / 1.6
    )
    assert Packing(2, Interference(profiles=PROFILES)).density(jobs) == pytest.approx(2 / 1.1)
    assert Packing(3, Interference(1.6)).density(jobs) == pytest.approx(2 / 1.6)  # 3 / 2.56 is less
    assert Packing(2, Interference(3.0)).density(jobs) == 1.0
    shares = [*jobs, rigid("z", 0, 1, 10.0, gpu_fraction=0.5)]
    assert Packing(2, Interference(1.6)).density(shares) == 2.0


def test_two_equal_jobs_reach_the_bound_of_packing() -> None:
    """Two jobs on the whole cluster side by side at a slowdown of 1.25 end at 125 s, which no schedule with
    two jobs on the same GPUs beats; without sharing the second ends at 200 s.
    """
    jobs = [rigid("a", 0, 8, 100.0), rigid("b", 0, 8, 100.0)]
    shared = packed(jobs, sharing={"slowdown": 1.25})
    assert shared.summary["makespan_s"] == pytest.approx(125.0)
    assert shared.manifest["bound"]["makespan_s"] == pytest.approx(125.0)
    alone = clustersim.run(jobs, Fifo, cluster="n1g8", overheads=None)
    assert alone.manifest["bound"]["makespan_s"] == pytest.approx(200.0)
