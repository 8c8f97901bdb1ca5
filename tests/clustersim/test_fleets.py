"""Fleets: types, precisions, frameworks and prices of nodes, and several clusters in one file."""

import json
import shlex
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
from clustersim.cli import main
from clustersim.cluster import cluster_of, load_cluster
from clustersim.commands.output.replays import replay_of
from clustersim.records import Run
from itertime.cli import main as itertime
from itertime.errors import UserError
from itertime.spec import load_system
from tests.effort import examples
from tests.places import ROOT
from tests.tables import TEXTS
from traces.job import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")

FLEET = ROOT / "docs" / "fleet.yaml"
SMALL = """
groups:
  - {name: ampere, gpu_type: a100, nodes: 2}
  - {name: hopper, gpu_type: h100, nodes: 1}
  - {name: blackwell, gpu_type: b200, nodes: 1}
"""


def small(folder: Path, text: str = SMALL) -> str:
    path = folder / "small.yaml"
    path.write_text(text)
    return str(path)


def job(name: str, **more: object) -> Job:
    facts = {"model": "gpt3-6.7b", "global_batch": 64, "gpus": 8, "iterations": 50.0, **more}
    return Job(name, 0.0, **facts)  # type: ignore[arg-type]


def test_plans_and_folders_state_precision_and_framework(tmp_path: Path) -> None:
    jobs = [job("a", precision="fp8", framework="te", gpu_type="h100"), job("b", gpu_type="h100")]
    run = clustersim.run(jobs, "fifo", cluster=small(tmp_path))
    keys = {(plan.framework, plan.precision, plan.gpu_type) for plan in run.plans}
    assert keys == {("te", "fp8", "h100"), ("", "", "h100")}
    assert {("fp8" in plan.plan) == (plan.precision == "fp8") for plan in run.plans} == {True}


def test_each_type_has_its_price(tmp_path: Path) -> None:
    """The file's, else the system's; GPU-hours by type times these add up to the cost of the run."""
    text = SMALL.replace("nodes: 2}", "nodes: 2, usd_per_gpu_hour: 1.5}")
    path = small(tmp_path, text)
    prices = load_cluster(path).prices(default=5.0)
    of_systems = {name: load_system(f"dgx-{name}").usd_per_gpu_hour for name in ("h100", "b200")}
    assert prices == {"a100": 1.5, **of_systems}
    jobs = [job("a", gpu_type="a100"), job("h", gpu_type="h100"), job("b", gpu_type="b200")]
    run = clustersim.run(jobs, "fifo", cluster=path)
    type_of = {"a": "a100", "h": "h100", "b": "b200"}
    due = {one.job_id: one.gpu_seconds / 3600 * prices[type_of[one.job_id]] for one in run.jobs}
    assert {one.job_id: one.cost_usd for one in run.jobs} == pytest.approx(due)
    assert run.summary["cost_usd"] == pytest.approx(sum(due.values()))


def test_the_plans_of_a_run_are_predicted_again_by_their_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On nodes with a part of their system's GPUs, or with other NICs; with models of the user."""
    monkeypatch.chdir(tmp_path)
    Path("my model.yaml").write_text("extends: llama3-8b\nlayers: 24\n")
    text = SMALL.replace("a100, nodes: 2", "a100, nodes: 2, gpus_per_node: 4, nic_gbps: 400")
    types = {"a100": {"seq_len": 1024}, "h100": {"precision": "fp8", "framework": "te"}, "b200": {}}
    more = {"b200": {"model": "my model.yaml", "plan_options": "optimizer=lamb"}}
    jobs = [job(name, gpu_type=name, **facts, **more.get(name, {})) for name, facts in types.items()]
    run = clustersim.run(jobs, "fifo", cluster=small(tmp_path, text), memory_headroom=0.05, out="out")
    assert len(run.plans) == 3
    for plan in run.plans:
        prediction = replay_of(run, plan)
        assert prediction is not None
        assert not prediction.differs
        assert itertime([*shlex.split(prediction.command)[1:], "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["iteration_s"] == pytest.approx(plan.iteration_s, rel=1e-9)
        assert again["memory_gb"] == pytest.approx(plan.memory_gb, rel=1e-9)
    for changed, words in (
        ("extends: llama3-8b\nlayers: 12\n", "s with today's files"),
        ("", "holds nothing"),
    ):
        Path("my model.yaml").write_text(changed)
        assert main(["explain", "out", "--job", "b200"]) == 0
        assert words in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("system", ["dgx-a100-80gb", "dgx-h100", "dgx-a800-80gb"])
@pytest.mark.parametrize("stated", [None, 2.5])
def test_a_gpu_hour_costs_the_same_at_every_door(
    system: str, stated: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The price that is stated, else the system's, else vTrain's; with what says so."""
    price = stated or load_system(system).usd_per_gpu_hour or 5.0
    option = [] if stated is None else ["--price", str(stated)]
    subject = ["--model", "llama3-8b", "--system", system, "--gpus", "8", "--global-batch", "8"]
    documents = []
    for command in (["search", "--tokens", "1e9"], ["cost", "--tokens", "1e9"]):
        assert itertime([*command, *subject, *option, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    searched, cost = documents
    settings = {} if stated is None else {"price_usd_per_gpu_h": stated}
    run = clustersim.run([job("a", gpus=8)], "fifo", cluster="n1g8", system=system, **settings)
    prices = searched["usd_per_gpu_hour"], cost["price"], run.summary["price_usd_per_gpu_h"]
    assert prices == (price, price, price)
    origins = [searched["price_from"], cost["price_from"], run.manifest["price_from"]]
    names = [origin.replace("price_usd_per_gpu_h", "--price") for origin in origins]
    assert len(set(names)) == 1
    hours = sum(one.gpu_seconds for one in run.jobs) / 3600
    assert run.summary["cost_usd"] == pytest.approx(hours * price)
    best = searched["plans"][0]
    assert (best["days"], best["training_usd"]) == pytest.approx(
        (cost["predicted"]["days"], cost["predicted"]["cost_usd"]), rel=1e-9
    )


def test_the_fleet_of_the_docs() -> None:
    cluster = load_cluster(str(FLEET))
    assert cluster.gpu_types == ("a100", "h100", "b200")
    assert FLEET.read_text() in (ROOT / "docs" / "clusters.md").read_text()


CLUSTERS = TEXTS["clusters of several GPU types"]


def test_a_file_states_clusters(tmp_path: Path) -> None:
    fleet = load_cluster(small(tmp_path, CLUSTERS))
    assert fleet.gpu_types == ("east/h100", "west/h100", "west/a100")
    assert [(member.name, member.first, member.cluster.shape) for member in fleet.members] == [
        ("east", 0, "n2g8"), ("west", 2, "n1g8+n2g8"),
    ]  # fmt: skip
    assert fleet.members[1].cluster.gpu_types == ("h100", "a100")
    assert cluster_of(fleet.document()) == fleet
    assert load_cluster(small(tmp_path)).members == ()


# Routes to the clusters of a fleet


ROUTED_FLEET = TEXTS["clusters of one GPU type"]
EAST, WEST = (f"groups: [{{name: new, gpu_type: h100, nodes: {nodes}}}]" for nodes in (2, 3))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("fleet")
    for name, text in (("fleet", ROUTED_FLEET), ("east", EAST), ("west", WEST)):
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
