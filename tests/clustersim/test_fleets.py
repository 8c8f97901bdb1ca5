"""Fleets: types, precisions, frameworks and prices of nodes, and several clusters in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

import clustersim
from clustersim.cluster import cluster_of, load_cluster
from itertime.spec import load_system
from tests.places import ROOT
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


def test_the_fleet_of_the_docs() -> None:
    cluster = load_cluster(str(FLEET))
    assert cluster.gpu_types == ("a100", "h100", "b200")
    assert FLEET.read_text() in (ROOT / "docs" / "clusters.md").read_text()


CLUSTERS = """
clusters:
  - name: east
    groups:
      - {name: new, gpu_type: h100, nodes: 2}
  - name: west
    groups:
      - {name: new, gpu_type: h100, nodes: 1}
      - {name: old, gpu_type: a100, nodes: 2}
"""


def test_a_file_states_clusters(tmp_path: Path) -> None:
    fleet = load_cluster(small(tmp_path, CLUSTERS))
    assert fleet.gpu_types == ("east/h100", "west/h100", "west/a100")
    assert [(member.name, member.first, member.cluster.shape) for member in fleet.members] == [
        ("east", 0, "n2g8"), ("west", 2, "n1g8+n2g8"),
    ]  # fmt: skip
    assert fleet.members[1].cluster.gpu_types == ("h100", "a100")
    assert cluster_of(fleet.document()) == fleet
    assert load_cluster(small(tmp_path)).members == ()
