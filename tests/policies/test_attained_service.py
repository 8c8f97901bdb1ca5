"""Policies that know of a job only what it has attained: las, tiresias, gittins."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.scheduler import Scheduler, State
from clustersim.testing import Outcome, simulate
from policies.fifo import Fifo
from policies.gittins import Gittins, gittins_index
from policies.las import Las
from policies.srsf import Srsf
from policies.tiresias import Tiresias
from tests.builders import mean_jct_s, rigid, times
from tests.effort import examples
from traces.job import Job

# Least attained service


def test_las_takes_turns() -> None:
    """Quantum 10: `a` 0-10, `b` 10-20, both have 10: `a` 20-30, `b` 30-40 and done, `a` 40-50."""
    outcome = simulate([rigid("a", 0, 1, 30), rigid("b", 5, 1, 20)], Las(quantum_s=10), "n1g1")
    assert times(outcome) == {"a": (0, 50), "b": (10, 40)}
    assert (outcome.of("a").preemptions, outcome.of("b").preemptions) == (2, 1)


def test_las_lets_a_new_job_pass_a_job_that_has_had_a_turn() -> None:
    outcome = simulate([rigid("old", 0, 1, 100), rigid("new", 25, 1, 5)], Las(quantum_s=10), "n1g1")
    assert times(outcome) == {"old": (0, 105), "new": (25, 30)}


def test_las_counts_gpu_seconds() -> None:
    """After 10 s `big` has 40 GPU-seconds, `narrow` catches up in 40 s of one GPU."""
    outcome = simulate([rigid("big", 0, 4, 20), rigid("narrow", 0, 1, 60)], Las(quantum_s=10), "n1g4")
    assert outcome.log()[2:6] == [
        (0, "start", "big", 4),
        (10, "preempt", "big", 0),
        (10, "start", "narrow", 1),
        (50, "preempt", "narrow", 0),
    ]


@given(st.integers(2, 6), st.integers(1, 60), st.integers(1, 500))
@settings(max_examples=examples(40), deadline=None)
def test_las_shares_one_gpu_to_within_a_quantum(jobs: int, quantum_s: int, until_s: int) -> None:
    long = [rigid(str(i), 0, 1, 1000) for i in range(jobs)]
    outcome = simulate(long, Las(quantum_s=quantum_s), "n1g1", until_s=until_s)
    attained = [record.gpu_seconds for record in outcome.records]
    assert sum(attained) == pytest.approx(until_s)
    assert max(attained) - min(attained) <= quantum_s + 1e-6


@pytest.mark.parametrize("policy", [Las, Gittins])
def test_restarts_longer_than_a_round_leave_time_for_work(policy: type[Las] | type[Gittins]) -> None:
    """Every turn does at least a quantum of work, so that there are at most work / quantum of them."""
    charged = Overheads(launch_s=300.0, plain_restart_s=300.0)
    jobs = [rigid(str(i), i, 1, 100) for i in range(3)]
    outcome = simulate(jobs, policy(quantum_s=20), "n1g1", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    assert 0 < sum(record.preemptions for record in outcome.records) <= 3 * 100 / 20


# Tiresias

# Three jobs on two GPUs, (GPUs, seconds) = (2, 2), (1, 8), (2, 6), all submitted at once: the example in
# section 3 of Tiresias (Gu et al., NSDI 2019). All times asserted are derived here by hand from the rules.
THREE = [rigid("J1", 0, 2, 2), rigid("J2", 0, 1, 8), rigid("J3", 0, 2, 6)]


def test_tiresias_worked_example() -> None:
    """Two queues, 4 GPU-seconds in the first. J1 needs just 4. J2 falls at 6 s, which lets J3 in; J3 falls
    at 8 s and is behind J2 in the second queue. Mean JCT 10.
    """
    outcome = simulate(THREE, Tiresias(thresholds_gpu_s=[4], promote_knob=None), "n1g2")
    assert outcome.log()[3:] == [
        (0, "start", "J1", 2),
        (2, "finish", "J1", 0),
        (2, "start", "J2", 1),
        (6, "preempt", "J2", 0),
        (6, "start", "J3", 2),
        (8, "preempt", "J3", 0),
        (8, "restart", "J2", 1),
        (12, "finish", "J2", 0),
        (12, "restart", "J3", 2),
        (16, "finish", "J3", 0),
    ]
    assert mean_jct_s(outcome) == pytest.approx(10.0)


def test_tiresias_example_in_turns() -> None:
    """2D-LAS in turns of a second. At 4 s all have had 2 GPU-seconds, at 5 s J1 is done; from then on J2 has
    two turns for one of J3. Mean JCT 35/3, the paper's 11.7; by shortest remaining service 28/3, its 9.3.
    """
    outcome = simulate(THREE, Las(quantum_s=1), "n1g2")
    assert {record.job_id: record.finish_s for record in outcome.records} == {"J1": 5, "J2": 14, "J3": 16}
    assert round(mean_jct_s(outcome), 1) == 11.7
    assert round(mean_jct_s(simulate(THREE, Srsf(), "n1g2")), 1) == 9.3


def test_knowing_the_distribution_or_the_sizes_is_better() -> None:
    """Sizes are 4, 8 and 12 GPU-seconds: the index rises with service, so no job that has begun is preempted:
    J1 0-2, J2 2-10, J3 10-16. Shortest remaining service first makes the same schedule.
    """
    expected = {"J1": (0, 2), "J2": (2, 10), "J3": (10, 16)}
    assert times(simulate(THREE, Gittins(sizes_gpu_s=[4, 8, 12], quantum_s=1), "n1g2")) == expected
    assert times(simulate(THREE, Srsf(), "n1g2")) == expected


def test_tiresias_falls_at_every_threshold() -> None:
    """Two jobs of 100 s on one GPU, thresholds 10 and 30: 0-10 a, 10-20 b, 20-40 a, 40-60 b, then FIFO."""
    jobs = [rigid("a", 0, 1, 100), rigid("b", 0, 1, 100)]
    outcome = simulate(jobs, Tiresias(thresholds_gpu_s=[10, 30], promote_knob=None), "n1g1")
    changes = [(time_s, name) for time_s, event, name, _ in outcome.log() if event in ("start", "restart")]
    assert changes == [(0, "a"), (10, "b"), (20, "a"), (40, "b"), (60, "a"), (130, "b")]


def stream(promote_knob: float | None, order: str = "start") -> Outcome:
    """A job that falls at 10 s, and a stream of short ones from then on."""
    short = [rigid(f"s{i}", 10 + 9 * i, 1, 9) for i in range(20)]
    policy = Tiresias(thresholds_gpu_s=[10], promote_knob=promote_knob, order=order)
    return simulate([rigid("long", 0, 1, 25), *short], policy, "n1g1")


def test_tiresias_starves_jobs_that_have_fallen() -> None:
    assert stream(None).of("long").finish_s == 10 + 20 * 9 + 15


def turns(outcome: Outcome) -> list[tuple[float, str]]:
    return [(time_s, event) for time_s, event, name, _ in outcome.log() if name == "long"][1:]


def test_tiresias_promotes_a_job_that_waits_too_long() -> None:
    """It ran for 10 s and waits for 2 x 10 s. At 30 s it joins the end of the first queue, behind `s2`, which
    runs until 37 s. It falls at 47 s and joins at 67 s, behind `s5`, which runs, and `s6`, which waits.
    """
    assert turns(stream(2.0)) == [
        (0, "start"), (10, "preempt"), (37, "restart"), (47, "preempt"), (83, "restart"), (88, "finish")
    ]  # fmt: skip


def test_by_submission_a_promoted_job_passes_jobs_that_run() -> None:
    """At 30 s it is first in the first queue for another 10 s."""
    assert turns(stream(2.0, order="submission")) == [
        (0, "start"), (10, "preempt"), (30, "restart"), (40, "preempt"), (60, "restart"), (65, "finish")
    ]  # fmt: skip


@pytest.mark.parametrize(("order", "wide", "narrow"), [("start", 22, 22), ("submission", 10, 25)])
def test_no_job_of_a_queue_preempts_another_unless_by_submission(order: str, wide: int, narrow: int) -> None:
    """`wide` needs all GPUs and came before `narrow`, which runs from 2 s on."""
    jobs = [rigid("first", 0, 3, 10), rigid("wide", 1, 4, 3), rigid("narrow", 2, 1, 20)]
    outcome = simulate(jobs, Tiresias(order=order), "n1g4")
    assert (outcome.of("wide").start_s, outcome.of("narrow").finish_s) == (wide, narrow)
    assert outcome.of("narrow").preemptions == (order == "submission")


def test_a_preempted_job_is_ahead_of_those_that_waited() -> None:
    """`x` falls at 12 s, `y` at 17 s. `new` preempts `x`, which still is ahead of the earlier `y` then."""
    jobs = [rigid("z", 0, 1, 12), rigid("y", 1, 2, 30), rigid("x", 2, 1, 30), rigid("new", 20, 2, 3)]
    outcome = simulate(jobs, Tiresias(thresholds_gpu_s=[10], promote_knob=None), "n1g2")
    changes = [(time_s, event, name) for time_s, event, name, _ in outcome.log()]
    assert [change for change in changes if change[1] in ("preempt", "restart")] == [
        (12, "preempt", "x"), (17, "preempt", "y"), (17, "restart", "x"), (20, "preempt", "x"),
        (23, "restart", "x"), (40, "restart", "y"),
    ]  # fmt: skip


def test_the_wait_for_a_promotion_adds_up() -> None:
    """`long` runs for 10 s, waits for 15 s, runs for 5 s, and waits again from 30 s on. At 45 s it has waited
    for 2 x 15 s and joins the first queue behind `s4`, which runs until 49 s, and ahead of `s5`.
    """
    jobs = [rigid("long", 0, 1, 100), rigid("s1", 10, 1, 9), rigid("s2", 19, 1, 6), rigid("s3", 30, 1, 10)]
    jobs += [rigid("s4", 40, 1, 9), rigid("s5", 46, 1, 9)]
    outcome = simulate(jobs, Tiresias(thresholds_gpu_s=[10], promote_knob=2), "n1g1")
    assert turns(outcome)[:6] == [
        (0, "start"), (10, "preempt"), (25, "restart"), (30, "preempt"), (49, "restart"), (59, "preempt")
    ]  # fmt: skip


@pytest.mark.parametrize("order", ["start", "submission"])
@pytest.mark.parametrize("knob", [None, 1, 8])
def test_tiresias_ends_where_a_start_takes_longer_than_the_first_queue(
    order: str, knob: float | None
) -> None:
    """Only work counts as service, so that a job does not fall before it has worked. By start, every turn in
    the first queue does 10 s of work.
    """
    charged = Overheads(launch_s=30.0, plain_restart_s=70.0)
    jobs = [rigid(f"{i:02}", 10 * i, 8, 300) for i in range(20)]
    policy = Tiresias(thresholds_gpu_s=[80], promote_knob=knob, order=order)
    outcome = simulate(jobs, policy, "n1g8", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    most = 20 * 300 / 10 * (1 if order == "start" else 2)
    assert sum(record.preemptions for record in outcome.records) <= most


def test_a_job_that_runs_again_in_time_is_not_promoted() -> None:
    """`long` waits from 10 to 19 s; at 60 s, when it would have waited too long, it runs. `new` passes it."""
    jobs = [rigid("long", 0, 1, 100), rigid("short", 10, 1, 9), rigid("new", 65, 1, 10)]
    outcome = simulate(jobs, Tiresias(thresholds_gpu_s=[10], promote_knob=5), "n1g1")
    assert times(outcome) == {"long": (0, 119), "short": (10, 19), "new": (65, 75)}


# The Gittins index


def test_index_of_a_known_size_is_one_over_what_is_left() -> None:
    assert gittins_index(4.0, np.array([10.0])) == pytest.approx(1 / 6)


def test_index_of_exponential_sizes_does_not_change() -> None:
    """Without memory, the index is the rate: 1 / mean."""
    quantiles = -50.0 * np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
    for attained in (0.0, 20.0, 100.0):
        assert gittins_index(attained, quantiles, least_size=5) == pytest.approx(1 / 50, rel=0.03)


def test_index_beyond_all_sizes() -> None:
    assert gittins_index(12.0, np.array([4.0, 12.0])) == 0.0
    assert gittins_index(0.0, np.array([])) == 0.0


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.floats(0, 49.9),
    st.floats(0.01, 30),
    st.lists(st.floats(0.01, 60), max_size=30),
)
def test_index_is_the_supremum(sizes: list[int], attained: float, least: float, spans: list[float]) -> None:
    """By the definition, expectation by expectation: reached somewhere, and nowhere exceeded."""
    left = [size - attained for size in sizes if size > attained]

    def efficiency(span: float) -> float:
        return sum(s <= span for s in left) / sum(min(s, span) for s in left)

    index = gittins_index(attained, np.sort(np.array(sizes, dtype=float)), least)
    if not left:
        assert index == 0.0
        return
    assert index == pytest.approx(max(efficiency(max(least, span)) for span in left))
    assert all(efficiency(max(least, span)) <= index * (1 + 1e-9) for span in spans)


def two_sizes(seed: int, count: int) -> list[Job]:
    """One GPU at load 0.8: nine jobs in ten take 10 s, the tenth takes 1000 s."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(0.8 / 109)
        jobs.append(rigid(str(i), now, 1, 10 if random.random() < 0.9 else 1000))
    return jobs


def test_gittins_beats_policies_that_know_less() -> None:
    """Short jobs show within 10 s that they are short; after that a job is best left alone, while least
    attained service keeps all long ones half done (Aalto, Ayesta and Righter 2009: optimal in the M/G/1).
    """
    jobs = two_sizes(1, 1500)

    def mean(policy: Scheduler) -> float:
        return mean_jct_s(simulate(jobs, policy, "n1g1"))

    informed, learned = mean(Gittins([10] * 9 + [1000], quantum_s=10)), mean(Gittins(quantum_s=10))
    las, fifo = mean(Las(quantum_s=10)), mean(Fifo())
    assert informed < 0.9 * las
    assert las < fifo
    assert informed <= learned < 1.05 * informed


class WatchedGittins(Gittins):
    """Checks the order of the waiting jobs whenever the distribution has been learned anew."""

    most_waiting = 0

    def _learn(self, state: State) -> None:
        super()._learn(state)
        waiting = list(state.pending_by(self._standing))
        assert waiting == sorted(waiting, key=lambda view: (self._rank_now(view), view.order))
        assert all(self._standing(view) == self._rank_now(view) for view in waiting)
        self.most_waiting = max(self.most_waiting, len(waiting))


def test_waiting_jobs_are_sorted_by_what_was_learned() -> None:
    policy = WatchedGittins(quantum_s=10)
    simulate(two_sizes(2, 400), policy, "n1g1")
    assert policy.most_waiting > 2, "or nothing was shown"


# Parameters


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Las(quantum_s=0), "quantum_s=0: must be a finite number, at least 1"),
        (lambda: Las(quantum_s=float("nan")), "quantum_s=nan"),
        (lambda: Las(quantum_s="soon"), "quantum_s='soon'"),  # type: ignore[arg-type]
        (lambda: Las(quantum_s=True), "quantum_s=True"),
        (lambda: Tiresias(order="arrival"), "order='arrival': must be start or submission"),
        (lambda: Tiresias(thresholds_gpu_s=[]), r"thresholds_gpu_s=\[\]: must be a list"),
        (lambda: Tiresias(thresholds_gpu_s=[5, 5]), "each must be larger than the previous one"),
        (lambda: Tiresias(thresholds_gpu_s=[-1]), "-1 in it: must be a positive finite number"),
        (lambda: Tiresias(thresholds_gpu_s="10"), "thresholds_gpu_s='10'"),
        (lambda: Tiresias(promote_knob=0), "promote_knob=0"),
        (lambda: Gittins(sizes_gpu_s=[]), r"sizes_gpu_s=\[\]"),
        (lambda: Gittins(sizes_gpu_s=[float("inf")]), "inf in it"),
        (lambda: Gittins(quantum_s=0.5), "quantum_s=0.5"),
    ],
)
def test_values_out_of_range(make, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=text):
        make()
