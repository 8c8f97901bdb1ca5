"""`decide`: one decision of a policy, in a situation set up by hand."""

from __future__ import annotations

from typing import Any

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
OLD = {"running": [rigid("old", 0, 8, 100)], "cluster": "n1g8"}


def gpt(**more: Any) -> Job:
    return Job("gpt", 0.0, model="gpt", global_batch=64, iterations=50_000.0, gpus=2, **more)


class Moves(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in list(state.running):
            proposal.stop(view)
            proposal.start(view, on=((1, view.gpus),))
        proposal.wake_at = state.now + 5.0
        return proposal


@pytest.mark.parametrize(
    ("policy", "scene", "text"),
    [
        (
            Fifo(),
            {"pending": [rigid("b", 2, 4, 100), rigid("a", 1, 8, 100), rigid("c", 3, 8, 100)],
             "cluster": "2x8"},
            "t=3 s: start a on 8 GPUs (node 0); start b on 4 GPUs (node 1); c waits",
        ),
        # At t=70 s `old` has 30 s left, less than `new`; at t=60 s it has 40 s left, more.
        (Srtf(), {"pending": [rigid("new", 70, 8, 35)], **OLD}, "t=70 s: nothing changes; new waits"),
        (Srtf(), {"pending": [rigid("new", 60, 8, 35)], **OLD},
         "t=60 s: stop old; start new on 8 GPUs (node 0)"),
        (ElasticFlow(), {"running": [(gpt(), 2)], "now_s": 10.0, "table": TABLE},
         "t=10 s: resize gpt from 2 to 8 GPUs (node 0)"),
        (ElasticFlow(), {"pending": [gpt(deadline_s=60.0)], "table": TABLE}, "t=0 s: decline gpt"),
        (Moves(), {"running": [rigid("a", 0, 2, 100)], "cluster": "2x8"},
         "t=0 s: move a to 2 GPUs (node 1); wake up at t=5 s"),
    ],
)  # fmt: skip
def test_a_decision_in_words(policy: Scheduler, scene: dict[str, Any], text: str) -> None:
    assert str(decide(policy, **scene)) == text


def test_a_decision_states_the_gpus_of_each_job() -> None:
    decision = decide(Srtf(), pending=[rigid("new", 60.0, 8, 35.0)], **OLD)  # type: ignore[arg-type]
    assert (decision.stops, list(decision.starts), decision.now_s) == (("old",), ["new"], 60.0)
    assert [decision.gpus(name) for name in ("old", "new", "none")] == [0, 8, 0]
    moved = decide(Moves(), running=[rigid("a", 0, 2, 100)], cluster="2x8")
    assert (moved.moves, moved.gpus("a")) == ({"a": ((1, 2),)}, 2)


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
