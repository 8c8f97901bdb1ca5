"""Each simple policy's rule, on cases small enough to do by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.scheduler import Scheduler
from clustersim.testing import simulate
from policies.edf import Edf
from policies.fifo import Fifo
from policies.fifo_skip import FifoSkip
from policies.sjf import Sjf
from policies.srtf import Srtf
from tests.builders import rigid, times
from traces.job import Job

# The same four jobs on 4 GPUs: `a` runs, `big` heads the queue, `small` and `short` would fit beside `a`.
QUEUE = [rigid("a", 0, 3, 100), rigid("big", 1, 4, 50), rigid("small", 2, 1, 60), rigid("short", 3, 1, 10)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # the head of the queue blocks: `small` and `short` wait for `big` although a GPU is idle
        (Fifo, {"a": (0, 100), "big": (100, 150), "small": (150, 210), "short": (150, 160)}),
        # `big` is passed over by `small`, then by `short`
        (FifoSkip, {"a": (0, 100), "small": (2, 62), "short": (62, 72), "big": (100, 150)}),
        # 50 < 60 s keeps `big` ahead of `small`; `short` comes first of all
        (Sjf, {"a": (0, 100), "short": (3, 13), "big": (100, 150), "small": (150, 210)}),
        # `big` preempts `a`, `short` preempts `big`, which leaves room for `small` until `short` is done
        (Srtf, {"a": (0, 160), "big": (1, 61), "short": (3, 13), "small": (3, 111)}),
    ],
)
def test_one_queue_four_ways(
    policy: Callable[[], Scheduler], expected: dict[str, tuple[float, float]]
) -> None:
    outcome = simulate(QUEUE, policy(), "n1g4", placement="any")
    assert times(outcome) == expected


def test_fifo_ignores_length_and_deadline() -> None:
    jobs = [rigid("long", 0, 1, 100), rigid("urgent", 1, 1, 1, 3)]
    assert times(simulate(jobs, Fifo(), "n1g1")) == {"long": (0, 100), "urgent": (100, 101)}


def test_sjf_does_not_preempt() -> None:
    jobs = [rigid("long", 0, 1, 100), rigid("short", 1, 1, 1), rigid("shorter", 2, 1, 0.5)]
    assert times(simulate(jobs, Sjf(), "n1g1")) == {
        "long": (0, 100),
        "shorter": (100, 100.5),
        "short": (100.5, 101.5),
    }


def test_sjf_judges_by_stated_work_where_there_is_some() -> None:
    table = {("m", 8): {1: 2.0, 2: 4.0}}
    stated = [Job(str(n), 0, model="m", global_batch=8, gpus=1, iterations=n) for n in (30.0, 10.0, 20.0)]
    outcome = simulate(stated, Sjf(), "n1g1", table=table)
    assert [record.job_id for record in outcome.records] == ["10.0", "20.0", "30.0"]


def test_srtf_lets_a_job_finish_that_has_less_left() -> None:
    jobs = [rigid("old", 0, 1, 100), rigid("new", 60, 1, 50)]
    outcome = simulate(jobs, Srtf(), "n1g1")
    assert times(outcome) == {"old": (0, 100), "new": (100, 150)}
    assert outcome.of("old").preemptions == 0


def test_srtf_ties_go_to_the_earlier_submission() -> None:
    outcome = simulate([rigid("first", 0, 1, 50), rigid("second", 10, 1, 40)], Srtf(), "n1g1")
    assert times(outcome) == {"first": (0, 50), "second": (50, 90)}


def test_edf_preempts_by_deadline_and_serves_those_without_one_last() -> None:
    jobs = [
        rigid("never", 0, 1, 10),
        rigid("late", 1, 1, 10, 100),
        rigid("soon", 2, 1, 10, 20),
        rigid("tie", 2, 1, 10, 100),
    ]
    outcome = simulate(jobs, Edf(), "n1g1")
    assert times(outcome) == {"soon": (2, 12), "late": (1, 21), "tie": (21, 31), "never": (0, 40)}
    assert outcome.of("never").preemptions == 1


def test_edf_passes_over_what_does_not_fit() -> None:
    jobs = [
        rigid("wide", 0, 4, 10, 50),
        rigid("wider", 1, 8, 10, 60),
        rigid("small", 2, 4, 5),
    ]
    assert times(simulate(jobs, Edf(), "n1g8")) == {"wide": (0, 10), "small": (2, 7), "wider": (10, 20)}


def one_server(jobs: list[Job], policy: Scheduler) -> float:
    outcome = simulate(jobs, policy, "n1g1")
    return sum(record.jct_s or 0.0 for record in outcome.records)


traces = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=12)


@given(traces)
@settings(deadline=None)
def test_on_one_gpu_srtf_is_optimal(shapes: list[tuple[int, int]]) -> None:
    """Schrage 1968: no policy has a smaller mean completion time on one server."""
    jobs = [rigid(str(i), float(at), 1, float(run_s)) for i, (at, run_s) in enumerate(shapes)]
    best = one_server(jobs, Srtf())
    for other in (Fifo(), FifoSkip(), Sjf(), Edf()):
        assert best <= one_server(jobs, other)


@given(traces, st.integers(0, 10**6))
@settings(deadline=None)
def test_on_one_gpu_edf_keeps_every_deadline_that_can_be_kept(
    shapes: list[tuple[int, int]], seed: int
) -> None:
    """Liu and Layland 1973: here some schedule (in random order of priority) keeps them, so EDF must."""
    order = list(range(len(shapes)))
    Random(seed).shuffle(order)

    class Fixed(Edf):
        def schedule(self, state):  # type: ignore[no-untyped-def]
            proposal = state.proposal()
            proposal.run_by(rank)
            return proposal

    def rank(view):  # type: ignore[no-untyped-def]
        return order[int(view.id)]

    jobs = [rigid(str(i), float(at), 1, float(run_s)) for i, (at, run_s) in enumerate(shapes)]
    finishes = {record.job_id: record.finish_s for record in simulate(jobs, Fixed(), "n1g1").records}
    due = [rigid(j.job_id, j.submit_s, 1, j.duration_s or 0.0, finishes[j.job_id]) for j in jobs]
    outcome = simulate(due, Edf(), "n1g1")
    assert all(record.deadline_met for record in outcome.records)


def test_truths_from_the_log_are_noted() -> None:
    from clustersim.runs import run

    for name, asked in (("fifo", False), ("fifo-skip", False), ("edf", False), ("sjf", True), ("srtf", True)):
        result = run([rigid("a", 0, 1, 10)], name, cluster="n1g8")
        assert result.manifest["oracle_used"] is asked, name
