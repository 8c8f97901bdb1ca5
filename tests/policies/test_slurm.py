"""Policy `slurm`: rules worked out by hand, and the recorded runs of a real Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from clustersim.sites import Association, Partition, Qos, Settings, SiteNode, SiteReservation, SlurmSite
from clustersim.testing import simulate
from experiments.slurm.end_to_end import play
from experiments.slurm.recorded import RecordedRun, read_run
from experiments.slurm.steps import log_times, step_check
from policies.slurm import Slurm
from policies.slurmctld import (
    Controller,
    FreeNodes,
    Host,
    JobRecord,
    Phases,
    Preemption,
    Rules,
    Shape,
    ShareTree,
    place,
)
from tests.places import SHARED
from traces.job import Job

RECORDED = SHARED / "slurm" / "reference"
PROMPT = {"bf_interval": 1, "bf_resolution": 1, "batch_sched_delay": 0, "sched_interval": 2}


def record(name: str, nodes: int = 1, gpus: int = 8, last: int | None = None, **fields: Any) -> JobRecord:
    shape = Shape(-1, nodes, gpus, gpus if last is None else last)
    return JobRecord(name, (ord(name[-1]),), (shape,), **fields)


@pytest.mark.parametrize(
    ("free", "job", "where"),
    [
        ([8, 8, 8, 0, 8, 8], record("a", 2), (4, 5)),  # the smallest run that suffices
        ([8, 8, 0, 8, 0, 8], record("a", 3), (0, 1, 3)),  # the largest, then the smallest that suffices
        ([8, 0, 3, 3, 0, 2], record("a", gpus=2), (0,)),  # not the fullest node, but the first short run
        ([8, 8, 4, 0], record("a", 2, 8, 4), (0, 1)),  # 12 GPUs: a whole node, and a part of the first run
        ([7, 8, 7], record("a", 2), None),
    ],
)
def test_a_job_gets_the_shortest_run_of_nodes(
    free: list[int], job: JobRecord, where: tuple[int, ...]
) -> None:
    placement = place(job, FreeNodes(free), -1)
    assert (placement and tuple(node for node, _ in placement)) == where


def test_lighter_nodes_and_less_loaded_ones_come_first() -> None:
    free = FreeNodes([8, 8, 6, 8])
    assert place(record("a", gpus=2), free, -1, weights=(0b1100, 0b0011)) == ((2, 2),)
    assert place(record("a", gpus=2), free, -1, least_loaded=True) == ((0, 2),)


def test_fair_tree_ranks_users_depth_first_and_ties_share_a_rank() -> None:
    """The users of accounts without usage all come first, those of the account that used more come last; the
    root's own association is one of them.
    """
    entries = [Association(name, "root", Share=share) for name, share in (("a", 1), ("b", 1), ("c", 1))]
    users = [Association(name[0], user=name) for name in ("a1", "a2", "b1", "c1")]
    tree = ShareTree([*entries, *users])
    assert set(tree.fair_tree().values()) == {1.0}
    tree.charge("a", "a1", 60.0)
    tree.charge("b", "b1", 20.0)
    factors = {user: factor * 5 for (_, user), factor in tree.fair_tree().items()}
    assert factors == pytest.approx({"root": 5, "c1": 5, "b1": 3, "a2": 2, "a1": 1})


def test_a_share_of_the_parent_is_its_standing() -> None:
    """The users of `a` have its level, whatever they used; the account `b` is skipped, so that b1 and b2
    compete with `a`, and b2 used less for its share than `a` did.
    """
    accounts = [Association("a", "root"), Association("b", "root", Share=None)]
    of_a = [Association("a", user=name, Share=None) for name in ("a1", "a2")]
    of_b = [Association("b", user=name) for name in ("b1", "b2")]
    tree = ShareTree([*accounts, *of_a, *of_b])
    for account, user, seconds in (("a", "a1", 50.0), ("b", "b1", 70.0), ("b", "b2", 10.0)):
        tree.charge(account, user, seconds)
    factors = {user: factor * 5 for (_, user), factor in tree.fair_tree().items()}
    assert factors == pytest.approx({"root": 5, "b2": 4, "a1": 3, "a2": 3, "b1": 1})
    classic = tree.classic()
    assert classic["a", "a1"] == classic["a", "a2"] == pytest.approx(2 ** -(50 / 130 * 4))


def test_classic_fair_share_halves_at_an_equal_part() -> None:
    tree = ShareTree([Association("a", "root"), Association("b", "root"), Association("a", user="u")])
    tree.charge("a", "u", 30.0)
    tree.charge("b", "v", 60.0)
    assert tree.classic()["a", "u"] == pytest.approx(0.5)


def site(count: int = 4, **parts: Any) -> SlurmSite:
    """Nodes of 8 GPUs in one partition, unless `parts` state others, with timers of a second."""
    nodes = tuple(SiteNode(f"n{number}", 8, "", 8) for number in range(count))
    every_node = tuple(node.name for node in nodes)
    settings = {"SchedulerParameters": PROMPT, **parts.pop("settings", {})}
    partitions = parts.pop("partitions", {"gpu": Partition(every_node, Default=True)})
    return SlurmSite("test", nodes, partitions, settings=Settings(**settings), **parts)


def preemption_site(**settings: Any) -> SlurmSite:
    qos = {"low": Qos(), "high": Qos(Priority=10, Preempt=("low",))}
    return site(qos=qos, settings={"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", **settings})


def test_few_jobs_are_preempted_and_those_on_the_chosen_nodes() -> None:
    """The three nodes of the place are those of `x` and `z`. With `z` in front, `y` is not needed."""
    rules = Rules(preemption_site(), {f"n{number}": number for number in range(4)})
    free = FreeNodes([8, 8, 8, 8])
    running = {"x": ((0, 8),), "y": ((3, 8),), "z": ((1, 8), (2, 8))}
    jobs = [record(name, len(where), qos="low") for name, where in running.items()]
    for job in jobs:
        job.begin("gpu", running[str(job.key)], 0.0)
        free.take(job.placement)
    preemptor = record("p", 3, qos="high")
    preemption = Preemption(rules)
    candidates = preemption.candidates(preemptor, "gpu", jobs, -1, now=10.0)
    assert [job.key for job in candidates] == ["x", "y", "z"]
    victims = preemption.victims(preemptor, candidates, free, -1)
    assert victims is not None
    assert {job.key for job in victims.jobs} == {"x", "z"}
    assert preemption.candidates(record("q", qos="low"), "gpu", jobs, -1, now=10.0) == []


def starts(policy: Slurm, nodes: int, jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """When each job starts; the timers take up to a second and a half."""
    trace = [
        Job(name, **{"submit_s": 0.0, "duration_s": 100.0, "gpus": 8, "estimate_s": 100.0, **fields})
        for name, fields in jobs.items()
    ]
    outcome = simulate(trace, policy, f"n{nodes}g8")
    return {row.job_id: row.start_s for row in outcome.records}


LATE = {"SchedulerType": "sched/builtin", "SchedulerParameters": {"batch_sched_delay": 10}}
LATE_JOBS: dict[str, dict[str, Any]] = {"a": {}, "b": {"submit_s": 2.0}, "c": {"submit_s": 95.0}}
LIMITED = {"AccountingStorageEnforce": ("limits",)}
BUDGETED = {**LIMITED, "PriorityType": "priority/multifactor", "PriorityDecayHalfLife": 0.0,
            "PriorityCalcPeriod": 10.0}  # fmt: skip
NODES = ("n0", "n1", "n2", "n3")
BOTH_NODES = NODES[:2]
CASES: list[tuple[str, SlurmSite | None, dict[str, dict[str, Any]], dict[str, float | None]]] = [
    # A plan takes whole nodes: the job of 1 GPU beside those of `a` would outlast the start of `b`.
    ("plans take whole nodes", site(1), {
        "a": {"gpus": 4}, "b": {"submit_s": 2.0}, "c": {"submit_s": 4.0, "gpus": 1},
        "d": {"submit_s": 6.0, "gpus": 1, "duration_s": 60.0, "estimate_s": 60.0},
    }, {"a": 0, "b": 100, "c": 200, "d": 7}),
    ("the main scheduler alone waits for the head", site(2, settings={"SchedulerType": "sched/builtin"}), {
        "a": {}, "b": {"submit_s": 2.0, "gpus": 16}, "c": {"submit_s": 4.0},
    }, {"a": 0, "b": 100, "c": 200}),
    ("tiers come first, and close their nodes", site(2, partitions={
        "gpu": Partition(BOTH_NODES, Default=True), "urgent": Partition(BOTH_NODES, PriorityTier=10),
    }, settings={"SchedulerType": "sched/builtin"}), {
        "a": {}, "b": {"submit_s": 2.0, "gpus": 16, "partition": "urgent"}, "c": {"submit_s": 0.5},
        "d": {"submit_s": 3.0},
    }, {"a": 0, "c": 1, "b": 101, "d": 201}),
    ("limits hold a user, and no other", site(settings=LIMITED, associations=(
        Association("t", "root"), Association("t", user="u", limits={"MaxJobs": 1}),
    )), {
        "a": {"tenant": "t", "user": "u"}, "b": {"submit_s": 1.0, "tenant": "t", "user": "u"},
        "c": {"submit_s": 2.0, "tenant": "t", "user": "v"},
    }, {"a": 0, "b": 100, "c": 3}),
    ("a job of more than its limit is declined", site(settings=LIMITED, qos={
        "normal": Qos(limits={"MaxTRESPerUser": {"gres/gpu": 8.0}}),
    }), {"a": {}, "b": {"gpus": 16}}, {"a": 0, "b": None}),
    ("a job beyond the limit of submissions is declined", site(1, settings=LIMITED, associations=(
        Association("t", "root"), Association("t", user="u", limits={"MaxSubmit": 2}),
    )), {
        **{name: {"tenant": "t", "user": "u"} for name in "abc"},
        "d": {"submit_s": 101.6, "tenant": "t", "user": "u"}, "e": {"tenant": "t", "user": "v"},
    }, {"a": 0, "b": 100, "c": None, "d": 300, "e": 200}),
    ("a used-up budget holds a job", site(settings=BUDGETED, qos={
        "normal": Qos(limits={"GrpTRESMins": {"gres/gpu": 8 * 90.0}}), "high": Qos(),
    }), {
        "a": {}, "b": {"submit_s": 50.0, "duration_s": 10.0}, "c": {"submit_s": 110.0},
        "d": {"submit_s": 110.0, "qos": "high"},
    }, {"a": 0, "b": 50, "c": None, "d": 111}),
    ("a budget comes back at midnight", site(settings={
        **BUDGETED, "PriorityUsageResetPeriod": "DAILY", "PriorityCalcPeriod": 60.0,
    }, qos={"normal": Qos(limits={"GrpWall": 90.0})}), {
        "a": {"submit_s": 86000.0}, "b": {"submit_s": 86100.5},
    }, {"a": 86000, "b": 86400}),
    ("a job for which no partition is open is declined", site(partitions={
        "gpu": Partition(NODES, Default=True, AllowQos=("high",)),
    }), {"a": {}, "b": {"qos": "high"}}, {"a": None, "b": 0}),
    ("a higher tier preempts, after the grace time", site(2, partitions={
        "gpu": Partition(BOTH_NODES, Default=True, GraceTime=20.0),
        "urgent": Partition(BOTH_NODES, PriorityTier=10),
    }, settings={"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}), {
        "a": {"gpus": 16}, "b": {"submit_s": 10.0, "partition": "urgent"},
    }, {"a": 0, "b": 31}),
    ("jobs that would run into a reservation wait", site(2, reservations=(
        SiteReservation("r", 50.0, 80.0, ("n0",)),
    )), {"a": {}, "b": {"submit_s": 1.0}, "c": {"submit_s": 2.0, "duration_s": 30.0, "estimate_s": 30.0}},
     {"a": 0, "c": 3, "b": 80}),
    ("ends are noticed at a tick, after batch_sched_delay", site(1, settings=LATE), LATE_JOBS,
     {"a": 0, "b": 106, "c": 206}),
    ("or at once, if nodes run a program then", site(1, settings={**LATE, "Epilog": True}), LATE_JOBS,
     {"a": 0, "b": 100, "c": 200}),
    # Both tasks of `x` are planned, though one alone may run: on n0 from 106 on, on n1 from 201 on.
    ("tasks that the limit of their array holds back are planned", site(2), {
        "z": {"duration_s": 3.0, "estimate_s": 3.0},
        "b": {"submit_s": 1.0, "gpus": 4, "duration_s": 200.0, "estimate_s": 200.0},
        "a": {"submit_s": 6.0, "gpus": 4},
        "x0": {"submit_s": 10.0, "array_id": "x", "array_limit": 1},
        "x1": {"submit_s": 10.0, "array_id": "x", "array_limit": 1},
        "y": {"submit_s": 14.0, "gpus": 4, "estimate_s": 250.0},
    }, {"z": 0, "b": 2, "a": 7, "x0": 107, "y": 107, "x1": 207}),
    ("tasks have the age of their array", site(1, settings={
        "PriorityType": "priority/multifactor", "PriorityWeightAge": 1000, "PriorityMaxAge": 300.0,
        "PriorityCalcPeriod": 60.0,
    }), {
        "x0": {"array_id": "x", "array_limit": 1, "duration_s": 70.0},
        "x1": {"array_id": "x", "array_limit": 1},
        "y": {"submit_s": 30.0},
    }, {"x0": 0, "x1": 71, "y": 171}),
    # Both are in one run of the scheduler: `a` is first in order of submission, and `b` may preempt it.
    ("a job is not preempted at the instant of its start", preemption_site(), {
        "a": {"gpus": 32, "qos": "low"}, "b": {"qos": "high"},
    }, {"a": 0, "b": 0.55}),
    ("a preempted job begins anew after its delay", preemption_site(), {
        "a": {"gpus": 32, "qos": "low"}, "b": {"submit_s": 10.0, "qos": "high"},
    }, {"a": 0, "b": 11}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "jobs", "logged"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_small_schedules(
    rules: SlurmSite, jobs: dict[str, dict[str, Any]], logged: dict[str, float | None]
) -> None:
    assert starts(Slurm(rules), len(rules.nodes), jobs) == pytest.approx(logged, abs=1.6)


def test_preempted_jobs_are_requeued_or_cancelled() -> None:
    jobs = [
        Job("a", 0.0, gpus=32, duration_s=100.0, qos="low"),
        Job("b", 10.0, gpus=8, duration_s=20.0, qos="high"),
    ]
    outcome = simulate(jobs, Slurm(preemption_site(requeue_delay=121.0)), "n4g8")
    times = {event.event: event.time_s for event in outcome.events if event.job_id == "a"}
    assert times["eligible"] == pytest.approx(10 + 121, abs=2)
    assert outcome.of("b").start_s == pytest.approx(times["requeue"] + 0.05)  # not before `a` is gone
    cancelled = simulate(jobs, Slurm(preemption_site(PreemptMode="CANCEL")), "n4g8").of("a")
    assert cancelled.reason == "cancelled by the policy: preempted (PreemptMode=CANCEL)"


def test_nodes_of_a_job_that_ended_are_planned_before_they_are_free() -> None:
    host = Host(lambda job, placement: 0, lambda job, mode: None)
    controller = Controller(Rules(site(1), {"n0": 0}), FreeNodes([8]), host, {"gpu": {}}, Phases())
    ended, waiting = (record(name, partitions=("gpu",)) for name in "ab")
    for job in (ended, waiting):
        controller.submit(job, 0.0)
    controller.adopt(ended, ((0, 8),), 0.0)
    assert controller.outlook(9.0).start_of(waiting, 1) == (ended.limit_s, ((0, 8),))
    controller.end(ended, 9.0)
    assert controller.outlook(9.0).start_of(waiting, 1) == (9.0, ((0, 8),))
    assert not controller.start_now(waiting, "gpu", 1)


@cache
def recorded(name: str) -> RecordedRun:
    folder: Path = RECORDED / name
    if not folder.is_dir():
        pytest.skip("needs the recorded runs of a real Slurm")
    return read_run(folder)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("agesize-1", {"places": 0.95, "plans": 0.95, "starts": 0.9, "priorities": 1.0}),
        ("fairshare-1", {"places": 0.85, "priorities": 1.0, "factors": 1.0}),
        ("limits-1", {"places": 1.0, "starts": 1.0, "priorities": 1.0, "reasons": 1.0, "factors": 1.0}),
        ("preempt-1", {"places": 0.95, "plans": 0.9, "victims": 1.0, "priorities": 1.0}),
        ("tiers-1", {"places": 1.0, "plans": 0.98, "starts": 1.0, "priorities": 1.0}),
        pytest.param("backfill-1b", {"places": 1.0, "plans": 0.95, "starts": 1.0}, marks=pytest.mark.long),
    ],
)
def test_single_steps_are_those_of_the_log(name: str, least: dict[str, float]) -> None:
    shares = step_check(recorded(name)).shares()
    assert {kind: shares[kind][0] for kind, share in least.items() if shares[kind][0] < share} == {}


@pytest.mark.parametrize("name", ["agesize-1", "preempt-1"])
def test_a_run_is_closer_with_the_times_of_its_log(name: str) -> None:
    """With whole seconds, in any of 16 phases of the timers, these two score 0.24 at best."""
    run = recorded(name)
    times = log_times(run)
    assert play(run, times, **Slurm.phases_from(times.controller_s)).score <= 0.1


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("agesize-1", 0.4), ("backfill-1", 0.2), ("backfill-1b", 0.2), ("fairshare-1", 0.45),
        ("fifo-1", 0.35), ("limits-1", 0.15), ("preempt-1", 0.6), ("site-1", 0.3), ("tiers-1", 0.5),
    ],
)  # fmt: skip
def test_whole_runs_are_close_to_the_log(name: str, most: float) -> None:
    """The median of 16 phases of the timers; Slurm itself, run twice, scores 0.15 to 0.42."""
    scores = [play(recorded(name), **phases) for phases in Slurm.timer_phases(16)]
    assert median(score.score for score in scores) <= most
    if name == "preempt-1":
        assert median(score.victims for score in scores) >= 7
        assert median(score.preempted for score in scores) <= 12
