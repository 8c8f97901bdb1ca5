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
from clustersim.records import Run
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


def test_a_policy_of_one_gpu_type_runs_on_each_cluster(files: dict[str, str]) -> None:
    jobs = [Job(f"j{i}", 0.0, model="gpt3-1.3b", global_batch=64, gpus=8, iterations=20.0) for i in range(6)]
    with pytest.raises(UserError, match="plans with one GPU type"):
        clustersim.run(jobs, "afs", cluster=files["fleet"])
    run = clustersim.run(jobs, "afs", cluster=files["fleet"], routing={"by": "least-loaded"})
    assert broken_rules(run) == []
    assert run.summary["finished"] == 6


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
