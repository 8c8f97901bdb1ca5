"""Quotas: what a policy sees of them, and which ones are refused."""

from __future__ import annotations

from clustersim import run
from clustersim.scheduler import Proposal, Scheduler, State
from policies.fifo import Fifo
from traces.job import Job


class Watching(Scheduler):
    """First come, first served, noting at each call what each tenant holds."""

    seen: list[tuple[float, int, int, int]]

    def __init__(self) -> None:
        type(self).seen = []

    def schedule(self, state: State) -> Proposal:
        self.seen.append((state.now, state.used("red"), state.used("blue"), state.used("green")))
        proposal = Fifo().schedule(state)
        assert state.used("red") == self.seen[-1][1], "a draft is not yet reality"
        assert (state.quota("red"), state.quota("green"), dict(state.quotas)) == (4, 0, {"red": 4})
        return proposal


def test_a_policy_sees_quotas_and_what_every_tenant_holds() -> None:
    jobs = [
        Job("a", 0.0, "red", gpus=4, duration_s=10.0),
        Job("b", 1.0, "red", gpus=2, duration_s=4.0),
        Job("c", 2.0, "blue", gpus=1, duration_s=20.0, priority=3),
    ]
    run(jobs, Watching, cluster="n1g8", overheads=None, quotas={"red": 4})
    assert Watching.seen == [
        (0, 0, 0, 0), (1, 4, 0, 0), (2, 6, 0, 0), (5, 4, 1, 0), (10, 0, 1, 0), (22, 0, 0, 0)
    ]  # fmt: skip
