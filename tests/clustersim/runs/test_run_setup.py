"""What a simulation needs beside its jobs, and what settings resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim import RunConfig, RunSetup, Simulation, UserError
from clustersim.cluster import Cluster, load_cluster
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.runs import setup_of
from clustersim.speed import SpeedOnOneType
from policies.fifo import Fifo
from traces.job import Job

CLUSTER = Cluster.parse("n1g8")


def test_three_parts_are_enough() -> None:
    setup = RunSetup(cluster=CLUSTER, scheduler=Fifo(), speed=SpeedOnOneType(CLUSTER, None))
    assert setup.overheads == Overheads()
    assert setup.placer.name == "pack"
    recorder = MemoryRecorder(CLUSTER)
    ran = Simulation([Job("a", 5.0, gpus=8, duration_s=60.0)], setup, recorder).run()
    assert ran is recorder
    assert recorder.jobs[0].finish_s == recorder.end_s


def test_settings_are_resolved_once() -> None:
    config = RunConfig.make(
        policy="srtf", cluster="n2g8", overheads=None, quotas={"a": 16}, failures={}, until_s=9.0, seed=3
    )
    setup = setup_of(config)
    assert (setup.cluster.gpus, setup.planner, setup.placer.name) == (16, "3d", "pack")
    assert setup.overheads == Overheads.none()
    assert setup.failures is not None
    assert (setup.quotas, setup.until_s, setup.seed) == ({"a": 16}, 9.0, 3)
    other = setup_of(config, Fifo, CLUSTER.parse("n4g8"))
    assert (type(other.scheduler), other.cluster.gpus) == (Fifo, 32)


def test_a_policy_for_one_gpu_type_refuses_a_mixed_cluster(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        "groups:\n  - {name: old, gpu_type: v100, nodes: 2}\n  - {name: new, gpu_type: a100, nodes: 4}\n"
    )
    cluster = load_cluster(str(path), "dgx-a100-80gb", None)
    scheduler = setup_of(RunConfig(policy="edf-admission", cluster="n2g8")).scheduler
    with pytest.raises(UserError, match="plans with one GPU type, the cluster has"):
        RunSetup(cluster=cluster, scheduler=scheduler, speed=SpeedOnOneType(CLUSTER, None))
