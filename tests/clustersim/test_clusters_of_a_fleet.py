"""A fleet: several clusters in one file. A job runs within one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cluster import cluster_of, load_cluster
from clustersim.records import Run
from traces.job import Job

FLEET = """
clusters:
  - name: east
    groups:
      - {name: new, gpu_type: h100, nodes: 2}
  - name: west
    groups:
      - {name: new, gpu_type: h100, nodes: 1}
      - {name: old, gpu_type: a100, nodes: 2}
"""
Written = Callable[[str], str]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str) -> str:
        path = tmp_path / "fleet.yaml"
        path.write_text(text)
        return str(path)

    return write


def broken_rules(run: Run) -> list[str]:
    return [v.text for finding in check_run(run) for v in finding.violations]


def test_a_file_states_clusters(written: Written) -> None:
    fleet = load_cluster(written(FLEET))
    assert fleet.gpu_types == ("east/h100", "west/h100", "west/a100")
    assert [(part.name, part.first, part.cluster.shape) for part in fleet.members] == [
        ("east", 0, "n2g8"), ("west", 2, "n1g8+n2g8"),
    ]  # fmt: skip
    assert fleet.members[1].cluster.gpu_types == ("h100", "a100")
    assert cluster_of(fleet.document()) == fleet
    assert load_cluster(written("groups: [{name: a, gpu_type: h100, nodes: 1}]")).members == ()


def test_nodes_down_from_the_start_count_where_no_job_has_arrived(written: Written) -> None:
    """The node of a is down when the first job goes to b; usage.csv says so."""
    fleet = "clusters:\n" + "".join(
        f"  - name: {name}\n    groups:\n      - {{name: g, gpu_type: h100, nodes: 1}}\n" for name in "ab"
    )
    run = clustersim.run(
        [Job("x", 800.0, gpus=2, duration_s=1000.0, gpu_type="b")], "fifo", cluster=written(fleet),
        overheads=None, routing={"by": "first-fit"},
        calendar=[{"at_s": 500, "maintenance": "0", "for_s": 400}],
    )  # fmt: skip
    assert broken_rules(run) == []
    assert [(row.time_s, row.down) for row in run.snapshots] == [(800, 8), (900, 0), (1800, 0)]
