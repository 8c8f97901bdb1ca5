from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of published job logs; skips the test where it is missing."""
    shared = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[3] / "shared"))
    folder = shared / "data" / "traces"
    if not folder.is_dir():
        pytest.skip(f"no published job logs at {folder}")
    return folder


@dataclass(frozen=True)
class FakeRun:
    iteration_s: float


class FakePlanner:
    """Iteration time = global batch / GPUs; nothing runs on more than `limit` GPUs."""

    def __init__(self, limit: int = 10**6):
        self.limit = limit

    def curve(
        self, model: object, global_batch: int, counts: Collection[int], seq_len: int | None = None
    ) -> dict[int, FakeRun]:
        return {n: FakeRun(global_batch / n) for n in counts if n <= self.limit}


@pytest.fixture(scope="session")
def fake_planner() -> type[FakePlanner]:
    return FakePlanner
