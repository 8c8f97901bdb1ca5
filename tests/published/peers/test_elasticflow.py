"""ElasticFlow's artifact on its own trace: deadlines met, and job completion times."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clustersim.scheduler import Scheduler
from experiments.elasticflow_traces import THREE_QUEUES, AdmittedElasticEdf, ElasticEdf
from experiments.peers.elasticflow import beside, simulated, speeds
from tests.published.peers.doubles import LateTiresias


@pytest.fixture(scope="module")
def table(shared_dir: Path, shared_reference: Path) -> Iterator[Path]:
    with speeds(shared_dir) as path:
        yield path


@pytest.mark.parametrize(
    ("there", "policy", "in_time"),
    [("edf", ElasticEdf, (23, 23)), ("edf-accessctrl", AdmittedElasticEdf, (81, 80))],
)
def test_elastic_edf_ends_jobs_when_the_artifact_does(
    there: str, policy: type[Scheduler], in_time: tuple[int, int], shared_dir: Path, table: Path
) -> None:
    """Its simulator rounds times to seconds. With admission one job more is admitted; all of these meet their
    deadlines, here and there.
    """
    row = beside(shared_dir, there, "ours", simulated(shared_dir, table, policy, {}, "none"))
    assert row.in_time == in_time
    assert (row.near, row.of) == (185, 195) if there == "edf" else row.near >= 0.95 * row.of
    assert abs(row.difference) < 2e-3


def test_tiresias_with_late_falls_meets_the_deadlines_of_dlas(shared_dir: Path, table: Path) -> None:
    """With the artifact's overheads and without promotion: 56 of 195, as it prints."""
    run = simulated(shared_dir, table, LateTiresias, THREE_QUEUES, "elasticflow")
    late = beside(shared_dir, "dlas-gpu", "ours", run)
    assert late.in_time == (56, 56)
    assert abs(late.difference) < 3e-3
