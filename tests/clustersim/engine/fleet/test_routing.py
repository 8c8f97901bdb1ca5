"""Jobs sent to the clusters of a fleet, each with a policy of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.audit.folder import check_run
from clustersim.audit.rerun import replay
from clustersim.records import NOTE, Run
from clustersim.runs import RunConfig, setup_of
from itertime.errors import UserError
from tests.effort import examples
from traces.job import Job

FLEET = """
clusters:
  - name: east
    groups: [{name: new, gpu_type: h100, nodes: 2}]
  - name: west
    groups: [{name: new, gpu_type: h100, nodes: 3}]
"""
EAST, WEST = (f"groups: [{{name: new, gpu_type: h100, nodes: {nodes}}}]" for nodes in (2, 3))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("fleet")
    for name, text in (("fleet", FLEET), ("east", EAST), ("west", WEST)):
        (folder / f"{name}.yaml").write_text(text)
    return {name: str(folder / f"{name}.yaml") for name in ("fleet", "east", "west")}


def broken_rules(run: Run) -> list[str]:
    return [violation.text for finding in check_run(run) for violation in finding.violations]


def jobs_of(rows: list[tuple[int, int, int, Any]]) -> list[Job]:
    return [
        Job(f"j{i}", float(submit), gpus=gpus, duration_s=float(run), estimate_s=float(run), gpu_type=asked)
        for i, (submit, gpus, run, asked) in enumerate(rows)
    ]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 300), st.sampled_from((1, 2, 4, 8, 16)), st.integers(1, 200),
        st.sampled_from(("east", "west")),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
POLICIES = st.sampled_from(("fifo", "fifo-skip", "srtf", "easy", "las", "round-robin"))


@settings(max_examples=examples(10), deadline=None)
@given(rows=ROWS, policies=st.tuples(POLICIES, POLICIES))
def test_bound_jobs_run_as_in_runs_apart(files: dict[str, str], rows: Any, policies: tuple[str, str]) -> None:
    jobs = jobs_of(rows)
    routing = {"by": "first-fit", "policies": dict(zip(("east", "west"), policies, strict=True))}
    fleet = clustersim.run(jobs, "fifo", cluster=files["fleet"], routing=routing, bound="none")
    assert broken_rules(fleet) == []
    apart = {}
    for name, policy in zip(("east", "west"), policies, strict=True):
        own = [replace(job, gpu_type=None) for job in jobs if job.gpu_type == name]
        if own:
            run = clustersim.run(own, policy, cluster=files[name], bound="none")
            apart.update({record.job_id: record for record in run.jobs})
    for record in fleet.jobs:
        alone = apart[record.job_id]
        # Times are sums, which begin elsewhere in a run apart.
        for name in ("start_s", "finish_s", "wait_s", "gpu_seconds", "preemptions", "migrations"):
            assert getattr(record, name) == pytest.approx(getattr(alone, name), abs=1e-6)


def sent(run: Run) -> dict[str, str]:
    """By job, the last cluster that it was sent or moved to."""
    return {e.job_id: e.detail.split()[2].rstrip(":") for e in run.events if e.event == NOTE}


def routed(files: dict[str, str], jobs: list[Job], **routing: Any) -> Run:
    run = clustersim.run(jobs, "fifo", cluster=files["fleet"], routing=routing, overheads=None)
    assert broken_rules(run) == []
    return run


def test_rules_choose_clusters(files: dict[str, str]) -> None:
    jobs = jobs_of([(0, 8, 100, None), (1, 16, 100, None), (2, 8, 100, None), (3, 16, 10, None)])
    # Nothing has room for the last: 16 of 16 GPUs are taken in the east, 16 of 24 in the west.
    assert [*sent(routed(files, jobs, by="first-fit")).values()] == ["east", "west", "east", "west"]
    # 8 of 16 against 0 of 24, then 8 of 16 against 16 of 24, 16 of 16 against 16 of 24
    assert sent(routed(files, jobs, by="least-loaded")) == {
        "j0": "east", "j1": "west", "j2": "east", "j3": "west",
    }  # fmt: skip
    # 1,570 GPU-s on 16 GPUs in the east, 1,568 on 24 in the west
    assert sent(routed(files, jobs, by="least-wait"))["j3"] == "west"


def test_a_home_cluster_spills_over(files: dict[str, str]) -> None:
    jobs = [Job(name, 0.0, "blue", gpus=16, duration_s=50.0) for name in ("a", "b", "c")]
    homes = {"blue": "east"}
    assert sent(routed(files, jobs, by="home", homes=homes)) == {"a": "east", "b": "west", "c": "east"}
    at_home = routed(files, jobs, by="home", homes=homes, spill=False)
    assert sent(at_home) == dict.fromkeys("abc", "east")
    assert [record.finish_s for record in at_home.jobs] == [50.0, 100.0, 150.0]


def test_a_job_moves_to_no_cluster_twice_at_an_instant(files: dict[str, str]) -> None:
    """A policy that decides in rounds lets it wait in both clusters, beside free GPUs."""
    jobs = jobs_of([(0, 1, 9000, None), (0, 1, 9000, None), (140, 1, 100, None)])
    run = clustersim.run(
        jobs, "gavel-max-min", cluster=files["fleet"], overheads=None,
        routing={"by": "least-loaded", "move": True},
    )  # fmt: skip
    assert [job.state for job in run.jobs] == ["finished"] * 3
    assert sum(event.detail.startswith("moved") for event in run.events) <= 4
    assert broken_rules(run) == []


def test_jobs_that_wait_move_to_a_cluster_with_room(files: dict[str, str]) -> None:
    jobs = jobs_of([(0, 16, 100, None), (0, 24, 10, None), (1, 16, 100, None)])
    stay, move = (routed(files, jobs, by="first-fit", move=move) for move in (False, True))
    assert (sent(stay)["j2"], stay.jobs[2].start_s) == ("east", 100.0)
    assert (sent(move)["j2"], move.jobs[2].start_s) == ("west", 10.0)


def test_the_fastest_cluster_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "clusters: [{name: old, groups: [{name: a, gpu_type: a100, nodes: 1}]},"
        " {name: new, groups: [{name: b, gpu_type: h100, nodes: 1}]}]"
    )
    jobs = [Job("a", 0.0, model="gpt3-1.3b", global_batch=64, gpus=8, iterations=20.0)]
    for by, where in (("fastest", "new"), ("soonest", "new"), ("first-fit", "old")):
        run = clustersim.run(jobs, "fifo", cluster=str(tmp_path / "f.yaml"), routing={"by": by})
        assert broken_rules(run) == []
        assert sent(run) == {"a": where}


def test_failures_and_calendars_reach_every_cluster(files: dict[str, str], tmp_path: Path) -> None:
    jobs = jobs_of([(10 * i, 4 * (1 + i % 3), 400, None) for i in range(40)])
    rows = [f"{job.job_id},{job.submit_s},{job.gpus},{job.duration_s},{job.estimate_s}" for job in jobs]
    trace = tmp_path / "jobs.csv"
    trace.write_text("\n".join(["job_id,submit_s,gpus,duration_s,estimate_s", *rows]))
    run = clustersim.run(
        trace, "srtf", cluster=files["fleet"], routing={"by": "least-wait"}, out=tmp_path / "run",
        failures={"mtbf_gpu_h": 2.0, "spare_nodes": 1},
        calendar=[{"at_s": 300, "maintenance": "1-2", "for_s": 100}, {"at_s": 900, "remove": "0,4"}],
    )  # fmt: skip
    down = {event.placement[0][0] for event in run.events if event.event == "node_down"}
    assert down == {0, 1, 2, 3, 4}
    assert run.summary["interruptions"] > 3
    findings = check_run_folder(tmp_path / "run")
    assert [v.text for finding in findings for v in finding.violations] == []
    assert replay(tmp_path / "run").violations == ()


def test_a_job_that_no_cluster_can_run_is_rejected(files: dict[str, str]) -> None:
    run = routed(files, jobs_of([(0, 32, 10, None), (0, 8, 10, "north"), (5, 8, 10, None)]))
    assert [record.state for record in run.jobs] == ["rejected", "rejected", "finished"]
    assert run.jobs[0].reason == "east/h100: asks for 32 GPUs, the cluster has 16; " \
        "west/h100: asks for 32 GPUs, the cluster has 24"  # fmt: skip


def test_a_policy_of_one_gpu_type_runs_on_each_cluster(files: dict[str, str]) -> None:
    jobs = [Job(f"j{i}", 0.0, model="gpt3-1.3b", global_batch=64, gpus=8, iterations=20.0) for i in range(6)]
    with pytest.raises(UserError, match="plans with one GPU type"):
        clustersim.run(jobs, "afs", cluster=files["fleet"])
    run = clustersim.run(jobs, "afs", cluster=files["fleet"], routing={"by": "least-loaded"})
    assert broken_rules(run) == []
    assert run.summary["finished"] == 6


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        ({"by": "random"}, "unknown rule of routing 'random'"),
        ({"by": ["x"]}, "unknown rule of routing"),
        ({"rule": "fastest"}, "unknown parameter of routing 'rule'"),
        ({"by": "home"}, "states no homes"),
        ({"homes": {"a": "north"}}, "unknown cluster 'north'"),
        ({"homes": ["east"]}, "routing.homes="),
        ({"policies": {"north": "fifo"}}, "unknown cluster 'north'"),
        ({"policies": {"east": "fiffo"}}, "fiffo"),
        ({"policies": {"east": "x.py:X"}}, "must be a registered policy"),
        ({"policies": {"east": 3}}, "routing.policies="),
        ({"params": {"east": {"a": 1}}}, "parameters without a policy"),
        ({"policies": {"east": "fifo"}, "params": {"east": {"a": 1}}}, "unknown parameter of policy fifo"),
        ({"spill": 3}, "routing.spill=3"),
        ({"move": "yes"}, "routing.move="),
        ({1: 2}, "routing"),
    ],
)
def test_wrong_settings_are_refused(files: dict[str, str], routing: Any, words: str) -> None:
    with pytest.raises(UserError) as refused:
        setup_of(RunConfig.make(policy="fifo", cluster=files["fleet"], routing=routing))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cluster": "n2g8"}, "states no clusters"),
        ({"quotas": {"a": 8}}, "quotas: holds for one cluster"),
        ({"overheads": {"storage_shared": True}}, "storage_shared: holds for one cluster"),
    ],
)
def test_settings_that_routing_excludes(files: dict[str, str], more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        setup_of(RunConfig.make(**{"policy": "fifo", "cluster": files["fleet"], "routing": {}, **more}))


def test_a_limit_and_progress(files: dict[str, str]) -> None:
    seen: list[int] = []
    jobs = jobs_of([(0, 16, 100, None), (0, 24, 500, None), (1, 16, 100, None), (900, 1, 1, None)])
    run = clustersim.run(
        jobs,
        "fifo",
        cluster=files["fleet"],
        routing={},
        until_s=300.0,
        overheads=None,
        on_progress=seen.append,
    )
    assert broken_rules(run) == []
    assert seen == [1, 2]
    assert [record.state for record in run.jobs] == ["finished", "unfinished", "finished", "unfinished"]
    assert run.manifest["end_s"] == 300.0


def test_clusters_without_a_price_are_charged_the_default_where_another_states_one(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    groups = ("{name: a, gpu_type: v100, nodes: 1, gpus_per_node: 8}", "{name: b, gpu_type: a100, nodes: 1}")
    parts = "".join(
        f"\n  - {{name: {name}, groups: [{group}]}}" for name, group in zip("xy", groups, strict=True)
    )
    fleet.write_text(f"clusters:{parts}\n")
    jobs = [Job("a", 0.0, gpus=8, duration_s=3600.0, gpu_type="x")]
    run = clustersim.run(
        jobs, "fifo", cluster=str(fleet), overheads=None, routing={"by": "first-fit"}, price_usd_per_gpu_h=2.0
    )
    assert [job.cost_usd for job in run.jobs] == [16.0]
    assert broken_rules(run) == []
