"""Policies that share the cluster over time (round-robin, gandiva) or between tenants (drf, quota)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.scheduler import Proposal, State
from clustersim.testing import Outcome, simulate
from policies.drf import Drf
from policies.gandiva import Gandiva
from policies.quota import Quota
from policies.round_robin import RoundRobin
from tests.builders import rigid, times
from tests.effort import examples
from traces.job import Job

# Turns


def test_round_robin_takes_turns() -> None:
    """a 0-10, b 10-20, c 20-30 and done, a 30-40, b 40-45 and done, a 45-50."""
    jobs = [rigid("a", 0, 1, 25), rigid("b", 1, 1, 15), rigid("c", 2, 1, 10)]
    outcome = simulate(jobs, RoundRobin(quantum_s=10), "n1g1")
    assert times(outcome) == {"a": (0, 50), "b": (10, 45), "c": (20, 30)}


def test_a_new_job_goes_to_the_end_of_the_line() -> None:
    """Unlike under las: `new` comes after `b`, which waits already."""
    jobs = [rigid("a", 0, 1, 100), rigid("b", 0, 1, 100), rigid("new", 5, 1, 5)]
    assert times(simulate(jobs, RoundRobin(quantum_s=10), "n1g1"))["new"] == (20, 25)


@given(st.integers(2, 7), st.integers(1, 40))
@settings(max_examples=examples(30), deadline=None)
def test_between_two_turns_every_other_job_has_one(jobs: int, quantum_s: int) -> None:
    long = [rigid(str(i), 0, 1, 6 * quantum_s) for i in range(jobs)]
    outcome = simulate(long, RoundRobin(quantum_s=quantum_s), "n1g1")
    turns = [name for _, event, name, _ in outcome.log() if event in ("start", "restart")]
    assert turns == [str(i) for i in range(jobs)] * 6


def test_wide_jobs_get_their_turn() -> None:
    """It waits behind four small ones that never all end; at the end of their turn it is first in line."""
    jobs = [*(rigid(f"s{i}", 0, 1, 500) for i in range(4)), rigid("wide", 1, 4, 30)]
    assert times(simulate(jobs, RoundRobin(quantum_s=100), "n1g4"))["wide"] == (100, 130)


def test_gandiva_moves_small_jobs_together() -> None:
    """At 20 s two GPUs are free on each of two nodes: one of the small jobs moves, `wide` gets a node."""
    lengths = {"a": 100, "b": 20, "c": 100, "d": 20}
    jobs = [*(rigid(name, 0, 2, run_s) for name, run_s in lengths.items()), rigid("wide", 1, 4, 10)]
    outcome = simulate(jobs, Gandiva(quantum_s=1000), "n2g4")
    assert outcome.of("wide").start_s == 20
    assert sum(record.migrations for record in outcome.records) == 1
    assert sum(record.preemptions for record in outcome.records) == 0
    stays = simulate(jobs, RoundRobin(quantum_s=1000), "n2g4")
    assert stays.of("wide").start_s == 100
    assert sum(record.migrations for record in stays.records) == 0


def test_gandiva_makes_no_room_at_the_cost_of_jobs_that_have_just_got_theirs() -> None:
    """`a` takes nodes 0 to 2; 16 GPUs are free for the 16 of `b`, but not in one block of nodes."""
    jobs = [rigid("a", 0, 14, 50), rigid("b", 0, 16, 50)]
    outcome = simulate(jobs, Gandiva(), "n5g6", placement="buddy")
    assert [outcome.of(name).start_s for name in "ab"] == [0, 50]


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


def test_drf_gives_to_the_tenant_with_least() -> None:
    """`a` submits everything first, and still gets half."""
    jobs = [rigid(f"a{i}", 0, 1, 10, tenant="a") for i in range(8)] + [
        rigid(f"b{i}", 0, 1, 10, tenant="b") for i in range(8)
    ]
    assert running_at_0(simulate(jobs, Drf(), "n1g8")) == {"a": 4, "b": 4}
    assert running_at_0(simulate(jobs, Drf(weights={"b": 3}), "n1g8")) == {"a": 2, "b": 6}


def test_drf_waits_for_the_poorest() -> None:
    """`b` holds nothing and needs all GPUs: no other job starts, though GPUs are free."""
    jobs = [
        rigid("a0", 0, 2, 50, tenant="a"),
        rigid("b0", 1, 4, 10, tenant="b"),
        rigid("a1", 2, 1, 10, tenant="a"),
    ]
    assert times(simulate(jobs, Drf(), "n1g4")) == {"a0": (0, 50), "b0": (50, 60), "a1": (60, 70)}


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


def run_quota(jobs: list[Job], quotas: dict[str, int], policy: type[Quota] = Quota, cluster: str = "n1g8"):  # type: ignore[no-untyped-def]
    return clustersim.run(jobs, policy, cluster=cluster, overheads=None, placement="any", quotas=quotas)


def test_quota_is_lent_and_taken_back() -> None:
    """`b` borrows all 8 GPUs; `a` takes 4 of its own 6 back from the job that started last, and no more."""
    jobs = [rigid(f"b{i}", i, 2, 100, tenant="b") for i in range(4)] + [rigid("a", 10, 4, 50, tenant="a")]
    run = run_quota(jobs, {"a": 6, "b": 2})
    assert {j.job_id: (j.start_s, j.preemptions) for j in run.jobs} == {
        "a": (10, 0),
        "b0": (0, 0),
        "b1": (1, 0),
        "b2": (2, 1),
        "b3": (3, 1),
    }


def test_borrowing_takes_nothing_back() -> None:
    """`a` holds its 2; 4 more would be borrowed, and wait for GPUs that are free."""
    jobs = [
        rigid("b", 0, 6, 100, tenant="b"),
        rigid("a0", 1, 2, 100, tenant="a"),
        rigid("a1", 2, 4, 10, tenant="a"),
    ]
    run = run_quota(jobs, {"a": 2, "b": 2})
    assert {j.job_id: (j.start_s, j.preemptions) for j in run.jobs} == {
        "b": (0, 0), "a0": (1, 0), "a1": (100, 0),
    }  # fmt: skip


def test_idle_gpus_go_to_the_tenant_that_uses_least_of_its_quota() -> None:
    """`a` uses 4 of 4, `b` 1 of 2, `c` has none: the two GPUs left go to `b`, then `a`."""
    jobs = [
        rigid("a0", 0, 4, 100, tenant="a"),
        rigid("b0", 0, 1, 100, tenant="b"),
        rigid("x", 0, 3, 10, tenant="b"),
        rigid("c0", 1, 1, 100, tenant="c"),
        rigid("a1", 2, 1, 100, tenant="a"),
        rigid("b1", 3, 2, 100, tenant="b"),
    ]
    starts = {j.job_id: j.start_s for j in run_quota(jobs, {"a": 4, "b": 2}).jobs}
    assert starts == {"a0": 0, "b0": 0, "x": 0, "c0": 10 + 90, "a1": 10, "b1": 10}


def test_a_tenant_that_gave_back_counts_as_having_less() -> None:
    """`a` takes its 4 GPUs from `b`, which then uses least of its quota: the GPU left over is lent to
    `b1`.
    """
    jobs = [
        rigid("b0", 0, 5, 100, tenant="b"),
        rigid("c0", 1, 3, 100, tenant="c"),
        rigid("b1", 2, 1, 100, tenant="b"),
        rigid("c1", 2, 1, 100, tenant="c"),
        rigid("a", 10, 4, 50, tenant="a"),
    ]
    starts = {j.job_id: (j.start_s, j.preemptions) for j in run_quota(jobs, {"a": 4, "b": 1, "c": 1}).jobs}
    assert (starts["a"], starts["b1"]) == ((10, 0), (10, 0))
    assert (starts["b0"], starts["c0"]) == ((0, 1), (1, 0))
    assert (starts["c1"][0] or 0) > 10


def test_a_tenant_that_gave_back_has_its_quota_at_once() -> None:
    """`a` takes GPUs back from `b`. The next job of `b` then fits into its quota and takes GPUs back from
    `c`.
    """
    borrowed = [rigid("c0", 0, 4, 100, tenant="c"), rigid("b0", 1, 4, 100, tenant="b")]
    jobs = [*borrowed, rigid("b1", 2, 2, 50, tenant="b"), rigid("a", 10, 4, 50, tenant="a")]
    starts = {j.job_id: (j.start_s, j.preemptions) for j in run_quota(jobs, {"a": 4, "b": 2}).jobs}
    assert starts == {"c0": (0, 1), "b0": (1, 1), "b1": (10, 0), "a": (10, 0)}


def test_of_two_tenants_alike_the_earlier_job_is_lent_gpus() -> None:
    """At 10 s `a` and `c` hold a GPU each, with none promised to them, and one is left: too few for `c0`;
    of the others `a1` came before `c1`.
    """
    jobs = [
        rigid("x", 0, 2, 10, tenant="c"),
        rigid("y", 0, 1, 30, tenant="c"),
        rigid("c0", 1, 2, 10, tenant="c"),
        rigid("a0", 1, 1, 10, tenant="a"),
        rigid("a1", 2, 1, 10, tenant="a"),
        rigid("c1", 3, 1, 10, tenant="c"),
    ]
    starts = {j.job_id: j.start_s for j in run_quota(jobs, {}, cluster="n1g3").jobs}
    assert (starts["a0"], starts["a1"], starts["c1"]) == (10, 10, 30)


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
    jobs, now = [], 0.0
    for i in range(random.randint(5, 40)):
        now += random.choice((0.0, random.expovariate(1 / 40)))
        gpus, run_s = random.choice((1, 1, 2, 3, 4, 8)), random.uniform(1, 300)
        jobs.append(rigid(str(i), now, gpus, run_s, tenant=random.choice("abcd")))
    run = run_quota(jobs, quotas, WatchedQuota, "n4g4")
    assert all(j.state == "finished" for j in run.jobs)


# Parameters


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RoundRobin(quantum_s=0.1), "quantum_s=0.1"),
        (lambda: Gandiva(quantum_s=-1), "quantum_s=-1"),
        (lambda: Drf(weights={"a": 0}), "weights: a=0: must be a finite number"),
        (lambda: Drf(weights={"a": float("inf")}), "weights: a=inf"),
        (lambda: Drf(weights=3), "weights=3: must be a number by tenant"),  # type: ignore[arg-type]
    ],
)
def test_values_out_of_range(make, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=text):
        make()
