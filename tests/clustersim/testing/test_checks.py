"""Checks for authors of policies, on policies and logs that are broken; `policies new`, `--keep`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from clustersim.bounds import Bound
from clustersim.cli import main
from clustersim.cluster import Cluster
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import (
    CASES,
    BrokenCase,
    Case,
    Outcome,
    check_case,
    check_outcome,
    check_scheduler,
    decide,
    simulate,
)
from clustersim.testing.checks import _run
from clustersim.testing.kept import keep_case
from clustersim.testing.scaffold import write_template
from itertime.errors import UserError
from policies.elasticflow import ElasticFlow
from policies.fifo import Fifo
from policies.max_min import MaxMin
from policies.srtf import Srtf
from tests.builders import rigid
from tests.places import ROOT
from traces.job import Job

JOBS = (
    Job("long", 0.0, gpus=4, duration_s=100.0),
    Job("short", 10.0, gpus=4, duration_s=20.0),
    Job("wide", 15.0, gpus=9, duration_s=20.0),
)


# Broken policies


class Acts(Scheduler):
    """Decides by `act`, which changes a fresh proposal."""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        self.act(proposal, state)
        return proposal

    def act(self, proposal: Proposal, state: State) -> None:
        """Start every job that fits."""
        for job in state.pending:
            proposal.start(job)


class Lazy(Acts):
    """Forgets one job in ten."""

    def act(self, proposal: Proposal, state: State) -> None:
        for job in state.pending:
            if job.order % 10 != 9:
                proposal.start(job)


class Restless(Acts):
    """Asks for wake-ups at ever shorter intervals."""

    def act(self, proposal: Proposal, state: State) -> None:
        super().act(proposal, state)
        proposal.wake_at = state.now + 1e-6


class Shuttling(Acts):
    """Moves every job every second, so that with overheads no job makes progress."""

    def act(self, proposal: Proposal, state: State) -> None:
        for job in list(state.running):
            proposal.stop(job)
        if not state.running:
            super().act(proposal, state)
        proposal.wake_at = state.now + 1.0


class Forgetful(Acts):
    """Keeps state in the class, so that the second run differs from the first."""

    seen: Iterator[int] = count()

    def act(self, proposal: Proposal, state: State) -> None:
        if next(Forgetful.seen) % 7 == 3:
            proposal.wake_at = state.now + 1.0
        else:
            super().act(proposal, state)


class Unfair(Acts):
    """Favours the jobs whose views come first in memory."""

    views: list[JobView] = []  # noqa: RUF012

    def act(self, proposal: Proposal, state: State) -> None:
        Unfair.views.extend(state.pending)  # so that addresses are not used again
        for job in sorted(state.pending, key=lambda job: hash((id(job), len(Unfair.views)))):
            proposal.start(job)


class Oversubscribed(Acts):
    """Bypasses the proposal and takes GPUs that do not exist."""

    def act(self, proposal: Proposal, state: State) -> None:
        for job in state.pending:
            proposal._changes[job] = ((0, job.requested),)


class Raises(Acts):
    def act(self, proposal: Proposal, state: State) -> None:
        raise LookupError("where am I?")


class Nameless(Acts):
    """Does not store its parameter under its name."""

    def __init__(self, quantum_s: float = 1.0):
        self.quantum = quantum_s


class Frozen(Acts):
    """Ages jobs by a key that is looked up once."""

    changing = False

    def act(self, proposal: Proposal, state: State) -> None:
        proposal.run_by(self.rank, changing=self.changing)

    def rank(self, job: JobView) -> tuple[float, int]:
        return job.requested - job.waited_s / 600, job.order


class Ages(Frozen):
    changing = True


class FrozenQueue(Frozen):
    """The same with a queue of waiting jobs."""

    def act(self, proposal: Proposal, state: State) -> None:
        for job in state.pending_by(self.rank, changing=self.changing).walk(proposal.fits):
            proposal.start(job)


class AgesInAQueue(FrozenQueue):
    changing = True


class Grows(Acts):
    """Promises that a key never grows which does."""

    def act(self, proposal: Proposal, state: State) -> None:
        proposal.run_by(attained, falling=True)


def attained(job: JobView) -> float:
    return job.attained


class Wobbles(Acts):
    """Its key is the same but for rounding."""

    def act(self, proposal: Proposal, state: State) -> None:
        proposal.run_by(self.rank)

    def rank(self, job: JobView) -> tuple[str, float]:
        return "", (job.submit_s + job.waited_s / 3) - job.waited_s / 3


class Idles(Acts):
    """Takes the GPUs of a job at times, and gives them to no other."""

    def act(self, proposal: Proposal, state: State) -> None:
        super().act(proposal, state)
        if not state.pending and state.running and int(state.now) % 3 == 0:
            proposal.stop(next(iter(state.running)))
            proposal.wake_at = state.now + 1


class MeansIt(Idles):
    leaves_idle = True


class KeepsThem(Idles):
    leaves_idle = False


class Robs(Acts):
    """Names the jobs in order of submission, then lets the last one have the GPUs of the first."""

    def act(self, proposal: Proposal, state: State) -> None:
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        proposal.run(dict.fromkeys(jobs))
        first, last = jobs[0], jobs[-1]
        if first.running and first.gpus >= last.requested and not proposal.gpus(last):
            proposal.stop(first)
            proposal.start(last)


class Declines(Fifo):
    """Keeps every rule: declining is allowed."""

    def admit(self, job: JobView, state: State) -> bool:
        return job.order % 2 == 0


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (Lazy, r"rigid jobs: job 9 is unfinished: the policy never ran it again"),
        (Restless, r"rigid jobs: policy Restless at t=.*: woke up \d+ times since t=.* got nothing done"),
        (Shuttling, r"policy Shuttling at t=.*: livelock"),
        (Forgetful, r"rigid jobs: a second run differs"),
        (Unfair, r"a second run differs: .* at t=\d+ s first EventRecord.*, then EventRecord"),
        (Oversubscribed, r"of \d+ GPUs in the changes of a proposal some are not free there"),
        (Raises, r"rigid jobs: policy Raises at t=35 s: schedule raised LookupError at .*where am I"),
        (
            Frozen,
            r"rigid jobs: policy Frozen at t=\d+ s: the key of job \d+ changed while it waits, "
            r"from \(16.0, \d+\) to \(15.\d+, \d+\), .*test_checks.py:\d+\); pass changing=True",
        ),
        (FrozenQueue, r"policy FrozenQueue at t=\d+ s: the key of job .*; pass changing=True to run_by or"),
        (Grows, r"policy Grows at t=\d+ s: the key of job \d+ grew while it runs, from .*leave out falling"),
        (
            Idles,
            r"elastic jobs: t=.*: job j\d+ loses GPUs that no job gets; let it keep them, with leaves_idle =",
        ),
        (Robs, r"policy Robs at t=.*: job \d+ loses its GPUs to jobs less important in run\(\), of \d+"),
        (Nameless, r"Nameless: parameter quantum_s is not stored as self\.quantum_s"),
    ],
)
def test_broken_policies_fail(broken: type[Scheduler], text: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=text):
        check_scheduler(broken)


@pytest.mark.parametrize(
    "sound", [Fifo, Srtf, Acts, Declines, Ages, AgesInAQueue, Wobbles, MeansIt, KeepsThem]
)
def test_sound_policies_pass(sound: type[Scheduler]) -> None:
    check_scheduler(sound)


def test_cases_of_ones_own() -> None:
    case = Case("mine", JOBS, Cluster(1, 8))
    check_scheduler(Fifo, [case])
    with pytest.raises(AssertionError, match=r"^mine: "):
        check_scheduler(Raises, [case])


# Broken logs. The audit, which has the same rules, is tested with many more.


@pytest.fixture
def sound() -> Outcome:
    """`short` preempts `long` at 10 s; both pay their overheads."""
    return simulate(JOBS, Srtf(), "n2g2", overheads=Overheads(launch_s=5.0, plain_restart_s=10.0))


@pytest.mark.parametrize(
    ("event", "values", "text"),
    [
        (9, {"time_s": 20.0}, "the log goes back in time"),
        (7, {"event": "note"}, r"trace: t=\d+: jobs short, long hold 4 GPUs of node 0, on a cluster n2g2"),
        (1, {"gpus": 2, "placement": ((0, 2),)}, r"it can run on \[4\] GPUs"),
        (8, {"overhead_s": 14.0}, r"job long finished after 101 of 100 units of work"),
    ],
)
def test_broken_logs_fail(sound: Outcome, event: int, values: dict[str, Any], text: str) -> None:
    events = list(sound.events)
    events[event] = events[event]._replace(**values)
    with pytest.raises(AssertionError, match=text):
        check_outcome(replace(sound, events=tuple(events)))


def test_broken_records_fail(sound: Outcome) -> None:
    long, short, wide = (sound.of(name) for name in ("long", "short", "wide"))
    for records, text in (
        ((long, short), r"for the submitted jobs \['long', 'short', 'wide'\]"),
        ((*sound.records, wide), r"for the submitted jobs"),
        ((long, short, replace(wide, state="unfinished", reason="lost")), r"job wide is unfinished: lost"),
        ((replace(long, gpu_seconds=1.0), short, wide), r"gpu_seconds is 1\.0 in its record, 480\.0 by"),
    ):
        with pytest.raises(AssertionError, match=text):
            check_outcome(replace(sound, records=records))


# The bench


@pytest.mark.parametrize("name", ["jct_mean_s", "jct_p99_s", "makespan_s"])
def test_a_result_that_no_policy_can_have_fails(
    name: str, sound: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other rule of the log shows that a bound is too high, so the bound itself is forged."""
    check_outcome(sound)
    forged = replace(Bound(None, None, None, None, "area", 0.0), **{name: 1e9})
    monkeypatch.setattr("clustersim.testing.outcome.best_possible", lambda *_: forged)
    with pytest.raises(AssertionError, match=f"{name} is .* no policy gets below 1000000000"):
        check_outcome(sound)


def test_cases_cover_what_they_say() -> None:
    assert [case.name for case in CASES] == [
        "rigid jobs", "rigid jobs with overheads", "one GPU", "elastic jobs",
        "elastic jobs with deadlines and overheads", "jobs that misstate their work",
        "jobs in phases, with batches to choose", "jobs that can never run", "nodes that fail",
    ]  # fmt: skip
    busiest = {}
    for case in CASES:
        outcome = simulate(
            case.jobs, Srtf(), case.cluster, table=case.table, overheads=case.overheads,
            placement=case.placement,
        )  # fmt: skip
        busiest[case.name] = sum(record.preemptions for record in outcome.records)
    assert all(preempted >= 2 for preempted in busiest.values()), busiest
    assert {len(case.jobs) for case in CASES} <= set(range(10, 60))


def test_simulate_keeps_to_the_table() -> None:
    job = Job("x", 0.0, model="gpt3-175b", global_batch=8, iterations=1.0, gpus=8)
    outcome = simulate([job], Fifo())
    assert outcome.of("x").reason == "the throughput table does not know the model gpt3-175b"
    with pytest.raises(PolicyError):
        simulate(JOBS, Raises())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_runs_the_case_again(case: Case, tmp_path: Path) -> None:
    """Event by event, apart from the reasons for which impossible jobs are rejected."""
    events = _run(case, MaxMin()).events
    command = keep_case(BrokenCase("broken", case, events), tmp_path, "max-min", {})
    program, *words = shlex.split(command)
    assert program == "clustersim"
    assert main([*words, "--no-report"]) == 0
    home = tmp_path / case.name.replace(" ", "-")
    logs = [(home / "run" / "events.csv").read_text(), (home / "events.csv").read_text()]
    again, kept = ([line for line in log.splitlines() if ",reject," not in line] for log in logs)
    assert again == kept
    assert len(kept) > len(case.jobs)


def test_of_runs_that_differ_both_logs_are_kept(tmp_path: Path) -> None:
    with pytest.raises(BrokenCase, match="a second run differs") as caught:
        check_case(Forgetful, CASES[0])
    keep_case(caught.value, tmp_path, "mine.py:Forgetful", {})
    home = tmp_path / "rigid-jobs"
    assert (home / "events.csv").read_text() != (home / "events_2.csv").read_text()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/rigid-jobs: cannot be made: .*; name another folder"):
        keep_case(BrokenCase("broken", CASES[0], ()), tmp_path / "file", "fifo", {})


def test_its_own_test_passes(tmp_path: Path) -> None:
    write_template("fair-queue", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


# One decision in a situation set up by hand


TABLE = {("gpt", 64): {1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5}}
OLD = {"running": [rigid("old", 0, 8, 100)], "cluster": "n1g8"}


def gpt(**more: Any) -> Job:
    return Job("gpt", 0.0, model="gpt", global_batch=64, iterations=50_000.0, gpus=2, **more)


class Moves(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in list(state.running):
            proposal.stop(view)
            proposal.start(view, on=((1, view.gpus),))
        proposal.wake_at = state.now + 5.0
        return proposal


@pytest.mark.parametrize(
    ("policy", "scene", "text"),
    [
        (
            Fifo(),
            {"pending": [rigid("b", 2, 4, 100), rigid("a", 1, 8, 100), rigid("c", 3, 8, 100)],
             "cluster": "2x8"},
            "t=3 s: start a on 8 GPUs (node 0); start b on 4 GPUs (node 1); c waits",
        ),
        # At t=70 s `old` has 30 s left, less than `new`; at t=60 s it has 40 s left, more.
        (Srtf(), {"pending": [rigid("new", 70, 8, 35)], **OLD}, "t=70 s: nothing changes; new waits"),
        (Srtf(), {"pending": [rigid("new", 60, 8, 35)], **OLD},
         "t=60 s: stop old; start new on 8 GPUs (node 0)"),
        (ElasticFlow(), {"running": [(gpt(), 2)], "now_s": 10.0, "table": TABLE},
         "t=10 s: resize gpt from 2 to 8 GPUs (node 0)"),
        (ElasticFlow(), {"pending": [gpt(deadline_s=60.0)], "table": TABLE}, "t=0 s: decline gpt"),
        (Moves(), {"running": [rigid("a", 0, 2, 100)], "cluster": "2x8"},
         "t=0 s: move a to 2 GPUs (node 1); wake up at t=5 s"),
    ],
)  # fmt: skip
def test_a_decision_in_words(policy: Scheduler, scene: dict[str, Any], text: str) -> None:
    assert str(decide(policy, **scene)) == text


def test_a_decision_states_the_gpus_of_each_job() -> None:
    decision = decide(Srtf(), pending=[rigid("new", 60.0, 8, 35.0)], **OLD)  # type: ignore[arg-type]
    assert (decision.stops, list(decision.starts), decision.now_s) == (("old",), ["new"], 60.0)
    assert [decision.gpus(name) for name in ("old", "new", "none")] == [0, 8, 0]
    moved = decide(Moves(), running=[rigid("a", 0, 2, 100)], cluster="2x8")
    assert (moved.moves, moved.gpus("a")) == ({"a": ((1, 2),)}, 2)


class Nonsense(Scheduler):
    def schedule(self, state: State) -> Proposal:
        return 7  # type: ignore[return-value]


class Impossible(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for view in state.pending:
            proposal.start(view, gpus=3)
        return proposal


class Hesitates(Fifo):
    def admit(self, job: JobView, state: State) -> bool:
        return "maybe"  # type: ignore[return-value]


class Mute(Fifo):
    def refusal(self, job: JobView) -> str:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Nonsense, "schedule returned 7, not a proposal"),
        (Impossible, r"start\(job a, gpus=3\): it can run on 8 GPUs \(.*test_checks\.py:\d+\)"),
        (Hesitates, r"admit\(job a\) returned 'maybe'"),
        (Mute, r"refusal\(job a\) returned None; return one line of text"),
    ],
)
def test_broken_policies(policy: type[Scheduler], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        decide(policy(), pending=[rigid("a", 0, 8, 100)], cluster="1x8")
