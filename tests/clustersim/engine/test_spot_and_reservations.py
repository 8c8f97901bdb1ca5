"""Nodes that are reclaimed with notice, and nodes that are reserved for some jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.audit.folder import check_run
from clustersim.audit.rerun import replay
from clustersim.errors import PolicyError
from clustersim.records import Run
from clustersim.runs import RunConfig, setup_of
from clustersim.scheduler import Proposal, State
from tests.builders import acting
from traces.job import Job

FREE = {"launch_s": 0, "launch_gpu_s": 0, "plain_restart_s": 20}  # 10 s to save, 10 s to load


def job(name: str, submit_s: float, gpus: int, run_s: float, tenant: str = "t", **more: Any) -> Job:
    return Job(name, submit_s, tenant, gpus=gpus, duration_s=run_s, **more)


def broken_rules(run: Run) -> list[str]:
    return [violation.text for finding in check_run(run) for violation in finding.violations]


def simulate(jobs: list[Job], policy: Any = "fifo", cluster: str = "n2g8", **more: Any) -> Run:
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

    simulate([job("a", 0, 8, 200), job("b", 0, 8, 300)], acting(watch), calendar=RECLAIM)
    assert seen == [(70.0, 0, {0: 100.0}, [("a", 100.0), ("b", float("inf"))])]


def test_no_policy_can_start_a_job_on_a_closed_node() -> None:
    def start_on_node_0(state: State, proposal: Proposal) -> None:
        for view in state.pending:
            proposal.start(view, on=((0, view.requested),))

    jobs = [job("z", 0, 1, 1), job("a", 80, 8, 10)]
    for closed in ({"calendar": RECLAIM}, {"reservations": [{**RESERVED, "at_s": 70}]}):
        with pytest.raises(PolicyError, match="node 0 is closed to it"):
            simulate(jobs, acting(start_on_node_0), **closed)


def test_drawn_reclaims_are_those_of_the_seed_under_every_policy(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    rows = "\n".join(f"j{i},{30 * i},{4 + 4 * (i % 3)},{300 + 50 * (i % 5)}" for i in range(40))
    trace.write_text(f"job_id,submit_s,gpus,duration_s\n{rows}\n")
    spot = {"nodes": "1-3", "mean_up_h": 0.1, "mean_down_h": 0.02, "notice_s": 5}
    nodes = {}
    for policy in ("fifo", "srtf"):
        run = clustersim.run(
            trace, policy, cluster="n4g8", spot=spot, out=tmp_path / policy, bound="none", overheads=FREE,
            until_s=1500.0,
        )  # fmt: skip
        assert [v.text for f in check_run_folder(tmp_path / policy) for v in f.violations] == []
        assert replay(tmp_path / policy).violations == ()
        nodes[policy] = [(e.time_s, e.event, e.placement) for e in run.events if e.event.startswith("node_")]
        assert {placement[0][0] for _, _, placement in nodes[policy]} == {1, 2, 3}
        assert run.summary["interruptions"] > 0  # 5 s are too short for a save of 10 s
    assert nodes["fifo"] == nodes["srtf"]


def test_the_time_between_reclaims_has_the_stated_mean() -> None:
    from clustersim.failures import Outages, Spot

    spot = Spot(tuple(range(200)), mean_up_h=2.0, mean_down_h=0.5)
    outages, up, last = Outages([8] * 200, 0.0, spot=spot, seed=1), [], dict.fromkeys(range(200), 0.0)
    down: list[float] = []
    for _ in range(20_000):
        change = outages.next()
        assert change is not None
        (down if change.up else up).append(change.time_s - last[change.node])
        last[change.node] = change.time_s
    assert sum(up) / len(up) == pytest.approx(7200, rel=0.04)
    assert sum(down) / len(down) == pytest.approx(1800, rel=0.04)


def test_spot_groups_are_a_pool_with_a_price(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "groups: [{name: a, gpu_type: h100, nodes: 1, usd_per_gpu_hour: 4},"
        " {name: b, gpu_type: h100, nodes: 1, usd_per_gpu_hour: 1, spot: true}]"
    )
    jobs = [
        job("a", 0, 8, 3600, gpu_type="h100"),
        job("b", 0, 8, 3600),
        job("c", 0, 8, 10, gpu_type="h100-spot"),
    ]
    run = simulate(jobs, cluster=str(path), overheads=None, spot={"mean_up_h": 1e6})
    assert run.cluster.gpu_types == ("h100", "h100-spot")
    assert [record.cost_usd for record in run.jobs[:2]] == [32.0, 8.0]
    assert run.jobs[2].start_s == 3600
    assert run.manifest["spot"]["nodes"] == [1]


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
