"""A planner whose iteration times a test can work out in its head."""

from collections.abc import Collection
from dataclasses import dataclass


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
