"""Each simple policy's rule, on cases small enough to do by hand."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from policies.drf import Drf
from policies.edf import Edf
from policies.fifo import Fifo
from policies.fifo_skip import FifoSkip
from policies.quota import Quota
from policies.round_robin import RoundRobin
from policies.sjf import Sjf
from policies.srtf import Srtf
from tests.builders import drawn_jobs, rigid
from tests.effort import examples
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


# Policies that share the cluster over time or between tenants


# Turns


@given(st.integers(2, 7), st.integers(1, 40))
@settings(max_examples=examples(30), deadline=None)
def test_between_two_turns_every_other_job_has_one(jobs: int, quantum_s: int) -> None:
    long = [rigid(str(i), 0, 1, 6 * quantum_s) for i in range(jobs)]
    outcome = simulate(long, RoundRobin(quantum_s=quantum_s), "n1g1")
    turns = [name for _, event, name, _ in outcome.log() if event in ("start", "restart")]
    assert turns == [str(i) for i in range(jobs)] * 6


# DRF


def running_at_0(outcome: Outcome) -> Counter[str]:
    tenant = {j.job_id: j.tenant for j in outcome.case.jobs}
    starts = (
        (tenant[name], gpus) for time_s, event, name, gpus in outcome.log() if (time_s, event) == (0, "start")
    )
    held: Counter[str] = Counter()
    for name, gpus in starts:
        held[name] += gpus
    return held


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 30), st.integers(1, 5)), min_size=1),
)
@settings(max_examples=examples(60), deadline=None)
def test_drf_is_weighted_max_min(tenants: dict[str, tuple[int, int]]) -> None:
    """With jobs of one GPU: a tenant that has less than it requested has, to within a GPU, no smaller a share
    over weight than anybody else.
    """
    jobs = [rigid(f"{t}{i}", 0, 1, 10, tenant=t) for t, (asked, _) in tenants.items() for i in range(asked)]
    weights = {t: float(weight) for t, (_, weight) in tenants.items()}
    held = running_at_0(simulate(jobs, Drf(weights=weights), "n4g4"))
    assert sum(held.values()) == min(16, len(jobs))
    for poor, (asked, _) in tenants.items():
        if held[poor] < asked:
            assert all((held[t] - 1) / weights[t] <= held[poor] / weights[poor] + 1e-9 for t in tenants)


# Quotas


class WatchedQuota(Quota):
    """Checks the promise at every decision."""

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        before, after = Counter[str](), Counter[str]()
        for view in state.running:
            before[view.tenant] += view.gpus
        for view in proposal.running():
            after[view.tenant] += proposal.gpus(view)
        for view in state.running:
            assert proposal.gpus(view) or before[view.tenant] > state.quota(view.tenant), "within its quota"
        for view in state.pending:
            entitled = after[view.tenant] + view.requested <= state.quota(view.tenant)
            assert proposal.gpus(view) or not entitled, "its quota has room for it"
            assert proposal.gpus(view) or not proposal.fits(view.requested), "idle GPUs are lent"
        return proposal


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_the_promise_of_quotas(seed: int) -> None:
    """A tenant within its quota is served at once and never stopped; nothing idles that could be lent."""
    random = Random(seed)
    quotas = {"a": random.randint(0, 8), "b": random.randint(1, 6), "c": random.randint(0, 2)}
    jobs = drawn_jobs(seed, random.randint(5, 40), 80, (1, 1, 2, 3, 4, 8), (1, 300), tenant="abcd")
    run = clustersim.run(jobs, WatchedQuota, cluster="n4g4", overheads=None, placement="any", quotas=quotas)
    assert all(j.state == "finished" for j in run.jobs)
