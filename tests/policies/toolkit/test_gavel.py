"""Gavel's rounds: how shares of time become schedules, and what each policy makes of a queue."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.runs import find_policy
from clustersim.scheduler import Scheduler
from clustersim.testing import Outcome, check_scheduler, simulate
from policies.gavel_ftf import GavelFtf
from policies.gavel_makespan import GavelMakespan
from policies.gavel_max_min import GavelMaxMin
from policies.toolkit.gavel import Ledger, priorities
from tests.builders import MixedBench, drawn_jobs, finishes, rigid
from traces.job import Job

# The mechanism


def test_priorities_of_gavels_example() -> None:
    """X of Gavel's section 3.1 (three jobs on V100, P100, K80), as printed there, after four rounds made up
    here: what was never received comes first, then what lags most.
    """
    shares = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
    received = np.array([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 4.0]])
    inf = np.inf
    assert np.allclose(priorities(shares, received), [[0.2, 0.4, 0.0], [0.2, 0.2, inf], [inf, 0.0, 0.2]])


@dataclass(eq=False)
class Stub:
    """As much of a job as the ledger looks at."""

    requested: int = 1
    attained: float = 0.0


def test_rounds_follow_gavels_example() -> None:
    """The same X, one GPU of each type, rounds of one second: after n rounds every job has received n X of
    each type, to within the length of a cycle.
    """
    shares = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
    jobs = [Stub(), Stub(), Stub()]
    ledger = Ledger(types=3)
    ran = np.zeros((3, 3))
    for now in range(100):
        ledger.book(jobs, float(now))  # type: ignore[arg-type]
        ledger.set_shares(shares)
        free_jobs, free_types = set(range(3)), set(range(3))
        for view, type_ in ledger.ranked(ahead_s=1.0):
            row = next(i for i, stub in enumerate(jobs) if stub is view)
            if row in free_jobs and type_ in free_types:
                free_jobs.remove(row)
                free_types.remove(type_)
                ledger.ran_on(view, type_)
                jobs[row].attained += 1.0
                ran[row, type_] += 1
    assert np.abs(ran - 100 * shares).max() <= 5
    assert ran.sum() == 300


def test_the_past_is_kept_when_shares_change() -> None:
    """A job that has waited through a change of shares is not put level with the one that ran."""
    first, second = Stub(), Stub()
    ledger = Ledger(types=1)
    ledger.book([first, second], 0.0)  # type: ignore[list-item]
    ledger.set_shares(np.array([[0.5], [0.5]]))
    first.attained = 10.0
    ledger.book([first, second], 10.0)  # type: ignore[list-item]
    ledger.set_shares(np.array([[0.6], [0.4]]))
    assert ledger.ranked(ahead_s=1.0)[0][0] is second  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("jobs", "until_s", "parts"),
    [
        (dict.fromkeys("abc", (8, 1.0)), 3000, dict.fromkeys("abc", 1 / 3)),
        ({"wide": (8, 1.0), "a": (4, 1.0), "b": (4, 1.0)}, 6000, dict.fromkeys(("wide", "a", "b"), 1 / 3)),
        ({"heavy": (8, 3.0), "a": (8, 1.0), "b": (8, 1.0)}, 5000, {"heavy": 0.6, "a": 0.2, "b": 0.2}),
    ],
    ids=["three in turn", "GPU time is equal, whatever the size", "parts follow weights"],
)
def test_gpu_time_is_divided_by_weight(
    jobs: dict[str, tuple[int, float]], until_s: int, parts: dict[str, float]
) -> None:
    """(GPUs, weight) of each job on 8 GPUs."""
    trace = [rigid(name, 0, gpus, 1e5, weight=weight) for name, (gpus, weight) in jobs.items()]
    outcome = simulate(trace, GavelMaxMin(round_s=10.0), "n1g8", until_s=until_s)
    shares = {record.job_id: record.gpu_seconds / (8 * until_s) for record in outcome.records}
    assert shares == pytest.approx(parts, abs=0.01)


def test_equal_weights_change_nothing() -> None:
    gpus = (8, 4, 4, 2)
    plain, heavy = (
        simulate(
            [rigid(str(i), 0, n, 1e5, **more) for i, n in enumerate(gpus)],
            GavelMaxMin(round_s=10.0), "n1g8", until_s=500,
        ).log()
        for more in ({}, {"weight": 2.0})
    )  # fmt: skip
    assert plain == heavy


@pytest.mark.parametrize("weights", [(1e6, 1e-6, 1.0), (1e-6, 1e-6, 1e6)])
def test_extreme_weights_leave_no_time_unused(weights: tuple[float, ...]) -> None:
    """On two types the solver's tolerance is larger than the ratio of the weights."""
    jobs = [SimpleNamespace(requested=1, weight=weight) for weight in weights]
    shares = GavelMaxMin().time_shares(jobs, np.ones((3, 2)), [1, 1], 0.0)  # type: ignore[arg-type]
    assert shares.sum(axis=0) == pytest.approx([1.0, 1.0], abs=1e-5)
    assert shares.sum(axis=1)[np.argmax(weights)] == pytest.approx(1.0, abs=1e-5)


class Counted(GavelMaxMin):
    """Counts how often shares are computed."""

    computed = 0

    def time_shares(self, *arguments: Any) -> Any:
        self.computed += 1
        return super().time_shares(*arguments)


@pytest.mark.parametrize(("every_round", "computed"), [(False, 2), (True, 10)])
def test_shares_are_computed_when_jobs_change_or_every_round(every_round: bool, computed: int) -> None:
    """Ten rounds; a job arrives in the fifth."""
    policy = Counted(round_s=10.0, recompute_every_round=every_round)
    simulate([rigid("a", 0, 4, 1e3), rigid("b", 45, 4, 1e3)], policy, "n1g8", until_s=95)
    assert policy.computed == computed


# What each is for


def test_makespan_starts_the_long_job_at_once() -> None:
    """A job of 4 GPUs and 1000 s beside six of 4 GPUs and 200 s: 1200 s are needed on 8 GPUs if the long one
    always runs; taking turns leaves it behind.
    """
    jobs = [*(rigid(f"short{i}", 0, 4, 200) for i in range(6)), rigid("long", 0, 4, 1000)]
    makespan_s, max_min_s = (
        max(finishes(simulate(jobs, policy(round_s=20.0), "n1g8")).values())  # type: ignore[type-var]
        for policy in (GavelMakespan, GavelMaxMin)
    )
    assert makespan_s <= 1100 + 3 * 20  # (1000 + 6 x 200) / 2, and a few rounds
    assert max_min_s > makespan_s + 100


def test_finish_times_are_fairest_under_ftf() -> None:
    """Jobs of one width, 100 to 800 s: on a third of the cluster each would take three times as long. To be
    no worse off than that is possible (taking turns does it), and ftf keeps it to within rounds.
    """
    jobs = [rigid(str(i), 0, 8, run_s) for i, run_s in enumerate((100, 400, 800))]
    ftf_ratio, makespan_ratio = (
        max(
            (end_s or 0.0) / (3 * (job.duration_s or 1.0))
            for job, end_s in zip(
                jobs, finishes(simulate(jobs, policy(round_s=10.0), "n1g8")).values(), strict=True
            )
        )
        for policy in (GavelFtf, GavelMakespan)
    )
    assert ftf_ratio <= 1.05
    assert makespan_ratio > 1.3


# Several GPU types


def run_mixed(
    groups: dict[str, int], rates: dict[str, dict[str, float]], iterations: dict[str, float],
    policy: Scheduler, until_s: float | None = None,
) -> Outcome:  # fmt: skip
    """One job per model of `rates` (iterations/s by GPU type, on one GPU), on nodes of one GPU."""
    tables = {
        name: {(model, 1): {1: by_type[name]} for model, by_type in rates.items() if name in by_type}
        for name in groups
    }
    jobs = [Job(m, 0, model=m, global_batch=1, gpus=1, iterations=iterations[m]) for m in rates]
    return MixedBench([(name, nodes, 1) for name, nodes in groups.items()], tables).run(jobs, policy, until_s)


def test_makespan_knows_which_job_gains_most_from_a_fast_gpu() -> None:
    """100 s if the long job has the fast GPU, on which it is ten times as fast, and the other one the slow
    GPU; the other way round 1000 s.
    """
    rates = {"slight": {"fast": 2.0, "slow": 1.0}, "great": {"fast": 10.0, "slow": 1.0}}
    work = {"slight": 100.0, "great": 1000.0}
    outcome = run_mixed({"fast": 1, "slow": 1}, rates, work, GavelMakespan(round_s=1.0))
    assert max(record.finish_s or 0.0 for record in outcome.records) <= 110.0


# Policies with packing


POLICIES = ["gavel-max-min", "gavel-ftf", "gavel-makespan", "gavel-throughput"]
PAIRS = {
    "x": {"x": 1.1, "y": 1.3, "z": 1.6},
    "y": {"x": 1.2, "y": 1.8, "z": 1.9},
    "z": {"x": 1.9, "y": 2.0, "z": 2.5},
}


def run_of(jobs: list[Job], policy: str, sharing: Any, cluster: str = "n1g1", **more: Any) -> clustersim.Run:
    params = {"packing": True, **more.pop("params", {})}
    return clustersim.run(
        jobs, policy, cluster=cluster, sharing=sharing, params=params, **{"overheads": None, **more}
    )


def many(seed: int) -> list[Job]:
    return drawn_jobs(seed, 45, 480, (1, 1, 2, 4, 8), (300, 4000), model="xyz")


@pytest.mark.long
@pytest.mark.parametrize("policy", [*POLICIES, "gandiva"])
def test_the_kit_finds_no_broken_rule(policy: str) -> None:
    check_scheduler(lambda: find_policy(policy)(packing=True))  # type: ignore[call-arg]


@pytest.mark.parametrize("policy", POLICIES)
def test_two_equal_jobs_without_interference_do_twice_the_work(policy: str) -> None:
    jobs = [rigid(name, 0, 1, 3600.0, model="x") for name in "ab"]
    assert run_of(jobs, policy, {}).summary["makespan_s"] == 3600
    assert run_of(jobs, policy, {"slowdown": 1.5}).summary["makespan_s"] == pytest.approx(5400)
    alone = run_of(jobs, policy, {}, params={"packing": False})
    assert alone.summary["makespan_s"] == 7200


@pytest.mark.parametrize("policy", POLICIES)
def test_with_full_interference_every_event_is_that_without_packing(policy: str) -> None:
    runs = [
        run_of(
            many(1), policy, {"slowdown": 2.0}, "n2g8", params={"packing": on}, overheads={"launch_s": 9.0}
        )
        for on in (False, True)
    ]
    assert [repr(event) for event in runs[0].events] == [repr(event) for event in runs[1].events]
    assert runs[0].jobs == runs[1].jobs


@pytest.mark.parametrize("policy", POLICIES)
def test_packing_serves_a_queue_sooner_and_keeps_every_rule(policy: str, tmp_path: Path) -> None:
    alone, packed = (
        run_of(
            many(2), policy, {"pairs": PAIRS}, "n2g8",
            overheads={"launch_s": 10.0}, params={"packing": on}, out=tmp_path / f"run{on}",
        )
        for on in (False, True)
    )  # fmt: skip
    assert packed.summary["finished"] == 45
    assert packed.summary["makespan_s"] < 0.95 * alone.summary["makespan_s"]
    assert packed.summary["jct_mean_s"] < 0.95 * alone.summary["jct_mean_s"]
    assert not [v for finding in check_run_folder(tmp_path / "runTrue") for v in finding.violations]


def test_three_jobs_on_one_gpu_take_turns_in_pairs() -> None:
    """At 1.25 times their time beside each other, two run at a time: each does 2/3 x 0.8 of a job's work."""
    jobs = [rigid(name, 0, 1, 36_000.0, model="x") for name in "abc"]
    run = run_of(jobs, "gavel-max-min", {"slowdown": 1.25}, params={"round_s": 60.0})
    assert [job.finish_s for job in run.jobs] == pytest.approx([36_000 / (2 / 3 * 0.8)] * 3, rel=0.01)


def test_a_wide_job_gets_its_turns_beside_small_ones_that_share() -> None:
    """However the small jobs share, the cluster is owed to the wide job for a part of the time."""
    small = [rigid(f"s{i}", 0, 1, 50_000.0, model="x") for i in range(24)]
    run = run_of([rigid("wide", 0, 16, 5000.0, model="y"), *small], "gavel-max-min", {}, "n2g8")
    wide = next(job for job in run.jobs if job.job_id == "wide")
    assert wide.finish_s < 50_000
