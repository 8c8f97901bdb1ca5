"""The GPU type that a job asks for: binding on a cluster of several types, else informational."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.rundir import write_run
from clustersim.speed import CannotRun, speed_for
from policies.fifo_skip import FifoSkip
from policies.srtf import Srtf
from tests.builders import gpt3, rigid
from traces import write_trace

FILE = """
groups:
  - {name: old, gpu_type: a100, nodes: 2}
  - {name: new, gpu_type: h100, nodes: 1}
"""
GROUPS = (NodeGroup("old", 2, 8, "a100", "dgx-a100-80gb"), NodeGroup("new", 1, 8, "h100", "dgx-h100"))
CLUSTER = Cluster.of(GROUPS)


@pytest.mark.parametrize("policy", [FifoSkip, Srtf])
def test_a_job_runs_on_its_type_alone(policy: type, tmp_path: Path) -> None:
    """All jobs would take the H100s first; those that ask for A100s never do, and those that ask for H100s
    wait for them while A100s are idle.
    """
    (tmp_path / "two.yaml").write_text(FILE)
    jobs = [
        *(replace(gpt3(f"h{i}", float(i), 8, 50), gpu_type="h100") for i in range(3)),
        *(replace(gpt3(f"a{i}", float(i), 8, 50), gpu_type="a100") for i in range(3)),
        rigid("log", 2.5, 8, 60, gpu_type="h100"),
        rigid("none", 3.0, 8, 60, gpu_type="t4"),
    ]
    write_trace(jobs, tmp_path / "t.csv")
    run = clustersim.run(tmp_path / "t.csv", policy, cluster=str(tmp_path / "two.yaml"))
    on = {(e.job_id[0], CLUSTER.type_of(e.placement[0][0])) for e in run.events if e.placement}
    assert on == {("h", "h100"), ("a", "a100"), ("l", "h100")}
    ends = {job.job_id: (job.state, job.reason) for job in run.jobs}
    assert ends.pop("none") == ("rejected", "asks for GPU type t4, the cluster has a100, h100")
    assert set(ends.values()) == {("finished", "")}
    write_run(tmp_path / "run", run)
    assert not [finding for finding in check_run_folder(tmp_path / "run") if finding.violations]


def test_offers_of_equal_jobs_that_ask_for_different_types_are_not_confused() -> None:
    speed = speed_for(CLUSTER, "3d")
    job = gpt3("a", 0, 8, 100)
    old, new = replace(job, gpu_type="a100"), replace(job, gpu_type="h100")
    for _ in range(2):
        assert [offer.gpu_type for offer in speed.offers(job)] == ["h100", "a100"]
        assert [offer.gpu_type for offer in speed.offers(old)] == ["a100"]
        assert [offer.gpu_type for offer in speed.offers(new)] == ["h100"]
    assert speed.curve_on(old, "a100") == speed.curve_on(job, "a100")
    with pytest.raises(CannotRun, match="asks for GPU type a100, not h100"):
        speed.curve_on(old, "h100")
    with pytest.raises(CannotRun, match="h100: asks for 16 GPUs, the cluster has 8"):
        speed.offers(replace(new, gpus=16))
