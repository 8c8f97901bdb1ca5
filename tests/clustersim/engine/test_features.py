"""What the features of runs show to policies and in results. Whole logs are in `schedules`, falsified ones in
`audit/forgeries`.
"""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.analysis import service_levels
from clustersim.audit import check_run_folder
from clustersim.audit.folder import check_run
from clustersim.errors import PolicyError
from clustersim.records import ALLOCATES, Run
from clustersim.runs import RunConfig, setup_of
from clustersim.scheduler import Proposal, State
from clustersim.speed import Interference, Packing
from clustersim.testing import simulate
from itertime.errors import UserError
from tests.builders import Acts, Script, acting, elastic, rigid
from traces.job import Job
from traces.native import write_trace
from traces.phases import seconds_factor

# Decisions at multiples of an interval


def simulated(jobs: list[Job], policy: str, **settings: Any) -> Run:
    return clustersim.run(jobs, policy, **{"cluster": "n1g8", "decision_interval_s": 60.0, **settings})


def test_usage_follows_each_event_and_not_only_rounds() -> None:
    jobs = [rigid("long", 5, 8, 300.0), rigid("short", 30, 8, 20.0)]
    found = simulated(jobs, "srtf", overheads=None)
    assert found.manifest["decision_interval_s"] == 60.0
    usage = [(s.time_s, s.allocated, s.running, s.pending) for s in found.snapshots]
    assert usage == [
        (5, 0, 0, 1), (30, 0, 0, 2), (60, 8, 1, 1), (80, 0, 0, 1), (120, 8, 1, 0), (420, 0, 0, 0),
    ]  # fmt: skip


def test_the_run_ends_with_its_last_job_when_a_round_is_expected_already() -> None:
    """`a` ends at 90 s, and asks for the round at 120 s; `b` ends before it."""
    found = simulated([rigid("a", 60, 4, 30.0), rigid("b", 60, 4, 45.0)], "fifo", overheads=None)
    assert found.manifest["end_s"] == 105.0


def test_phases_and_instances_of_services_begin_between_rounds_under_the_audit(tmp_path: Path) -> None:
    """Both are no decisions of the policy. An instance takes its time on slow nodes, too."""
    jobs = [
        rigid("phased", 0, 2, 100.0, phases="0.3:1 0.7:2"),
        rigid("served", 70, 1, 35.0, service="chat"),
        rigid("plain", 65, 4, 50.0),
    ]
    write_trace(jobs, tmp_path / "jobs.csv")
    found = clustersim.run(
        tmp_path / "jobs.csv", "srtf", cluster="n1g8", decision_interval_s=60.0,
        variability={"sigma": 0.2}, step_time={"slowdown": 1.2}, out=tmp_path / "run",
    )  # fmt: skip
    between = [(e.event, e.job_id) for e in found.events if e.event in ALLOCATES and e.time_s % 60.0]
    assert between == [("start", "served"), ("replan", "phased")]
    assert [f for f in check_run_folder(tmp_path / "run") if f.violations] == []


def test_a_phase_of_fewer_layers_runs_as_a_model_that_has_no_more(tmp_path: Path) -> None:
    stacked = Job("a", 0.0, model="bert-large", gpus=8, global_batch=256, iterations=1000)
    jobs = [replace(stacked, phases="0.2:256@6 0.3:256@12 0.5:256")]
    write_trace(jobs, tmp_path / "jobs.csv")
    run = clustersim.run(tmp_path / "jobs.csv", "fifo", cluster="n1g8", out=tmp_path / "run")
    seconds = [event.unit_s for event in run.events if event.event in ALLOCATES]
    (deep,) = clustersim.run([stacked], "fifo", cluster="n1g8").plans
    assert seconds[2] == pytest.approx(deep.iteration_s, rel=1e-5)
    assert seconds[0] < seconds[1] / 1.8 < seconds[2] / 3.3
    assert {plan.model for plan in run.plans} == {
        f"bert-large{end}" for end in ("", ",layers=6", ",layers=12")
    }
    assert [f for f in check_run_folder(tmp_path / "run") if f.violations] == []
    (path := tmp_path / "wrong.csv").write_text((tmp_path / "jobs.csv").read_text().replace("@6", "@60"))
    with pytest.raises(UserError, match="which has 24 layers, not 60"):
        clustersim.run(path, "fifo", cluster="n1g8")


# Services


def instance(
    name: str, submit_s: float, gpus: int, lasts_s: float, service: str = "chat", **more: object
) -> Job:
    return rigid(name, submit_s, gpus, lasts_s, service=service, **more)


def served(*jobs: Job, policy: Any = "fifo", cluster: str = "n1g4", **settings: object) -> Run:
    return clustersim.run(list(jobs), policy, cluster=cluster, **{"overheads": None, **settings})


def test_what_services_need_and_get() -> None:
    done = served(rigid("a", 0, 2, 100), rigid("b", 1, 2, 100), instance("s", 10, 1, 30))
    assert done.summary["services"] == {
        "instances": 1, "demanded_gpu_h": 30 / 3600, "unmet_gpu_h": 0.0, "met_ratio": 1.0,
    }  # fmt: skip
    done = served(
        rigid("a", 0, 4, 25), instance("s", 10, 2, 30), instance("t", 12, 4, 8), services_preempt=False
    )
    assert done.summary["services"]["unmet_gpu_h"] == pytest.approx((2 * 15 + 4 * 8) / 3600)
    assert done.summary["services"]["met_ratio"] == pytest.approx(1 - 62 / 92)


def test_metrics_of_jobs_leave_instances_out() -> None:
    done = served(rigid("a", 0, 2, 100), instance("s", 0, 2, 500))
    assert (done.summary["jct_mean_s"], done.summary["makespan_s"], done.summary["finished"]) == (100, 100, 1)
    assert done.summary["gpu_allocated_ratio"] == 1.0


def test_the_share_of_time_with_all_of_the_need_met() -> None:
    """From 10 to 30 chat needs 2 of 2 GPUs, and has one while rank holds the other."""
    done = served(
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

    served(rigid("a", 0, 4, 5), instance("s", 10, 3, 20), policy=acting(watch), until_s=50.0)
    assert seen == [
        (0.0, 4, 4, ["a"], ["submitted"]),
        (10.0, 1, 1, ["a"], ["services"]),
        (30.0, 4, 4, ["a"], ["services"]),
    ]


# Phases and batches


TABLE = {("m", 8): {1: 1.0, 2: 1.5}, ("m", 16): {1: 0.6, 2: 1.1}, ("m", 32): {1: 0.25, 2: 0.5, 4: 1.0}}


def test_a_policy_sees_goodput_by_batch() -> None:
    seen = []

    def look(p, jobs) -> None:  # type: ignore[no-untyped-def]
        job = jobs["a"]
        seen.append({batch: dict(zip(c.sizes, c.rates, strict=True)) for batch, c in job.batches.items()})
        seen.append((job.batch, job.phases[0].batch, jobs["b"].batches, jobs["b"].batch))

    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    simulate(jobs, Script({0.0: look}), "n1g8", table=TABLE)
    rate = {batch: pytest.approx(TABLE["m", batch][1] / seconds_factor(8, batch, 8)) for batch in (8, 16, 32)}
    assert {batch: speeds[1] for batch, speeds in seen[0].items()} == rate  # no row has batch 64
    assert seen[1] == (8, 8, {}, 8)


def test_what_a_policy_sees_of_phases() -> None:
    seen = []

    def look(state: State, proposal: Proposal) -> None:
        for job in [*state.running, *state.pending]:
            shares = [phase.share for phase in job.phases]
            seen.append((job.phase, shares, job.rate(1), job.remaining(1), job.oracle_remaining(1)))
            if not job.running:
                proposal.start(job)
                proposal.wake_at = 50.0

    job = elastic("a", 0, 1, 100, phases="0.3:8 0.7:12")
    simulate([job], Acts(look), "n1g8", table={**TABLE, ("m", 12): {1: 0.75}})
    assert seen[0] == (0, [None, None], 1.0, 100.0, pytest.approx(30 + 70 / 1.125))
    assert seen[-1] == (1, [0.3, None], 1.125, pytest.approx(47.5 / 1.125), pytest.approx(47.5 / 1.125))


@pytest.mark.parametrize(("name", "batch"), [("a", 64), ("a", 12), ("b", 8)])
def test_other_batches_are_refused(name: str, batch: int) -> None:
    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    with pytest.raises(PolicyError, match=rf"train_with\(job {name}, {batch}\): it can train with"):
        simulate(jobs, Script({0.0: lambda p, j: p.train_with(j[name], batch)}), "n1g8", table=TABLE)


def test_statistical_efficiency() -> None:
    """Pollux, equation 7: EFFICIENCY(m) = (noise + m0) / (noise + m)."""
    for noise in (0.0, 3.0, 800.0):
        for batch in (8, 16, 1024):
            efficiency = (noise + 8) / (noise + batch)
            assert 1 / seconds_factor(noise, batch, 8) == pytest.approx(batch / 8 * efficiency)
    assert seconds_factor(inf, 1024, 8) == 8 / 1024
    assert seconds_factor(5.0, 8, 8) == 1.0


# Jobs on the same GPUs


PROFILES = {"a": [0.1, 0.1, 0.7, 0.1], "b": [0.1, 0.6, 0.2, 0.1], "c": [0.05, 0.05, 0.8, 0.1]}


def test_gpu_hours_and_use_count_shares() -> None:
    jobs = [rigid("a", 0, 1, 100.0, gpu_fraction=0.25), rigid("b", 0, 1, 100.0, gpu_fraction=0.5)]
    run = clustersim.run(jobs, "fifo", cluster="n1g2", overheads=None)
    assert [job.gpu_seconds for job in run.jobs] == [25.0, 50.0]
    assert [tuple(row)[1:3] for row in run.snapshots] == [(0.75, 1.25), (0, 0)]
    assert run.summary["gpu_allocated_ratio"] == 0.375
    assert run.summary["cost_usd"] == pytest.approx(75 / 3600 * 4)


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
    shared = clustersim.run(jobs, "muri", cluster="n1g8", overheads=None, sharing={"slowdown": 1.25})
    assert shared.summary["makespan_s"] == pytest.approx(125.0)
    assert shared.manifest["bound"]["makespan_s"] == pytest.approx(125.0)
    alone = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    assert alone.manifest["bound"]["makespan_s"] == pytest.approx(200.0)
    assert (shared.manifest["packs"], "packs" in alone.manifest) == (2, False)


# Nodes that are reclaimed or reserved


FREE = {"launch_s": 0, "launch_gpu_s": 0, "plain_restart_s": 20}  # 10 s to save, 10 s to load


def tenants_job(name: str, submit_s: float, gpus: int, run_s: float, tenant: str = "t", **more: Any) -> Job:
    return Job(name, submit_s, tenant, gpus=gpus, duration_s=run_s, **more)


def broken_rules(run: Run) -> list[str]:
    return [violation.text for finding in check_run(run) for violation in finding.violations]


def audited(jobs: list[Job], policy: Any = "fifo", cluster: str = "n2g8", **more: Any) -> Run:
    values: dict[str, Any] = {"overheads": FREE, "bound": "none", **more}
    run = clustersim.run(jobs, policy, cluster=cluster, **values)
    assert broken_rules(run) == []
    return run


# Reclaims


RECLAIM = [{"at_s": 100, "reclaim": 0, "for_s": 50, "notice_s": 30}]


def test_a_policy_sees_notices() -> None:
    seen = []

    def watch(state: State, proposal: Proposal) -> None:
        for event in state.events:
            if event.kind == "reclaim_notice":
                running = [(view.id, view.leaves_at_s) for view in state.running]
                seen.append((state.now, event.node, dict(state.leaving), running))
        for view in state.pending:
            proposal.start(view)

    audited([tenants_job("a", 0, 8, 200), tenants_job("b", 0, 8, 300)], acting(watch), calendar=RECLAIM)
    assert seen == [(70.0, 0, {0: 100.0}, [("a", 100.0), ("b", float("inf"))])]


def test_the_time_between_reclaims_has_the_stated_mean() -> None:
    from clustersim.failures import Outages, Spot

    spot = Spot(tuple(range(200)), mean_up_h=2.0, mean_down_h=0.5)
    outages, up, last = Outages([8] * 200, 0.0, spot=spot, seed=1), [], dict.fromkeys(range(200), 0.0)
    down: list[float] = []
    for _ in range(20_000):
        change = outages.next_until(inf)
        assert change is not None
        (down if change.up else up).append(change.time_s - last[change.node])
        last[change.node] = change.time_s
    assert sum(up) / len(up) == pytest.approx(7200, rel=0.04)
    assert sum(down) / len(down) == pytest.approx(1800, rel=0.04)


# Reservations

RESERVED = {"at_s": 100, "for_s": 100, "nodes": 0, "tenants": ["blue"]}


def test_gpus_are_the_last_whole_nodes() -> None:
    values = RunConfig.make(policy="fifo", cluster="n4g8", reservations=[
        {"at_s": 5, "for_s": 1, "gpus": 9, "jobs": "a", "every_s": 10, "times": 2}])  # fmt: skip
    found = setup_of(values).reservations
    assert [(one.start_s, one.end_s, sorted(one.nodes)) for one in found] == [
        (5, 6, [2, 3]),
        (15, 16, [2, 3]),
    ]
