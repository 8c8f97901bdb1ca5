"""ElasticFlow's artifact on its own trace: deadlines met, and job completion times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clustersim.scheduler import Scheduler
from experiments.elasticflow_traces import THREE_QUEUES, AdmittedElasticEdf, ElasticEdf
from experiments.peers.elasticflow import Deadlines, beside, simulated, speeds
from tests.published.peers.doubles import LateTiresias


@pytest.fixture(scope="module")
def table(shared_dir: Path, shared_reference: Path) -> Iterator[Path]:
    with speeds(shared_dir) as path:
        yield path


def compared(
    shared: Path, table: Path, there: str, policy: type[Scheduler], overheads: str, **params: Any
) -> Deadlines:
    return beside(shared, there, "ours", simulated(shared, table, policy, params, overheads))


def test_elastic_edf_ends_jobs_when_the_artifact_does(shared_dir: Path, table: Path) -> None:
    """Its simulator rounds times to seconds."""
    row = compared(shared_dir, table, "edf", ElasticEdf, "none")
    assert row.in_time == (23, 23)
    assert (row.near, row.of) == (185, 195)
    assert abs(row.difference) < 2e-3


def test_admitted_jobs_of_elastic_edf_end_when_the_artifacts_do(shared_dir: Path, table: Path) -> None:
    """One job more is admitted; all meet their deadlines, here and there."""
    row = compared(shared_dir, table, "edf-accessctrl", AdmittedElasticEdf, "none")
    assert row.in_time == (81, 80)
    assert row.near >= 0.95 * row.of
    assert abs(row.difference) < 2e-3


def test_tiresias_with_late_falls_meets_the_deadlines_of_dlas(shared_dir: Path, table: Path) -> None:
    """With the artifact's overheads and without promotion: 56 of 195, as it prints."""
    late = compared(shared_dir, table, "dlas-gpu", LateTiresias, "elasticflow", **THREE_QUEUES)
    assert late.in_time == (56, 56)
    assert abs(late.difference) < 3e-3
