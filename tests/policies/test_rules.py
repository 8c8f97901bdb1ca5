"""What every policy must pass; indices and predictions by definition; what backfilling guarantees."""

import doctest
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.runs import find_policy, list_policies, make_policy
from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import check_outcome, check_scheduler, decide, simulate
from policies.conservative import Conservative
from policies.easy import Easy
from policies.gittins import Gittins, gittins_index
from policies.las import Las
from policies.multifactor import Multifactor
from policies.qssf import Qssf
from policies.tiresias import Tiresias
from policies.toolkit.backfill import Shadow
from tests.builders import drawn_jobs, rigid, times
from tests.clustersim.backtest.logs import jobs_of
from tests.effort import examples
from tests.places import ROOT
from traces.job import Job

ORACLES = {
    "fifo": False, "fifo-skip": False, "edf": False, "arena": False, "sjf": True, "srtf": True,
    "edf-admission": True, "chronus": True,
}  # fmt: skip


def test_truths_from_the_log_are_noted() -> None:
    for name, asked in ORACLES.items():
        result = clustersim.run([rigid("a", 0, 4, 10, 100)], name, cluster="n1g8")
        assert result.manifest["oracle_used"] is asked, name


# Least attained service


@pytest.mark.parametrize("policy", [Las, Gittins])
def test_restarts_longer_than_a_round_leave_time_for_work(policy: type[Las] | type[Gittins]) -> None:
    """Every turn does at least a quantum of work, so that there are at most work / quantum of them."""
    charged = Overheads(launch_s=300.0, plain_restart_s=300.0)
    jobs = [rigid(str(i), i, 1, 100) for i in range(3)]
    outcome = simulate(jobs, policy(quantum_s=20), "n1g1", overheads=charged)
    assert all(record.state == "finished" for record in outcome.records)
    assert 0 < sum(record.preemptions for record in outcome.records) <= 3 * 100 / 20


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


# The Gittins index


def test_index_of_a_known_size_is_one_over_what_is_left_and_beyond_all_sizes_zero() -> None:
    assert gittins_index(4.0, np.array([10.0])) == pytest.approx(1 / 6)
    assert gittins_index(12.0, np.array([4.0, 12.0])) == 0.0
    assert gittins_index(0.0, np.array([])) == 0.0


def test_index_of_exponential_sizes_does_not_change() -> None:
    """Without memory, the index is the rate: 1 / mean."""
    quantiles = -50.0 * np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
    for attained in (0.0, 20.0, 100.0):
        assert gittins_index(attained, quantiles, least_size=5) == pytest.approx(1 / 50, rel=0.03)


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


# QSSF


def many(seed: int, count: int = 80) -> list[Job]:
    return drawn_jobs(seed, count, 120, (1, 2, 4), (80, 4000), user="abcd")


def plain(jobs: list[Job], gpus: int, size_of: Any) -> dict[str, tuple[float, float]]:
    """The rule in plain Python: (start, finish) by job. `size_of(job, ended)`: its key, `ended` the jobs that
    ended by its submission, in order of their ends.
    """
    waiting: list[tuple[float, int, Job]] = []
    running: list[tuple[float, int, Job]] = []
    ended: list[Job] = []
    found, arrivals = {}, list(enumerate(jobs))
    while arrivals or running:
        now = min([job.submit_s for _, job in arrivals[:1]] + [end for end, _, _ in running])
        for entry in sorted(entry for entry in running if entry[0] == now):
            running.remove(entry)
            ended.append(entry[2])
        while arrivals and arrivals[0][1].submit_s <= now:
            order, job = arrivals.pop(0)
            waiting.append((size_of(job, ended), order, job))
        waiting.sort(key=lambda entry: entry[:2])
        while waiting and (waiting[0][2].gpus or 0) <= gpus - sum(job.gpus or 0 for _, _, job in running):
            _, order, job = waiting.pop(0)
            running.append((now + (job.duration_s or 0.0), order, job))
            found[job.job_id] = now, now + (job.duration_s or 0.0)
    return found


def twice_the_last_run_time_of_the_user(job: Job, ended: list[Job]) -> float:
    """The predictor `last-two`, in plain Python."""
    last = [other.duration_s or 0.0 for other in ended if other.user == job.user][-2:]
    return (sum(last) / 2 if len(last) == 2 else 3600.0) * (job.gpus or 0)


@pytest.mark.parametrize("seed", range(4))
def test_with_perfect_estimates_it_is_shortest_service_first(seed: int) -> None:
    jobs = many(seed)
    expected = plain(jobs, 8, lambda job, _: job.duration_s * job.gpus)
    found = times(simulate(jobs, Qssf(), "n1g8", placement="any"))
    assert found == {job: pytest.approx(when) for job, when in expected.items()}


@pytest.mark.parametrize("seed", range(4))
def test_predictions_are_those_of_a_plain_rewrite(seed: int) -> None:
    jobs = many(seed)
    expected = plain(jobs, 8, twice_the_last_run_time_of_the_user)
    run = clustersim.run(
        jobs, "qssf", cluster="n1g8", placement="any", overheads=None, estimates={"predictor": "last-two"}
    )
    found = {record.job_id: (record.start_s, record.finish_s) for record in run.jobs}
    assert found == {job: pytest.approx(when) for job, when in expected.items()}
    assert run.manifest["oracle_used"] is False


def test_a_setting_of_the_run_replaces_its_predictor() -> None:
    jobs = many(0, 20)
    own = clustersim.run(jobs, "qssf", cluster="n1g8", params={"weight": 1.0})
    assert (own.manifest["estimates"]["weight"], own.manifest["estimates"]["predictor"]) == (1.0, "blend")
    truth = clustersim.run(jobs, "qssf", cluster="n1g8", estimates={"sigma": 0})
    assert truth.manifest["oracle_used"]
    assert "predictions" not in truth.summary


# By hand


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_estimates_are_of_the_whole_run_in_a_scene_that_begins_with_running_jobs(policy: Any) -> None:
    """At twice the truth `runs` seems to end at 100 s, and the 90 s of `early` fit before the head."""

    def started(factor: float, early_s: float) -> list[str]:
        pending = [rigid("head", 5, 8, 10), rigid("early", 10, 2, early_s)]
        scene = {"running": [rigid("runs", 0, 6, 50)], "pending": pending, "overheads": Overheads.none()}
        return list(decide(policy(estimate_factor=factor), **scene).starts)

    assert (started(1, 40), started(1, 41)) == (["early"], [])
    assert (started(2, 45), started(2, 46)) == (["early"], [])


# Estimates of users


def test_the_steps_of_extensions_are_those_of_the_paper() -> None:
    """1, 5, 15, 30 minutes, 1, 2, 5, 10, 20, 50, 100 hours, and 100 hours from then on."""
    steps = [60, 300, 900, 1800, *(3600 * hours for hours in (1, 2, 5, 10, 20, 50, 100, 100, 100))]
    now, expected, found = 10.0, [], []
    for step in steps:
        expected.append(now + step)
        running, pending = [rigid("runs", 0, 7, 1e8, estimate_s=10)], [rigid("waits", 1, 8, 1)]
        scene = decide(Easy(), running=running, pending=pending, now_s=now, overheads=Overheads.none())
        found.append(scene.wake_at_s)
        now += step
    assert found == expected


def test_estimates_of_all_users_make_the_oracle_needless() -> None:
    jobs = [rigid("runs", 0, 6, 100), rigid("head", 1, 8, 50), rigid("early", 3, 1, 98)]
    stated = [replace(job, estimate_s=2 * (job.duration_s or 0)) for job in jobs]
    for policy in ("easy", "conservative"):
        for params in ({}, {"estimate_factor": 3.0}):
            run = clustersim.run(stated, policy, cluster="n1g8", overheads=None, params=params)
            assert not run.manifest["oracle_used"]
            run = clustersim.run([stated[0], *jobs[1:]], policy, cluster="n1g8", params=params)
            assert run.manifest["oracle_used"]


@pytest.mark.parametrize("policy", [Easy, Conservative])
@given(st.integers(0, 10**9), st.sampled_from((0.0, 1.0)), st.sampled_from(("pack", "any")))
@settings(max_examples=examples(40), deadline=None)
def test_estimates_that_are_true_change_nothing(policy: Any, seed: int, scale: float, placement: str) -> None:
    """To the last bit: every event at the same time, on the same nodes."""
    jobs = random_jobs(seed)
    true = [replace(job, estimate_s=job.duration_s) for job in jobs]
    settings = {"overheads": Overheads(scale=scale), "placement": placement}
    first, second = (simulate(trace, policy(), "n4g4", **settings) for trace in (jobs, true))
    assert first.events == second.events
    assert first.records == second.records


# Guarantees


def random_jobs(seed: int) -> list[Job]:
    return drawn_jobs(seed, 5 + seed % 36, 80, (1, 2, 3, 4, 5, 8, 16), (1, 900))


class WatchedEasy(Easy):
    """Notes the shadow times of every head."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.shadows: dict[str, list[float]] = {}

    def shadow(self, head: JobView, proposal: Proposal, state: State) -> Shadow:
        shadow = super().shadow(head, proposal, state)
        self.shadows.setdefault(head.id, []).append(shadow.start_s)
        return shadow


@pytest.mark.parametrize("placement", ["pack", "any"])
@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(60), deadline=None)
def test_easy_never_delays_the_head(placement: str, seed: int, factor: float, scale: float) -> None:
    """Its shadow time is never postponed, and it starts by that time, wherever jobs are placed."""
    policy = WatchedEasy(factor)
    jobs = random_jobs(seed)
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement=placement)
    for head, shadows in policy.shadows.items():
        assert all(b <= a + 1e-6 for a, b in pairwise(shadows))
        start_s = outcome.of(head).start_s
        assert start_s is not None
        assert start_s <= shadows[-1] + 1e-6


class WatchedConservative(Conservative):
    """Notes the first reservation of every job."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.first: dict[str, float] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        for view, start_s in self.reserved.items():
            self.first.setdefault(view.id, start_s)
        return proposal


@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(80), deadline=None)
def test_conservative_keeps_every_reservation(seed: int, factor: float, scale: float) -> None:
    """Where jobs can run on any GPUs: no job starts after the reservation made at its submission."""
    policy = WatchedConservative(factor)
    jobs = random_jobs(seed)
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement="any")
    for name, reserved_s in policy.first.items():
        start_s = outcome.of(name).start_s
        assert start_s is not None
        assert start_s <= reserved_s + 1e-6


@pytest.mark.parametrize("seed", [1, 2])
def test_with_one_tenant_multifactor_is_easy(seed: int) -> None:
    jobs = jobs_of(seed=seed)
    runs = [clustersim.run(jobs, policy, cluster="n16g1", overheads=None) for policy in (Multifactor, Easy)]
    assert runs[0].events == runs[1].events


NAMES = [info.name for info in list_policies()]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_keeps_every_rule(name: str) -> None:
    check_scheduler(find_policy(name))


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    cls = find_policy(name)
    assert cls.__doc__
    assert cls.__module__.replace("policies.", "").replace("_", "-") == name, "one small file per policy"


@pytest.mark.parametrize("name", NAMES)
def test_says_whether_it_chooses_the_number_of_gpus(name: str) -> None:
    """Only elastic policies give jobs other numbers of GPUs than requested."""
    jobs = [
        Job(f"{i}", 600.0 * i, model="megatron-1.7b", gpus=4, global_batch=64, iterations=300.0,
            deadline_s=600.0 * i + 1e5)
        for i in range(6)
    ]  # fmt: skip
    run = clustersim.run(jobs, name, cluster="n2g8")
    other = {event.gpus for event in run.events if event.event in ALLOCATES} - {4}
    assert bool(other) == find_policy(name).elastic


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_hold(name: str) -> None:
    module = import_module(find_policy(name).__module__)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_never_fit_together_do_not_change_places_for_ever(name: str) -> None:
    """GPUs are enough for both jobs, but not in blocks of nodes, and a start takes longer than any round."""
    charged = Overheads(launch_s=3600.0, plain_restart_s=0.0)
    jobs = [Job("a", 0.0, gpus=14, duration_s=200.0), Job("b", 0.0, gpus=16, duration_s=300.0)]
    outcome = simulate(jobs, make_policy(name, {}), "n5g6", placement="buddy", overheads=charged)
    check_outcome(outcome)
    assert [record.state for record in outcome.records] == ["finished", "finished"]
    assert sum(record.preemptions for record in outcome.records) <= 2


COUNTS_ALONE = ("elasticflow", "vtrain-aware")  # they do not see that free GPUs are in no common block


@pytest.mark.parametrize("removed", [(1,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (i % 4 > 0 and name != "unicron"))
        for i, name in enumerate(NAMES)
    ],
)
def test_jobs_without_a_place_on_the_nodes_that_are_left_keep_no_job_out(
    name: str, removed: tuple[int, ...]
) -> None:
    """Of nodes 0 to 3 of 4 GPUs some go for good, and with them blocks: what needs those never runs."""
    calendar = [{"at_s": 100.0 + 400 * i, "remove": node} for i, node in enumerate(removed)]
    overheads, sizes = Overheads(launch_s=4.0, plain_restart_s=6.0), (12, 1, 8, 4, 16, 2, 3) * 3
    jobs = [rigid(str(i), 30.0 * i, gpus, 100.0 + i, tenant=f"tenant{i % 3}") for i, gpus in enumerate(sizes)]
    policy = make_policy(name, {})
    outcome = simulate(jobs, policy, "n4g4", placement="buddy", calendar=calendar, overheads=overheads)
    unfinished_jobs = [int(record.job_id) for record in outcome.records if record.state == "unfinished"]
    assert unfinished_jobs, "some jobs have no place any more"
    assert name in COUNTS_ALONE or not [job for job in unfinished_jobs if sizes[job] <= 4]


@pytest.mark.parametrize("assumption", ["one_gpu_type", "equal_nodes"])
def test_the_docs_name_the_policies_that_plan_with_one_gpu_type_or_size_of_nodes(assumption: str) -> None:
    text = (ROOT / "docs" / "clusters.md").read_text()
    paragraph = next(part for part in text.split("\n\n") if f"`{assumption} = True`" in part)
    names = " ".join(paragraph.split()).split(" plan with ")[0]
    refusing = {name for name in NAMES if getattr(find_policy(name), assumption)}
    assert {name.strip(" `") for name in names.replace(" and ", ",").split(",")} == refusing
