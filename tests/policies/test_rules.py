"""Each simple policy's rule, on cases small enough to do by hand."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.scheduler import Scheduler
from clustersim.testing import simulate
from policies.edf import Edf
from policies.fifo import Fifo
from policies.fifo_skip import FifoSkip
from policies.sjf import Sjf
from policies.srtf import Srtf
from tests.builders import rigid
from traces.job import Job


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


ORACLES = {
    "fifo": False, "fifo-skip": False, "edf": False, "arena": False, "sjf": True, "srtf": True,
    "edf-admission": True, "chronus": True,
}  # fmt: skip


def test_truths_from_the_log_are_noted() -> None:
    for name, asked in ORACLES.items():
        result = clustersim.run([rigid("a", 0, 4, 10, 100)], name, cluster="n1g8")
        assert result.manifest["oracle_used"] is asked, name
