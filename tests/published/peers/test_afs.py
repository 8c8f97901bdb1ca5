"""AFS as another group wrote it: the same GPUs for every job."""

from __future__ import annotations

from pathlib import Path

from experiments.peers.afs import rows


def test_every_division_is_equal(shared_reference: Path) -> None:
    divisions, jobs = rows(shared_reference / "peers")
    assert (divisions.equal, divisions.of) == (150, 150)
    assert (jobs.equal, jobs.of) == (1176, 1176)
