"""Bounds: cases by hand, any prices are valid, and no run is better."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from math import ceil, inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.bounds import Bound, BoundJob, Instance, Option, bound_of, instance_of, prices_of
from clustersim.bounds.area import srpt_ends_s
from clustersim.bounds.columns import OptionColumns
from clustersim.bounds.first_prices import spread_evenly
from clustersim.bounds.mean import search_prices
from clustersim.bounds.relaxation import Relaxation
from clustersim.cluster import Cluster
from clustersim.overheads import Overheads
from clustersim.records import JobRecord
from clustersim.runs import make_policy
from clustersim.speed import Speed, speed_for
from clustersim.testing import CASES, simulate
from clustersim.testing.outcome import Case
from tests.clustersim.bounds.enumeration import elastic, least
from tests.effort import examples, first, rotated
from traces.job import Job

CONCAVE = {1: 4, 2: 7, 4: 12}


def proved_by(instance: Instance, price: list[float], edges_s: list[float], multipliers: int = 6) -> float:
    """The bound of the mean JCT that some prices prove."""
    columns = OptionColumns.of(instance)
    relaxation = Relaxation(columns, np.array(edges_s), columns.release_s)
    prices = np.array([price])
    value = relaxation.solve(prices, relaxation.multipliers(prices, multipliers)).value
    return (float(value.sum()) - relaxation.capacity_price(prices)) / len(instance.jobs)


ELASTIC = {
    "two at once": (elastic("a", 0, 24, CONCAVE), elastic("b", 0, 24, CONCAVE)),
    "short and long": (elastic("a", 0, 8, CONCAVE), elastic("b", 0, 40, CONCAVE)),
    "overheads": (elastic("a", 0, 24, CONCAVE, 1, reload_s=1), elastic("b", 1, 12, CONCAVE, 1, reload_s=1)),
    "three in turn": tuple(elastic(str(i), i, 12 + 6 * i, CONCAVE) for i in range(3)),
    "long overheads": (elastic("a", 0, 28, CONCAVE, 3), elastic("b", 0, 16, CONCAVE, 3)),
    "alone": (elastic("a", 3, 30, CONCAVE, 2),),
}


@cache
def best_mean_s(name: str) -> float:
    """Of all schedules that decide at whole seconds."""
    jobs = ELASTIC[name]

    def price(job: int, end_s: float) -> float:
        return end_s - jobs[job].release_s

    return least(Instance((4,), jobs), price, horizon_s=7 if len(jobs) == 3 else 10) / len(jobs)


@pytest.mark.parametrize("name", first(1, ELASTIC))
def test_elastic_jobs_against_all_schedules(name: str) -> None:
    """No more than the best schedule, and at least 90 % of it."""
    best_s = best_mean_s(name)
    bound_s = bound_of(Instance((4,), ELASTIC[name]), "prices").jct_mean_s
    assert bound_s is not None
    assert 0.9 * best_s <= bound_s <= best_s


@pytest.mark.parametrize("seed", first(1, range(6)))
def test_one_machine_against_srpt(seed: int) -> None:
    """Jobs that need all GPUs: SRPT is the best schedule, and the bound is equal to it."""
    random = Random(seed)
    jobs = tuple(elastic(str(i), random.randint(0, 12), random.randint(1, 9), {4: 1}) for i in range(8))
    ends_s = srpt_ends_s(np.array([job.release_s for job in jobs]), np.array([job.work for job in jobs]))
    mean_s = float(np.mean(ends_s - [job.release_s for job in jobs]))
    assert bound_of(Instance((4,), jobs), "prices").jct_mean_s == pytest.approx(mean_s, rel=1e-8)


def test_prices_alone_come_close_to_srpt() -> None:
    """Without the help of the area bound."""
    jobs = tuple(elastic(str(i), 0, 1 + i, {4: 1}) for i in range(6))
    mean_s = sum((6 - i) * (1 + i) for i in range(6)) / 6
    found = search_prices(OptionColumns.of(Instance((4,), jobs)), steps=200, visits=10_000)
    assert 0.98 * mean_s <= found.mean_s <= mean_s * (1 + 1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(
    prices=st.lists(st.floats(0, 3), min_size=1, max_size=8),
    cuts=st.lists(st.floats(0.1, 4), min_size=8, max_size=8),
    multipliers=st.integers(2, 7),
    name=st.sampled_from(sorted(ELASTIC)),
)
def test_any_prices_are_valid(prices: list[float], cuts: list[float], multipliers: int, name: str) -> None:
    """Whatever the prices, the breakpoints and the multipliers."""
    instance = Instance((4,), ELASTIC[name])
    edges_s = [0.0, *np.cumsum(cuts[: len(prices)]).tolist(), 400.0]
    assert proved_by(instance, [*prices, 0.0], edges_s, multipliers) <= best_mean_s(name) + 1e-9


def test_no_price_proves_each_job_alone() -> None:
    instance = Instance((4,), ELASTIC["short and long"])
    assert bound_of(instance, "alone").jct_mean_s == pytest.approx((8 / 12 + 40 / 12) / 2, rel=1e-8)
    assert proved_by(instance, [0.0, 0.0], [0.0, 1.0, 400.0]) <= (8 / 12 + 40 / 12) / 2 + 1e-9


def test_two_gpu_types_are_two_machines() -> None:
    """Two jobs that each need all GPUs of one type do not wait for each other."""
    first, second = (Option(i, (4,), (1.0,), (0.0,), (0.0,)) for i in range(2))
    jobs = (
        BoundJob("a", 0.0, 10.0, (first,)),
        BoundJob("b", 0.0, 10.0, (first,)),
        BoundJob("c", 0.0, 10.0, (second,)),
    )
    bound_s = bound_of(Instance((4, 4), jobs), "prices").jct_mean_s
    assert bound_s is not None
    assert 0.95 * 40 / 3 <= bound_s <= 40 / 3


@pytest.mark.parametrize("method", ["alone", "area", "quick", "prices"])
def test_one_job_takes_what_it_takes_alone(method: str) -> None:
    job = elastic("a", 5, 30, CONCAVE, 2, deadline_s=10)
    bound = bound_of(Instance((4,), (job,), deadline_jobs=1), method)
    assert bound.jct_mean_s == pytest.approx(2 + 30 / 12, rel=1e-8)
    assert bound.jct_p99_s == pytest.approx(2 + 30 / 12, rel=1e-8)
    assert bound.makespan_s == pytest.approx(2 + 30 / 12, rel=1e-8)
    assert bound.deadline_met_ratio == 1.0


@pytest.mark.parametrize("method", ["alone", "area", "quick", "prices"])
def test_a_job_without_work_pays_its_launch(method: str) -> None:
    jobs = (elastic("a", 0, 0, CONCAVE, 2), elastic("b", 0, 12, CONCAVE, 1))
    bound_s = bound_of(Instance((4,), jobs), method).jct_mean_s
    assert bound_s is not None
    assert 2 - 1e-6 <= bound_s <= (2 + 4) / 2


def test_deadlines_against_all_schedules() -> None:
    """Of three jobs that need all GPUs for 4 s, two can be done by 8 s; of elastic ones likewise."""
    rigid = tuple(elastic(str(i), 0, 4, {4: 1}, deadline_s=8) for i in range(3))
    spread = tuple(elastic(str(i), 0, 12, CONCAVE, 1, deadline_s=3) for i in range(3))
    for jobs in (rigid, spread):
        instance = Instance((4,), jobs, deadline_jobs=3)

        def late(job: int, end_s: float, jobs: tuple[BoundJob, ...] = jobs) -> float:
            deadline_s = jobs[job].deadline_s
            assert deadline_s is not None
            return float(end_s > deadline_s)

        most = 3 - least(instance, late, horizon_s=int(jobs[0].deadline_s or 0))
        ratio = bound_of(instance, "prices").deadline_met_ratio
        assert ratio is not None
        assert most / 3 <= ratio
        assert ratio < 1.0


@pytest.mark.parametrize("method", ["alone", "area", "quick", "prices"])
def test_deadlines_met_are_a_ratio_of_counts(method: str) -> None:
    """Two of three jobs can be done in time, as in a run that meets two: no distance is left."""
    jobs = tuple(elastic(str(i), 0, 4, {4: 1}, deadline_s=(2, 40, 40)[i]) for i in range(3))
    bound = bound_of(Instance((4,), jobs, deadline_jobs=3), method)
    assert bound.deadline_met_ratio == 2 / 3


def test_many_ends_that_cost_alike_are_all_priced() -> None:
    """Jobs that wait for each other from the same time on: each end has a best multiplier of its own."""
    jobs = tuple(elastic(str(i), 0, 10 + i, {1: 1, 2: 1.9, 4: 3.5}) for i in range(12))
    found = search_prices(OptionColumns.of(Instance((4,), jobs)), steps=40, visits=30_000)
    process_s = np.array([job.work / 4 for job in jobs])
    least_s = float(srpt_ends_s(np.zeros(12), process_s).mean())
    assert found.mean_s >= least_s


def test_p99_against_all_schedules() -> None:
    """The longest JCT counts most: of four jobs, one has to wait for three."""
    jobs = tuple(elastic(str(i), 0, 4, {4: 1}) for i in range(4))
    bound_s = bound_of(Instance((4,), jobs), "prices").jct_p99_s
    assert bound_s is not None
    assert 0.9 * 15.88 <= bound_s <= float(np.percentile([4, 8, 12, 16], 99))


def test_makespan_against_all_schedules() -> None:
    """Two elastic jobs, and two of which the second comes late."""
    for jobs in (ELASTIC["two at once"], (elastic("a", 0, 40, CONCAVE), elastic("b", 2, 24, CONCAVE))):
        instance = Instance((4,), jobs)
        best_s = bisect_left(range(60), True, key=lambda quarter: _can_end_by(instance, quarter / 4)) / 4
        bound_s = bound_of(instance, "area").makespan_s
        assert bound_s is not None
        assert 0.9 * best_s <= bound_s <= best_s


def _can_end_by(instance: Instance, end_s: float) -> bool:
    def late(job: int, job_end_s: float) -> float:
        return inf if job_end_s > end_s else 0.0

    return least(instance, late, horizon_s=ceil(end_s)) == 0.0


def test_prices_fall_with_the_jobs_in_the_system() -> None:
    """Jobs of 1 to 6 s on one machine: while k of them are left, a second of it delays k jobs."""
    found = prices_of(Instance((4,), tuple(elastic(str(i), 0, 1 + i, {4: 1}) for i in range(6))))
    middles_s = (found.edges_s[1:] + found.edges_s[:-1]) / 2
    early, late = (
        4 * float(np.mean(found.price[0, rows]))
        for rows in (middles_s < 1, (middles_s > 11) & (middles_s < 14))
    )
    assert 4 < early < 7
    assert 1 < late < 3


def test_times_that_differ_by_a_rounding_error_are_one_breakpoint() -> None:
    """1/3 + (10 + 3/3) and 2/3 + (10 + 2/3) are 34/3, and two numbers."""
    ends_s = np.array([1 / 3 + (10 + 3 / 3), 2 / 3 + (10 + 2 / 3)])
    assert 0 < ends_s[0] - ends_s[1] < 1e-14
    edges_s = spread_evenly(np.array([0.0, 0.0]), ends_s, visits=1000)
    assert np.diff(edges_s).min() > 0.1


def fixed(
    name: str, release_s: float, gpus: int, duration_s: float, deadline_s: float | None = None
) -> BoundJob:
    """A job that runs for `duration_s` on exactly `gpus` GPUs, without overheads."""
    return BoundJob(name, release_s, duration_s, (Option(0, (gpus,), (1.0,), (0.0,), (0.0,)),), deadline_s)


def test_one_machine_is_srpt() -> None:
    """Releases 0, 1, 2 with 5, 2 and 1 s: the second runs from 1 to 3, the third to 4, the first to 8."""
    bound = bound_of(Instance((4,), (fixed("a", 0, 4, 5), fixed("b", 1, 4, 2), fixed("c", 2, 4, 1))), "area")
    assert bound.jct_mean_s == pytest.approx((8 + 2 + 2) / 3, rel=1e-8)
    assert bound.makespan_s == pytest.approx(8, rel=1e-8)


def test_deadlines_that_no_job_meets_alone() -> None:
    jobs = (fixed("a", 0, 1, 5, deadline_s=4), fixed("b", 3, 1, 5, deadline_s=8), fixed("c", 3, 1, 5))
    assert bound_of(Instance((4,), jobs, deadline_jobs=4)).deadline_met_ratio == 0.25


def test_a_search_for_late_jobs_goes_on_while_it_gains() -> None:
    rng, sizes = np.random.default_rng(8), (1.0, 2.0, 4.0, 8.0)
    option = Option(0, sizes, tuple(n**0.8 for n in sizes), (0.0,) * 4, (10.0,) * 4)
    work, release_s = rng.exponential(1000.0, 12), np.cumsum(rng.exponential(50.0, 12))
    deadline_s = release_s + work / 8**0.8 * rng.uniform(1, 6, 12) + 1
    columns = zip(release_s.tolist(), work.tolist(), deadline_s.tolist(), strict=True)
    jobs = [BoundJob(str(i), begin_s, w, (option,), due_s) for i, (begin_s, w, due_s) in enumerate(columns)]
    assert bound_of(Instance((8,), tuple(jobs), 12), "quick").deadline_met_ratio == 11 / 12


def test_gpus_that_no_jobs_can_hold_together_do_not_count() -> None:
    """Of 4 GPUs, jobs of 3 can hold 3 at a time: the second waits for the first."""
    bound = bound_of(Instance((4,), (fixed("a", 0, 3, 6), fixed("b", 0, 3, 6))), "area")
    assert bound.jct_mean_s == pytest.approx(9, rel=1e-8)
    assert bound.makespan_s == pytest.approx(12, rel=1e-8)


POLICIES = ("fifo", "srtf", "hesrpt", "optimus", "elasticflow", "gandiva")


def finished(
    jobs: Sequence[Job], records: Sequence[JobRecord], cluster: Cluster, speed: Speed, overheads: Overheads
) -> tuple[Instance, list[float]]:
    """The instance of the jobs that finished, and their JCTs."""
    ends_s = {record.job_id: record.finish_s for record in records if record.state == "finished"}
    done = [job for job in jobs if job.job_id in ends_s]
    jct_s = [float(ends_s[job.job_id] or 0.0) - job.submit_s for job in done]
    return instance_of(done, cluster, speed, overheads), jct_s


def assert_holds(bound: Bound, instance: Instance, jct_s: list[float]) -> None:
    """The metrics of a run are no better than its bound."""
    releases_s = [job.release_s for job in instance.jobs]
    ends_s = [job.release_s + jct for job, jct in zip(instance.jobs, jct_s, strict=True)]
    met = sum(
        job.deadline_s is not None and end_s <= job.deadline_s
        for job, end_s in zip(instance.jobs, ends_s, strict=True)
    )
    assert bound.jct_mean_s is not None
    assert bound.jct_mean_s <= sum(jct_s) / len(jct_s)
    assert bound.jct_p99_s is not None
    assert bound.jct_p99_s <= np.percentile(jct_s, 99)
    assert bound.makespan_s is not None
    assert bound.makespan_s <= max(ends_s) - min(releases_s)
    if instance.deadline_jobs:
        assert bound.deadline_met_ratio is not None
        assert bound.deadline_met_ratio >= met / instance.deadline_jobs


def assert_random_prices_hold(instance: Instance, jct_s: list[float], seed: int) -> None:
    """Prices, breakpoints and multipliers drawn at random prove nothing that a run contradicts."""
    rng = np.random.default_rng(seed)
    columns = OptionColumns.of(instance)
    columns = columns.part(np.nonzero(columns.work > 0)[0])
    end_s = columns.release_s.max() + max(jct_s)
    for _ in range(4):
        edges_s = np.append(np.sort(np.append(rng.uniform(0, end_s, 12), 0.0)), 2 * end_s)
        scale = 10 ** rng.uniform(-2, 1) / columns.gpus.sum()
        price = scale * rng.exponential(1.0, (len(columns.gpus), len(edges_s) - 1))
        relaxation = Relaxation(columns, edges_s, columns.release_s)
        value = relaxation.solve(price, relaxation.multipliers(price, 9)).value
        assert value.sum() - relaxation.capacity_price(price) <= sum(jct_s) * (1 + 1e-9)


@pytest.mark.parametrize(("case", "policy"), rotated(CASES, POLICIES))
def test_no_policy_beats_the_bound(case: Case, policy: str) -> None:
    outcome = simulate(
        case.jobs, make_policy(policy, {}), case.cluster, table=case.table, overheads=case.overheads,
        placement=case.placement, failures=case.failures, calendar=case.calendar, seed=case.seed,
    )  # fmt: skip
    instance, jct_s = finished(case.jobs, outcome.records, case.cluster, outcome.speed, case.overheads)
    assert_holds(bound_of(instance, "area"), instance, jct_s)
    assert_random_prices_hold(instance, jct_s, seed=len(policy))


def test_scattered_placements_that_are_faster_count() -> None:
    """On some systems a plan is faster on half-filled nodes: its ring of tensors has twice the NICs."""
    job = Job("a", 0.0, model="llama2-13b", global_batch=1024, gpus=1024, iterations=10.0)
    packed, tiers = (Cluster(256, 8, "a100-80gb-800g", network=network) for network in ("ideal", "tiers"))
    speed = speed_for(packed, "vtrain")
    rates = [
        dict(zip(option.sizes, option.rates, strict=True))
        for cluster in (packed, tiers)
        for option in instance_of([job], cluster, speed, Overheads.none()).jobs[0].options
    ]
    assert rates[1][1024] > 1.01 * rates[0][1024]
    assert all(rates[1][n] >= rate for n, rate in rates[0].items())


def test_the_order_of_kinds_and_clock_do_not_matter() -> None:
    """A trace that begins in 2026 has the bound of one that begins at 0, up to the precision of its clock."""
    case = CASES[3]
    overheads, speed = (
        Overheads(),
        simulate((), make_policy("fifo", {}), case.cluster, table=case.table).speed,
    )
    late = [
        Job("x" + job.job_id, job.submit_s + 1.7e9, model=job.model, gpus=job.gpus, global_batch=64,
            iterations=job.iterations)
        for job in case.jobs
    ]  # fmt: skip
    values = [
        bound_of(instance_of(jobs, case.cluster, speed, overheads), "area").jct_mean_s
        for jobs in (case.jobs, late)
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-5)
