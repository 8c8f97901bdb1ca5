"""No run falls below a bound: policies, overheads, failures, GPU types, networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from clustersim.bounds import Bound, Instance, bound_of, instance_of
from clustersim.bounds.columns import OptionColumns
from clustersim.bounds.relaxation import Relaxation
from clustersim.cluster import Cluster
from clustersim.overheads import Overheads
from clustersim.records import JobRecord
from clustersim.runs import make_policy
from clustersim.speed import Speed, speed_for
from clustersim.testing import CASES, simulate
from clustersim.testing.outcome import Case
from tests.effort import rotated
from traces.job import Job

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
        relaxation = Relaxation(columns, edges_s)
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
    speed = speed_for(packed, "3d")
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
