"""Jobs on nodes that fail: whole logs worked out by hand, and what must hold in every such run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import fsum
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder, prove
from clustersim.audit.rules import RULES
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.runs import RunConfig
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.testing import Outcome, simulate
from clustersim.testing.outcome import evidence_of
from policies.fifo import Fifo
from policies.srtf import Srtf
from tests.builders import rigid
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0, 8: 4.0, 16: 5.0}}
CHARGED = Overheads(launch_s=10.0, plain_restart_s=20.0, checkpoint_interval_s=100.0)  # saves, loads of 10 s


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make nodes fail at given times, for given seconds."""

    def plan(times: Mapping[int, list[tuple[float, float]]]) -> Failures:
        from clustersim.failures import outages
        from clustersim.failures.failures import Fault

        class Told:
            def __init__(self, parameters: Failures, seed: int, number: int):
                self.left, self.now, self.repair_s = list(times.get(number, [])), 0.0, 0.0

            def life_s(self, mean_s: float) -> float:
                if not self.left:
                    return 1e12
                at_s, self.repair_s = self.left.pop(0)
                life_s, self.now = at_s - self.now, at_s + self.repair_s
                return life_s

            first_life_s = life_s

            def fault(self) -> Fault:
                return Fault("gpu", self.repair_s)

        monkeypatch.setattr(outages, "Machine", Told)
        return Failures()

    return plan


def test_a_failure_takes_what_was_not_saved(fail_at: Any) -> None:
    """10 s launch; saves after 100 and 200 s of work (10 s each); at t=270 it has worked 240 s and saved 200.

    The node is back at t=300: 10 s launch, 10 s load, the other 100 s, and no save at the end.
    """
    outcome = simulate(
        [rigid("a", 0, 1, 300)], Fifo(), "n1g1", overheads=CHARGED, failures=fail_at({0: [(270, 30)]})
    )
    assert outcome.log() == [
        (0, "submit", "a", 0), (0, "start", "a", 1), (270, "node_down", "", 0), (270, "interrupt", "a", 0),
        (300, "node_up", "", 0), (300, "restart", "a", 1), (420, "finish", "a", 0),
    ]  # fmt: skip
    a = outcome.of("a")
    assert (a.interruptions, a.restarts, a.preemptions) == (1, 1, 0)
    assert (a.lost_work_s, a.lost_work_gpu_s, a.lost_s) == (40, 40, 10 + 20 + 40 + 20)
    assert (a.gpu_seconds, a.overhead_gpu_s, a.wait_s, a.jct_s) == (390, 50, 30, 420)
    paid = {e.event: e.overhead_s for e in outcome.events if e.overhead_s}
    assert paid == {"start": 10, "interrupt": 40, "restart": 20}


def test_without_a_save_it_starts_from_scratch(fail_at: Any) -> None:
    """At t=60 it has worked 50 s and saved nothing: nothing to load either."""
    outcome = simulate(
        [rigid("a", 0, 1, 80)], Fifo(), "n1g1", overheads=CHARGED, failures=fail_at({0: [(60, 5)]})
    )
    a = outcome.of("a")
    assert (a.lost_work_s, a.finish_s) == (50, 65 + 10 + 80)
    assert [e.overhead_s for e in outcome.events if e.event == "restart"] == [10]


def test_a_failure_during_a_save_loses_the_interval(fail_at: Any) -> None:
    """At t=115 the first save has 5 s to go: all 100 s are lost."""
    outcome = simulate(
        [rigid("a", 0, 1, 300)], Fifo(), "n1g1", overheads=CHARGED, failures=fail_at({0: [(115, 5)]})
    )
    a = outcome.of("a")
    assert (a.lost_work_s, a.overhead_gpu_s) == (100, 10 + 5 + 10 + 20)
    assert a.finish_s == 120 + 10 + 300 + 20


def test_a_failure_during_the_launch_loses_no_work(fail_at: Any) -> None:
    outcome = simulate(
        [rigid("a", 0, 1, 50)], Fifo(), "n1g1", overheads=CHARGED, failures=fail_at({0: [(4, 2)]})
    )
    a = outcome.of("a")
    assert (a.lost_work_s, a.lost_s, a.interruptions, a.finish_s) == (0, 14, 1, 6 + 10 + 50)


def test_only_jobs_on_the_node_are_stopped_and_no_job_is_placed_there(fail_at: Any) -> None:
    """Two nodes: `a` and `b` on the first, `c` on the second. `a` moves beside `c`, `b` has to wait."""
    jobs = [rigid("a", 0, 1, 100), rigid("b", 0, 3, 100), rigid("c", 0, 2, 100)]
    outcome = simulate(jobs, Fifo(), "n2g4", overheads=Overheads.none(), failures=fail_at({0: [(50, 200)]}))
    places = [(e.time_s, e.job_id, e.placement) for e in outcome.events if e.gpus]
    assert places == [
        (0, "a", ((0, 1),)), (0, "b", ((0, 3),)), (0, "c", ((1, 2),)),
        (50, "a", ((1, 1),)), (100, "b", ((1, 3),)),
    ]  # fmt: skip
    assert [outcome.of(job).interruptions for job in "abc"] == [1, 1, 0]


def test_a_job_that_is_done_at_the_instant_of_the_failure_has_finished(fail_at: Any) -> None:
    outcome = simulate([rigid("a", 0, 1, 50)], Fifo(), "n1g1", failures=fail_at({0: [(50, 5)]}))
    assert (outcome.of("a").state, outcome.of("a").finish_s, outcome.of("a").interruptions) == (
        "finished",
        50,
        0,
    )


def test_a_job_that_failures_stop_too_often_is_given_up(fail_at: Any) -> None:
    failures = replace(fail_at({0: [(10, 1), (20, 1), (30, 1)]}), retries=2)
    outcome = simulate([rigid("a", 0, 1, 50), rigid("b", 5, 1, 7)], Fifo(), "n1g1", failures=failures,
                       overheads=Overheads(scale=0.0, checkpoint_interval_s="none"))  # fmt: skip
    a = outcome.of("a")
    assert (a.state, a.reason, a.finish_s, a.jct_s) == ("failed", "given up after 3 failures", None, None)
    assert (a.interruptions, a.lost_work_s, outcome.of("b").finish_s) == (3, 10 + 9 + 9, 38)


def test_capacity_comes_and_goes_by_the_calendar() -> None:
    """The second node is there from t=100 on, the first until t=150."""
    calendar = [{"at_s": 100, "add": 1}, {"at_s": 150, "remove": 0}]
    jobs = [rigid("a", 0, 4, 120), rigid("b", 0, 4, 30), rigid("c", 160, 8, 5)]
    outcome = simulate(jobs, Fifo(), "n2g4", calendar=calendar)
    assert [outcome.of(job).finish_s for job in "ab"] == [120, 130]
    assert (outcome.of("c").state, outcome.of("c").start_s) == ("unfinished", None)
    assert outcome.of("c").reason == "no place for 8 GPUs on the nodes that were left for good"


def test_a_run_ends_when_no_waiting_job_can_ever_run_again() -> None:
    """Nodes keep failing and returning, but once the second is removed job b never fits."""
    jobs = [rigid("a", 0, 4, 50), rigid("b", 200, 8, 30)]
    failures = Failures(mtbf_gpu_h=1.0)

    def run(*calendar: dict[str, Any]) -> Outcome:
        return simulate(jobs, Fifo(), "n2g4", calendar=calendar, failures=failures)

    stays, gone = run(), run({"at_s": 100, "remove": 1})
    assert stays.of("b").state == "finished"
    assert (gone.of("b").state, gone.of("b").start_s) == ("unfinished", None)
    assert gone.of("b").reason == "no place for 8 GPUs on the nodes that were left for good"
    assert sum(event.time_s > 200 for event in gone.events) <= 1, "not on and on"
    back_s = 1e7
    back = run({"at_s": 100, "remove": 1}, {"at_s": back_s, "add": 1})
    assert back.of("b").start_s is not None, "it waits for what is planned"
    assert back.of("b").start_s >= back_s
    assert sum(event.event == "node_down" for event in back.events) > 100, "and nodes fail meanwhile"


def test_an_elastic_job_may_run_on_less_than_it_asked_for() -> None:
    """Two of three nodes are gone for good, and the last one is out when the job comes."""

    class Least(Scheduler):
        def schedule(self, state: State) -> Proposal:
            proposal = state.proposal()
            for job in state.pending:
                proposal.start(job, job.sizes[0])
            return proposal

    calendar = [{"at_s": 5, "remove": "1-2"}, {"at_s": 10, "maintenance": 0, "for_s": 50}]
    job = Job("e", 20.0, model="m", global_batch=8, iterations=10, gpus=16)
    outcome = simulate(
        [job], Least(), "n3g8", table=TABLE, calendar=calendar, failures=Failures(mtbf_gpu_h=1e5)
    )
    assert outcome.of("e").start_s == 60


class Rounds(Scheduler):
    """Starts waiting jobs at the beginning of each round of a minute."""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if state.now % 60 == 0:
            for job in state.pending:
                proposal.start(job)
        proposal.wake_at = (state.now // 60 + 1) * 60
        return proposal


def test_a_policy_of_rounds_outlasts_capacity_that_is_away() -> None:
    """More rounds than the engine allows an idle policy; job b waits for the node, job c never fits."""
    away_s = 60 * 30_000
    calendar = [{"at_s": 61, "maintenance": 0, "for_s": away_s}, {"at_s": 90, "remove": 1}]
    jobs = [rigid("a", 0, 4, 50), rigid("b", 120, 4, 30), rigid("c", 120, 8, 30)]
    outcome = simulate(jobs, Rounds(), "n2g4", calendar=calendar)
    assert (outcome.of("a").state, outcome.of("a").finish_s) == ("finished", 50)
    assert (outcome.of("b").start_s, outcome.of("b").finish_s) == (away_s + 120, away_s + 150)
    c = outcome.of("c")
    assert (c.state, c.reason) == ("unfinished", "no place for 8 GPUs on the nodes that were left for good")


@pytest.mark.parametrize("until_s", [None, 0.0, 50.0])
@pytest.mark.parametrize("jobs", [[], [rigid("late", 700.0, 1, 5)]])
def test_nodes_that_came_and_went_between_two_decisions(
    jobs: list[Job], until_s: float | None, tmp_path: Any
) -> None:
    config = RunConfig.make(
        policy="fifo", cluster="n2g4", calendar=[{"at_s": 900.0, "add": 1}], until_s=until_s
    )
    run = clustersim.run(jobs, config=config, out=tmp_path)
    assert run.snapshots[0].down == 4
    assert [finding.violations for finding in check_run_folder(tmp_path) if finding.violations] == []


class Noting(Scheduler):
    """First come, first served, noting its events."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[tuple[str, str | None, int | None]], int]] = []

    def schedule(self, state: State) -> Proposal:
        told = [(e.kind, e.job.id if e.job else None, e.node) for e in state.events]
        self.seen.append((state.now, told, state.in_service))
        return Fifo().schedule(state)


def test_a_policy_is_told_of_nodes_and_what_they_took(fail_at: Any) -> None:
    noting = Noting()
    calendar = [{"at_s": 30, "maintenance": 1, "for_s": 5}]
    jobs = [rigid("a", 0, 4, 40), rigid("b", 0, 4, 40)]
    simulate(jobs, noting, "n2g4", failures=fail_at({0: [(20, 5)]}), calendar=calendar)
    assert noting.seen == [
        (0, [("submitted", "a", None), ("submitted", "b", None)], 8),
        (20, [("node_down", None, 0), ("interrupted", "a", 0)], 4),
        (25, [("node_up", None, 0)], 8),
        (30, [("node_down", None, 1), ("stopped", "b", 1)], 4),
        (35, [("node_up", None, 1)], 8),
        (45, [("finished", "a", None), ("finished", "b", None)], 8),
    ]


# Jobs that end by themselves


def test_drawn_fates_have_their_shares_and_do_not_depend_on_the_others() -> None:
    failures = Failures(mtbf_gpu_h=None, job_failed_share=0.4, job_cancelled_share=0.1)
    jobs = [rigid(str(i), 0, 1, 100) for i in range(1500)]
    outcome = simulate(jobs, Fifo(), "n1g64", failures=failures)
    reasons = [outcome.of(job.job_id).reason for job in jobs]
    assert abs(reasons.count("failed, as drawn") / 1500 - 0.4) < 0.04
    assert abs(reasons.count("cancelled, as drawn") / 1500 - 0.1) < 0.025
    alone = simulate(jobs[7:8], Fifo(), "n1g64", failures=failures)
    assert alone.of("7").reason == reasons[7]
    failed = [outcome.of(job.job_id) for job in jobs if outcome.of(job.job_id).state == "failed"]
    assert 0.45 < fsum(record.gpu_seconds for record in failed) / (100 * len(failed)) < 0.55


# Laws


def test_two_policies_meet_the_same_failures() -> None:
    jobs = [rigid(str(i), 100.0 * i, 1 << i % 3, 2000.0 - 90 * i) for i in range(12)]
    seen = []
    for policy in (Fifo(), Srtf()):
        outcome = simulate(jobs, policy, "n3g4", failures=Failures(mtbf_gpu_h=2.0, repair_scale=0.02), seed=4)
        seen.append([(e.time_s, e.event, e.placement) for e in outcome.events if e.event.startswith("node_")])
    shortest = min(map(len, seen))
    assert shortest > 5
    assert seen[0][:shortest] == seen[1][:shortest]


# What proves it


@pytest.fixture
def failed(fail_at: Any) -> Outcome:
    jobs = [rigid("a", 0, 4, 300), rigid("b", 0, 2, 300), rigid("c", 0, 2, 20)]
    return simulate(jobs, Fifo(), "n2g4", overheads=CHARGED, failures=fail_at({0: [(270, 30)]}))


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [
        ({"finish": {"event": "fail"}}, "service", "job c is given up after 0 failures of 1000"),
        ({"interrupt": {"overhead_s": 39.0}}, "overheads", "interrupt of job a paid 39 s, due 40 s"),
        ({"restart": {"overhead_s": 10.0}}, "overheads", "restart of job a paid 10 s, due 20 s"),
        ({"node_up": {"time_s": 310.0}}, "service", "restart of job a on node 0, which is out of service"),
        ({"node_down": {"event": "node_up"}}, "service", "node_up of node 0, which is up"),
        ({"node_down": {"placement": ((1, 4),)}}, "service", "jobs b keep GPUs of node 1, which is out"),
        ({"node_down": {"placement": ((0, 3),)}}, "service", "node_down of 3 GPUs on node 0"),
        ({"node_down": {"placement": ((0, 4), (1, 4))}}, "gang", "names not one node"),
        ({"node_down": {"job_id": "b"}}, "gang", "node_down of job b, 0 GPUs at ((0, 4),): names a job"),
        ({"interrupt": {"event": "preempt"}}, "overheads", "preempt of job a paid 40 s, due 0 s"),
        ({"interrupt": {"job_id": "b"}}, "service", "job b is interrupted, but none of its nodes has failed"),
        ({"interrupt": {"event": "fail"}}, "causality", "restart of job a, which is gone"),
    ],
)
def test_a_forged_log_is_caught(
    failed: Outcome, change: dict[str, dict[str, Any]], rule: str, text: str
) -> None:
    def violations(outcome: Outcome) -> dict[str, list[str]]:
        return {one.rule: [v.text for v in one.violations] for one in prove(evidence_of(outcome), RULES)}

    assert not any(violations(failed).values())
    forged = [event._replace(**change.get(event.event, {})) for event in failed.events]
    forged.sort(key=lambda event: event.time_s)
    found = violations(replace(failed, events=tuple(forged)))
    assert any(text in found_text for found_text in found[rule]), found


def test_no_failure_without_a_cause_and_no_run_after_giving_up(failed: Outcome) -> None:
    (rule,) = (rule for rule in RULES if rule.name == "service")

    def found(failures: Failures | None) -> list[str]:
        evidence = evidence_of(replace(failed, case=replace(failed.case, failures=failures)))
        return [violation.text for violation in prove(evidence, [rule])[0].violations]

    assert found(None) == ["t=270: interrupt of job a in a run without failures"]
    assert found(Failures(retries=0)) == ["t=300: restart of job a, which 1 failures have stopped"]
    assert not found(Failures(retries=1))
