"""Laws of the engine that hold under every policy."""

from __future__ import annotations

from math import nextafter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.testing import Outcome, check_outcome, simulate
from policies.fifo import Fifo
from tests.builders import elastic, rigid
from tests.effort import examples
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}
CHARGED = Overheads(launch_s=10.0, plain_restart_s=20.0)


# Laws


class Restless(Scheduler):
    """Starts, stops, resizes and moves jobs at random."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def schedule(self, state: State) -> Proposal:
        proposal, random = state.proposal(), self.random
        for job in list(state.running):
            choice = random.random()
            if choice < 0.2:
                proposal.stop(job)
            elif choice < 0.6:
                proposal.resize(job, random.choice(job.sizes))
        for job in list(state.pending):
            if random.random() < 0.7:
                proposal.start(job, random.choice(job.sizes))
        if state.pending or state.running:
            proposal.wake_at = state.now + random.choice((0.3, 5.0, 40.0))
        return proposal


@st.composite
def mixed_traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from((0.0, 1.0, 7.3, 40.0)))
        gpus, work = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((0.5, 3.0, 33.3, 120.0)))
        jobs.append((elastic if draw(st.booleans()) else rigid)(f"j{i}", now, gpus, work))
    return jobs


charges = st.sampled_from((Overheads.none(), CHARGED, Overheads(launch_s=0.1, plain_restart_s=0.0)))


@given(mixed_traces(), st.integers(0, 10**6), charges, st.sampled_from(("pack", "spread", "any")))
@settings(max_examples=examples(150), deadline=None)
def test_every_run_keeps_the_books(jobs: list[Job], seed: int, charged: Overheads, placement: str) -> None:
    """Under a random policy: capacity, gangs, and sums of GPU-seconds, progress and overheads."""
    outcome = simulate(
        jobs, Restless(seed), "n2g4", table=TABLE, overheads=charged, placement=placement, until_s=20_000
    )
    if all(record.state == "finished" for record in outcome.records):
        check_outcome(outcome)
    assert all(record.wait_s >= 0 and record.lost_s >= 0 for record in outcome.records)
    for record in outcome.records:
        assert record.lost_s <= record.gpu_seconds + 1e-9, "at least one GPU is held while overhead is paid"


@given(mixed_traces(), st.integers(0, 10**6), charges)
@settings(max_examples=examples(40), deadline=None)
def test_two_runs_are_the_same(jobs: list[Job], seed: int, charged: Overheads) -> None:
    def once(rows: list[Job]) -> Outcome:
        return simulate(rows, Restless(seed), "n2g4", table=TABLE, overheads=charged, until_s=20_000)

    first, shuffled = once(jobs), list(jobs)
    Random(seed).shuffle(shuffled)
    for other in (once(jobs), once(shuffled)):
        assert first.events == other.events
        assert first.records == other.records


@given(st.floats(0, 1e9), st.floats(0.001, 1e7), st.floats(0.001, 1e7))
@settings(max_examples=examples(200), deadline=None)
def test_times_that_are_not_whole_survive_the_clock(submit_s: float, gap_s: float, run_s: float) -> None:
    """The event queue adds up differences; no job may start before it was submitted, nor finish early."""
    jobs = [rigid("a", submit_s, 1, run_s), rigid("b", submit_s + gap_s, 1, run_s)]
    outcome = simulate(jobs, Fifo(), "n1g1")
    a, b = outcome.of("a"), outcome.of("b")
    assert a.start_s == submit_s
    assert a.finish_s == pytest.approx(submit_s + run_s, rel=1e-15)
    assert b.start_s == pytest.approx(max(submit_s + gap_s, submit_s + run_s), rel=1e-15)
    assert b.start_s >= nextafter(b.submit_s, 0)
