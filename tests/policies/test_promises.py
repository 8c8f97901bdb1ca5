"""Promises and prices: EDF, Chronus, ElasticFlow, priced policies: guarantees, and every decision."""

from collections.abc import Mapping
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES, DECLINED, NOTE
from clustersim.scheduler import Kernels, Proposal, Scheduler, State
from clustersim.testing import Outcome, check_outcome, decide, simulate
from policies.edf import Edf
from policies.edf_admission import EdfAdmission
from policies.elasticflow import ElasticFlow
from policies.priced import Priced
from policies.priced_deadlines import PricedDeadlines
from policies.pricing.triage import LATE, TAKEN_BACK
from policies.reservation import kernels, reservations
from policies.srtf import Srtf
from policies.toolkit import Values
from policies.vtrain_aware import VTrainAware
from tests.builders import Bench, MixedBench, drawn_jobs, elastic, finishes, mean_jct_s, rigid
from tests.deadlines import hostile_bench, late, mixed_bench, random_bench, watch
from tests.effort import examples, rotated
from traces.job import Job

BENCHES = (random_bench, hostile_bench, mixed_bench)
PLACEMENTS = ("pack", "any", "spread", "buddy")


class WatchedElasticFlow(ElasticFlow):
    def schedule(self, state: State) -> Proposal:
        return watch(super().schedule(state), self.reservations(state), state)


class WatchedPricedDeadlines(PricedDeadlines):
    def schedule(self, state: State) -> Proposal:
        return watch(super().schedule(state), self.triage(state).reservations, state)


kernels_of = {mode: Kernels(kernels.__name__) for mode in ("never", "always")}
WATCHED = (WatchedElasticFlow, WatchedPricedDeadlines)


def broken_promises(outcome: Outcome) -> list[str]:
    """Jobs that are late although they have a promise. Those with another note at the end have none."""
    notes = {e.job_id: e.detail.partition(":")[0] for e in outcome.events if e.event == NOTE}
    return [job for job, _ in late(outcome) if notes.get(job, LATE) == LATE] + [
        record.job_id
        for record in outcome.records
        if record.deadline_met is False
        and record.state not in ("rejected", "finished")
        and notes.get(record.job_id, LATE) == LATE
    ]


def check(on: Any, jobs: list[Job], policy: Scheduler) -> Outcome:
    """No promise is broken; on several types, a job runs on one type at a time, at the speed that it has."""
    outcome: Outcome = on.run(jobs, policy)
    check_outcome(outcome)
    assert broken_promises(outcome) == []
    if isinstance(policy, PricedDeadlines):
        assert DECLINED not in [record.reason for record in outcome.records]
    by_id = {job.job_id: job for job in jobs}
    for event in outcome.events if isinstance(on, MixedBench) else ():
        if event.event in ALLOCATES:
            name, job = on.cluster.type_of(event.placement[0][0]), by_id[event.job_id]
            assert {on.cluster.type_of(node) for node, _ in event.placement} == {name}
            assert job.gpu_type in (None, name)
            if job.kind == "iterations":
                assert event.unit_s == 1 / on.table[name][job.model, 8][event.gpus]
    return outcome


@pytest.mark.parametrize(("policy", "bench", "scale"), rotated(WATCHED, BENCHES, [0, 1, 10]))
@given(seed=st.integers(0, 10**9), placement=st.sampled_from(PLACEMENTS))
@settings(max_examples=examples(32), deadline=None)
def test_no_promise_is_broken(policy: Any, bench: Any, scale: float, seed: int, placement: str) -> None:
    on, jobs = bench(seed, scale, placement)
    events = check(on, jobs, policy()).events
    if isinstance(on, MixedBench):
        assert on.run(jobs, policy.__base__()).events == events, "deterministic"


@pytest.mark.parametrize(("bench", "scale"), rotated(BENCHES, [0, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(4), deadline=None)
def test_without_giving_up_no_promise_is_taken_back(bench: Any, scale: float, seed: int) -> None:
    outcome = check(*bench(seed, scale, "pack"), WatchedPricedDeadlines(give_up=False, share=0.3))
    assert not [event for event in outcome.events if event.detail.startswith(TAKEN_BACK)]


@pytest.mark.long
@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("placement", [*PLACEMENTS, "topology"])
@pytest.mark.parametrize(
    ("policy", "bench", "traces"),
    [(ElasticFlow, hostile_bench, 1334), (ElasticFlow, mixed_bench, 400)]
    + [(PricedDeadlines, bench, 120) for bench in BENCHES],
)
def test_a_campaign(policy: type[Scheduler], bench: Any, traces: int, placement: str, scale: float) -> None:
    """More than 30,000 traces in all."""
    broken = []
    for seed in range(traces):
        on, jobs = bench(seed, scale, placement)
        if broken_promises(on.run(jobs, policy())):
            broken.append(seed)
    assert broken == [], broken


def test_a_due_job_that_waits_is_seated_where_it_cannot_have_more() -> None:
    """It may get more GPUs than it has reserved, and find no place for them; it holds none that it could stay
    on.
    """
    assert not broken_promises(check(*mixed_bench(21, 0, "pack"), WatchedPricedDeadlines()))


def test_a_job_that_ends_at_the_instant_of_a_decision_has_left_at_the_next() -> None:
    """Both decisions are made at t=2568.66 s."""
    assert not broken_promises(check(*mixed_bench(1, 0, "pack"), WatchedElasticFlow()))


@pytest.mark.parametrize(("guard_s", "late_jobs"), [(0.0, ["c"]), (1e-3, [])])
def test_the_least_guard_outweighs_rounding(guard_s: float, late_jobs: list[str]) -> None:
    """With no guard at all the reservation of `c` ends before its last 1e-13 s of work are done. Users cannot
    set that; it shows what the guard is for.
    """
    jobs = [
        Job("a", 0.0, gpus=1, duration_s=73.7, deadline_s=682.0),
        Job("b", 308.3, gpus=1, duration_s=211.9, deadline_s=958.8),
        Job("c", 173.5, gpus=1, duration_s=240.2, deadline_s=779.6),
        Job("d", 0.0, gpus=1, duration_s=10_000.0),
    ]
    policy = ElasticFlow(guard_s=1e-3)
    policy.guard_s = guard_s
    outcome = Bench("n1g1", {}).run(jobs, policy)
    assert [job for job, _ in late(outcome)] == late_jobs


def test_vtrain_aware_is_the_same_algorithm_under_another_planner() -> None:
    assert issubclass(VTrainAware, ElasticFlow)
    assert (ElasticFlow.planner, VTrainAware.planner) == ("data-parallel", "best")
    assert {name for name in vars(VTrainAware) if not name.startswith("__")} == {"planner"}


@pytest.mark.long
@pytest.mark.parametrize("policy", [ElasticFlow, PricedDeadlines])
def test_compiled_kernels_decide_the_same(policy: type[Scheduler], monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit; the first run with machine code compiles it."""
    for seed in range(20):
        for bench, scale in ((random_bench, 1), (hostile_bench, 10), (mixed_bench, 1)):
            on, jobs = bench(seed, scale, "pack")
            events = []
            for mode in ("never", "always"):
                monkeypatch.setenv("CLUSTERSIM_COMPILE", mode)
                monkeypatch.setattr(reservations, "_KERNELS", kernels_of[mode])
                events.append(on.run(jobs, policy()).events)
            assert events[0] == events[1]
    assert kernels_of["always"].compiled
    assert not kernels_of["never"].compiled


def test_values_of_one_type() -> None:
    values = Values([""])
    values.note({"": 3.0})
    assert values.of == {"": 1.0}


EIGHT = {("m", 8): {8: 1.0}}  # runs on 8 GPUs, an iteration a second


def notes(outcome: Outcome) -> list[tuple[str, str]]:
    """The job and the beginning of each note."""
    return [(e.job_id, e.detail.partition(":")[0]) for e in outcome.events if e.event == NOTE]


def met(outcome: Outcome) -> set[str]:
    return {record.job_id for record in outcome.records if record.deadline_met}


# Triage


def test_a_job_in_the_way_is_given_up_however_many_larger_ones_are_not() -> None:
    """The 40 others are due after `v`, and `v` needs all the time until then."""
    jobs = [elastic("v", 0, 8, 98, 100), elastic("small", 5, 8, 20, 40)]
    jobs += [elastic(str(i), 1, 8, 100, 100 + 102 * (i + 1)) for i in range(40)]
    outcome = Bench("n1g8", EIGHT).run(jobs, PricedDeadlines())
    assert notes(outcome) == [("v", TAKEN_BACK)]
    assert len(met(outcome)) == 41


@st.composite
def bursts(draw: st.DrawFn) -> list[Any]:
    """Jobs that arrive together, a GPU each, on one GPU."""
    lengths = draw(st.lists(st.tuples(st.integers(2, 30), st.integers(0, 60)), min_size=2, max_size=7))
    return [elastic(str(i), 0, 1, run_s, run_s + slack + 1.5) for i, (run_s, slack) in enumerate(lengths)]


def most_met(jobs: list[Any]) -> int:
    """The most jobs of a burst that one machine can finish in time (by brute force)."""

    def feasible(chosen: tuple[Any, ...]) -> bool:
        now = 0.0
        for job in sorted(chosen, key=lambda job: job.deadline_s):
            now += job.iterations + 1e-3
            if now > job.deadline_s:
                return False
        return True

    return max(n for n in range(len(jobs) + 1) if any(map(feasible, combinations(jobs, n))))


ROOM_FOR_TWO = [elastic(str(i), 0, 1, *job) for i, job in enumerate([(2, 7.5), (3, 4.5), (3, 5.5), (2, 3.5)])]
"""The promise of the second is taken back for the last, and then the third has room, too."""
LATEST_FIRST = [
    elastic(str(i), 0, 1, *job) for i, job in enumerate([(2, 33.5), (2, 34.5), (9, 10.5), (21, 30.5)])
]
"""The last one fits only if those due after it are reserved before it."""


@example(ROOM_FOR_TWO)
@example(LATEST_FIRST)
@given(bursts())
@settings(max_examples=examples(60), deadline=None, derandomize=True)
def test_of_a_burst_on_one_gpu_as_many_as_possible_are_in_time(jobs: list[Any]) -> None:
    """There one for one, the largest first, is exact: Moore and Hodgson, Management Science 1968."""
    outcome = Bench("n1g1", {("m", 8): {1: 1.0}}).run(jobs, PricedDeadlines(guard_s=1e-3))
    assert len(met(outcome)) == most_met(jobs)


@pytest.mark.parametrize(("reserve", "lost"), [(0.0, ["long"]), (1.0, [])])
def test_a_reserve_holds_the_time_of_saves(reserve: float, lost: list[str]) -> None:
    """The long job takes 109 s for 100 s of work and nine saves. With a reserve it is not promised beside the
    other one.
    """
    jobs = [elastic("long", 0, 1, 100, 112), elastic("small", 0, 1, 8, 115)]
    overheads = Overheads(launch_s=0.0, checkpoint_interval_s=10.0)
    bench = Bench("n1g1", {("m", 8): {1: 1.0}}, {"m": 1e9 / 7}, overheads)
    assert broken_promises(bench.run(jobs, PricedDeadlines(reserve=reserve))) == lost


def random_jobs(seed: int, sizes: tuple[int, ...]) -> list[Job]:
    return drawn_jobs(seed, 3 + seed % 38, 160, sizes, (1, 900), (0.9, 5.0))


DIVISORS, ANY = (1, 1, 2, 2, 4, 8, 16), (1, 2, 3, 4, 5, 8, 16)


@given(
    st.integers(0, 10**9),
    st.sampled_from(
        [("pack", DIVISORS, 0.0), ("spread", DIVISORS, 0.0), ("any", ANY, 0.0), ("any", ANY, 1.0)]
    ),
)
@settings(max_examples=examples(300), deadline=None)
def test_no_admitted_job_is_late(seed: int, where: tuple[str, tuple[int, ...], float]) -> None:
    """In nodes, of sizes that divide a node or are whole nodes, where moves are free; and on any GPUs."""
    placement, sizes, scale = where
    jobs, overheads = random_jobs(seed, sizes), Overheads(scale=scale)
    outcome = simulate(jobs, EdfAdmission(), "n4g4", placement=placement, overheads=overheads)
    assert late(outcome) == []


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_on_one_gpu_no_job_is_declined_that_could_be_served(seed: int) -> None:
    """EDF, which is optimal there, makes one of the jobs late that are admitted or declined so far."""
    jobs = random_jobs(seed, (1,))
    outcome = simulate(jobs, EdfAdmission(), "n1g1")
    declined = {record.job_id for record in outcome.records if record.state == "rejected"}
    for i, candidate in enumerate(jobs):
        if candidate.job_id in declined:
            known = [j for j in jobs[:i] if j.job_id not in declined and j.deadline_s is not None]
            tried = simulate([*known, candidate], Edf(), "n1g1")
            assert any((record.finish_s or 0) > (record.deadline_s or 0) for record in tried.records)


# Chronus


SCALES = (0.0, 1.0, 10.0)


def mixed(seed: int, gpus: tuple[int, ...] = (1, 2, 4, 8)) -> list[Job]:
    """Jobs too many for the cluster, most of them with a deadline."""
    return drawn_jobs(seed, 60, 800, gpus, (100, 4000), (1.2, 3.5))


@pytest.mark.parametrize(("seed", "scale"), rotated(range(4), SCALES))
def test_no_lease_ends_late(seed: int, scale: float) -> None:
    """On any free GPUs, and with what starts and restarts cost."""
    jobs = mixed(seed)
    run = clustersim.run(
        jobs, "chronus", cluster="n2g8", placement="any", bound="none",
        overheads={"scale": scale} if scale else None, params={"lease_s": 600},
    )  # fmt: skip
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]
    assert sum(bool(r.deadline_met) for r in run.jobs) > 5
    assert any(r.state == "rejected" for r in run.jobs)


@pytest.mark.parametrize("seed", range(2))
def test_no_promised_job_of_whole_nodes_is_late_where_jobs_are_packed(seed: int) -> None:
    run = clustersim.run(mixed(seed, gpus=(8, 16)), "chronus", cluster="n4g8", bound="none")
    assert not [r for r in run.jobs if r.deadline_met is False and r.state != "rejected"]


LINEAR = {("m", 8): {n: float(n) for n in (1, 2, 4, 8)}}
ROOT_OF_GPUS = {("m", 8): {n: n**0.5 for n in (1, 2, 4, 8)}}


def stream(count: int, seed: int = 0, mean_gap_s: float = 40.0) -> list[Job]:
    """Elastic jobs with work over two orders of magnitude, submitted at random."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / mean_gap_s)
        jobs.append(elastic(str(i), now, 4, 10 ** random.uniform(1, 3)))
    return jobs


# Theory


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100)), min_size=1, max_size=8))
def test_jobs_that_take_the_whole_cluster_are_served_as_srtf_does(jobs: list[tuple[int, int]]) -> None:
    """SRPT has the least mean completion time on one machine (Schrage 1968)."""
    rows = [rigid(str(i), submit_s, 8, run_s) for i, (submit_s, run_s) in enumerate(jobs)]
    bench = Bench("n1g8", LINEAR)
    assert mean_jct_s(bench.run(rows, Priced())) == pytest.approx(mean_jct_s(bench.run(rows, Srtf())))


def first_shares(rows: list[Job], **parameters: float | bool) -> dict[str, int]:
    """What the first decision gives each job, on 8 GPUs, at a speed of n^0.5."""
    policy = Priced(**parameters)  # type: ignore[arg-type]
    decision = decide(policy, pending=rows, table=ROOT_OF_GPUS, overheads=Overheads.none())
    return {job: sum(gpus for _, gpus in place) for job, place in sorted(decision.starts.items())}


def test_the_longest_job_stands_first_where_that_is_asked() -> None:
    rows = [elastic("short", 0, 1, 10), elastic("long", 0, 1, 100)]
    outcome = Bench("n1g1", {("m", 8): {1: 1.0}}).run(rows, Priced(longest=True))
    assert finishes(outcome) == {"long": 100.0, "short": 110.0}


def test_two_jobs_share_as_the_price_says() -> None:
    """At a speed of n^0.5 the best size is 1 / lam; the shorter of two jobs has lam = `price` / 8."""
    rows = [elastic("a", 0, 4, 1000), elastic("b", 0, 4, 100_000)]
    assert first_shares(rows, price=2.0, leftover=False) == {"a": 4, "b": 4}
    assert first_shares(rows, price=4.0, leftover=False) == {"a": 2, "b": 4}
    assert first_shares(rows, price=8.0, leftover=False) == {"a": 1, "b": 4}
    assert first_shares(rows, price=4.0, leftover=False, rank=False) == {"a": 1, "b": 1}


# No job waits for ever


def bound_s(late: Job, due_s: Mapping[str, float], jobs: list[Job], outcome: Outcome) -> float:
    """The bound of docs/policies/priced.md on the time at which `late` is done, for speeds that are those of
    LINEAR and starts that take at most 10 s.
    """
    ends, due = finishes(outcome), due_s[late.job_id]
    before = [job for job in jobs if due_s[job.job_id] <= due and (ends[job.job_id] or 0.0) > due]
    return due + sum(3 * (job.iterations or 0.0) + 10.0 for job in before)


def test_a_long_job_is_done_however_many_short_ones_come() -> None:
    """Short jobs keep the GPU busy for ever. With a patience of 2, the long one overtakes them."""
    jobs = [elastic("long", 0.5, 1, 50)]
    jobs += [elastic(f"short{i}", 4.0 * i, 1, 4) for i in range(400)]
    jobs.sort(key=lambda job: job.submit_s)
    bench = Bench("n1g1", {("m", 8): {1: 1.0}})
    late = {patience: finishes(bench.run(jobs, Priced(patience=patience)))["long"] for patience in (2, 1e6)}
    assert late[1e6] == 1650.0  # after all others
    assert late[2] == 150.5  # it is overdue after 2 x 50 s, at an instant without another event


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 3.0, 10.0, 100.0]), st.sampled_from([1.0, 5.0, 50.0]),
    st.sampled_from([1, 4]),
)  # fmt: skip
def test_the_bound_on_completion_times_holds(
    seed: int, patience: float, mean_gap_s: float, overdue: int
) -> None:
    jobs = stream(25, seed, mean_gap_s)
    overheads = Overheads(launch_s=1.0, storage_node_bytes_per_s=1e9)
    policy = Priced(patience=patience, overdue=overdue)
    outcome = Bench("n1g8", LINEAR, {"m": 1e8}, overheads).run(jobs, policy)
    assert max(record.restarts for record in outcome.records) < 1000
    due_s = {j.job_id: j.submit_s + patience * (1.0 + (j.iterations or 0.0) / 8) for j in jobs}
    for job in jobs:
        done_s = finishes(outcome)[job.job_id]
        assert done_s is not None
        assert done_s <= bound_s(job, due_s, jobs, outcome)


# Its parts


def test_without_leftovers_gpus_stay_free() -> None:
    """A price of 10 a GPU-second is worth one GPU a job."""
    rows = [elastic("a", 0, 4, 1000), elastic("b", 0, 4, 100_000)]
    assert first_shares(rows, price=80.0, floor=80.0, leftover=False) == {"a": 1, "b": 1}
    assert first_shares(rows, price=80.0, floor=80.0) == {"a": 4, "b": 4}
