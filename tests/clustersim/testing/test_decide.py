"""`decide`: one decision of a policy, in a situation set up by hand."""

from __future__ import annotations

import pytest

from clustersim.errors import PolicyError
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import decide
from policies.elasticflow import ElasticFlow
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import rigid
from traces.job import Job

TABLE = {("gpt", 64): {1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5}}


def test_starts_in_order_of_submission() -> None:
    decision = decide(
        Fifo(),
        pending=[rigid("b", 2.0, 4, 100), rigid("a", 1.0, 8, 100), rigid("c", 3.0, 8, 100)],
        cluster="2x8",
    )
    assert list(decision.starts) == ["a", "b"]
    assert (decision.waits, decision.now_s) == (("c",), 3.0)
    assert str(decision) == "t=3 s: start a on 8 GPUs (node 0); start b on 4 GPUs (node 1); c waits"
    assert [decision.gpus(name) for name in "abc"] == [8, 4, 0]


def test_preempts_and_knows_progress() -> None:
    """At t=70 s `old` has 30 s left, less than `new`; at t=60 s it has 40 s left, more."""
    scene = {"running": [rigid("old", 0, 8, 100)], "cluster": "n1g8"}
    assert decide(Srtf(), pending=[rigid("new", 70.0, 8, 35.0)], **scene).stops == ()  # type: ignore[arg-type]
    before = decide(Srtf(), pending=[rigid("new", 60.0, 8, 35.0)], **scene)  # type: ignore[arg-type]
    assert (before.stops, list(before.starts)) == (("old",), ["new"])
    assert before.gpus("old") == 0


def test_elastic_jobs_grow_from_the_size_they_have() -> None:
    gpt = Job("gpt", 0.0, model="gpt", global_batch=64, iterations=50_000.0, gpus=2)
    decision = decide(ElasticFlow(), running=[(gpt, 2)], cluster="n1g8", table=TABLE, now_s=10.0)
    assert decision.gpus("gpt") == 8
    assert str(decision) == "t=10 s: resize gpt from 2 to 8 GPUs (node 0)"


def test_declined_jobs() -> None:
    gpt = Job("gpt", 0.0, model="gpt", global_batch=64, iterations=50_000.0, gpus=2, deadline_s=60.0)
    decision = decide(ElasticFlow(), pending=[gpt], cluster="n1g8", table=TABLE)
    assert decision.declined == ("gpt",)
    assert str(decision) == "t=0 s: decline gpt"


class Moves(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in list(state.running):
            proposal.stop(view)
            proposal.start(view, on=((1, view.gpus),))
        proposal.wake_at = state.now + 5.0
        return proposal


def test_moves_and_wake_ups() -> None:
    decision = decide(Moves(), running=[rigid("a", 0, 2, 100)], cluster="2x8")
    assert decision.moves == {"a": ((1, 2),)}
    assert str(decision) == "t=0 s: move a to 2 GPUs (node 1); wake up at t=5 s"


class Nonsense(Scheduler):
    def schedule(self, state: State) -> Proposal:
        return 7  # type: ignore[return-value]


class Impossible(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in state.pending:
            proposal.start(view, gpus=3)
        return proposal


class Hesitates(Fifo):
    def admit(self, job: JobView, state: State) -> bool:
        return "maybe"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Nonsense, "schedule returned 7, not a proposal"),
        (Impossible, r"start\(job a, gpus=3\): it can run on 8 GPUs \(.*test_decide\.py:\d+\)"),
        (Hesitates, r"admit\(job a\) returned 'maybe'"),
    ],
)
def test_broken_policies(policy: type[Scheduler], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        decide(policy(), pending=[rigid("a", 0, 8, 100)], cluster="1x8")
