"""A fleet: several clusters in one file. A job runs within one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cluster import cluster_of, load_cluster
from clustersim.records import ALLOCATES, Run
from itertime.errors import UserError
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
    assert [(part.name, part.first, part.cluster.shape) for part in fleet.parts] == [
        ("east", 0, "n2g8"), ("west", 2, "n1g8+n2g8"),
    ]  # fmt: skip
    assert fleet.parts[1].cluster.gpu_types == ("h100", "a100")
    assert cluster_of(fleet.document()) == fleet
    assert load_cluster(written("groups: [{name: a, gpu_type: h100, nodes: 1}]")).parts == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: []", "key 'groups' is missing"),
        ("clusters: 3", "clusters=3"),
        ("clusters: [3]", "clusters[0]: is int"),
        ("clusters: [{name: a}]", "key 'groups' is missing"),
        ("clusters: [{name: a, groups: []}]", "groups is empty"),
        ("clusters: [{name: a/b, groups: [{name: g, gpu_type: h100, nodes: 1}]}]", "must not contain /"),
        (
            "clusters: [{name: a, groups: [{name: g, gpu_type: b/c, system: dgx-h100, nodes: 1}]}]",
            "contain /",
        ),
        ("clusters: [{name: a, groups: [{name: g, gpu_type: h10, nodes: 1}]}]", "cluster a: groups[0]"),
        ("clusters: [{name: a, colour: red, groups: [{name: g, gpu_type: h100, nodes: 1}]}]", "colour"),
        ("groups: [{name: g, gpu_type: h100, nodes: 1}]\n" + FLEET, "keep one of the two"),
        (FLEET.replace("west", "east"), "another cluster has this name"),
    ],
)
def test_bad_files_are_refused(written: Written, text: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        load_cluster(written(text))
    assert words in str(refused.value)


def test_a_job_asks_for_a_cluster_a_type_or_both(written: Written) -> None:
    jobs = [
        Job(name, 0.0, gpus=4, duration_s=10.0, gpu_type=asked)
        for name, asked in (("a", "west"), ("b", "h100"), ("c", "west/h100"), ("d", "a100"), ("e", "v100"))
    ]
    run = clustersim.run(jobs, "fifo", cluster=written(FLEET), overheads=None)
    assert broken_rules(run) == []
    held = {e.job_id: run.cluster.type_of(e.placement[0][0]) for e in run.events if e.event in ALLOCATES}
    assert held == {"a": "west/h100", "b": "east/h100", "c": "west/h100", "d": "west/a100"}
    assert "asks for GPU type v100" in run.jobs[-1].reason


def test_a_throughput_table_names_types_without_clusters(written: Written, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("model,global_batch,gpus,iterations_per_s,gpu_type\nm,8,8,1,a100\nm,8,8,4,h100\n")
    jobs = [Job(f"j{i}", 0.0, model="m", global_batch=8, gpus=8, iterations=40.0) for i in range(4)]
    run = clustersim.run(jobs, "fifo", cluster=written(FLEET), table=str(table), overheads=None,
                         type_slowdown=None)  # fmt: skip
    assert [record.finish_s for record in run.jobs] == [10.0, 10.0, 10.0, 40.0]


@pytest.mark.parametrize("policy", ["gavel-max-min", "muri"])
def test_a_job_that_waits_for_a_round_does_not_move_back_and_forth(policy: str, written: Written) -> None:
    """Both clusters have free GPUs and are within a round: the job that comes waits for one of them."""
    fleet = "clusters:\n" + "".join(
        f"  - name: {name}\n    groups:\n      - {{name: g, gpu_type: h100, nodes: 1}}\n" for name in "ab"
    )
    jobs = [
        Job("x", 0.0, gpus=2, duration_s=2000.0, gpu_type="a"),
        Job("y", 1.0, gpus=2, duration_s=2000.0, gpu_type="b"),
        Job("z", 50.0, gpus=2, duration_s=100.0),
    ]
    run = clustersim.run(
        jobs, policy, cluster=written(fleet), overheads=None, routing={"by": "first-fit", "move": True}
    )
    assert {job.state for job in run.jobs} == {"finished"}
    notes = [event.detail for event in run.events if event.job_id == "z" and event.event == "note"]
    assert len([note for note in notes if note.startswith("moved")]) <= 1
    assert broken_rules(run) == []


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
