"""Jobs that lose their GPUs while they still pay for them. Each save is paid once, and a load is paid only
where there is a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder, prove
from clustersim.audit.rules import RULES
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.rundir import write_run
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import Outcome, check_outcome, simulate
from clustersim.testing.outcome import evidence_of
from tests.builders import Bench, elastic, rigid
from tests.effort import examples

LAUNCH_S, SAVE_S, LOAD_S, RESIZE_S = 10, 8, 8, 1
CHARGED = Overheads(launch_s=LAUNCH_S, plain_restart_s=SAVE_S + LOAD_S, resize_s=RESIZE_S, migrate_s=2.0)
TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}

Move = int | tuple[tuple[int, int], ...]
"""The GPUs that the job gets, 0 for none; or its placement."""


class Moves(Scheduler):
    """Gives job `a` other GPUs at the given times. `seen`: what `look` says of the job, by time."""

    def __init__(self, moves: Mapping[float, Move], look: Callable[[JobView], object] | None = None):
        self.moves, self.look = moves, look
        self.seen: dict[float, object] = {}

    def schedule(self, state: State) -> Proposal:
        proposal, now = state.proposal(), state.now
        for job in [*state.running, *state.pending]:
            if job.id == "a" and now in self.moves:
                self.seen[now] = self.look(job) if self.look else None
                _move(proposal, job, self.moves[now])
        proposal.wake_at = min((at_s for at_s in self.moves if at_s > now), default=None)
        return proposal


def _move(proposal: Proposal, job: JobView, move: Move) -> None:
    if not isinstance(move, int):
        proposal.stop(job)
        proposal.start(job, sum(gpus for _, gpus in move), on=move)
    elif job.gpus and move:
        proposal.resize(job, move)
    elif move:
        proposal.start(job, move)
    elif job.gpus:
        proposal.stop(job)


def played(moves: Mapping[float, Move] | Moves, overheads: Overheads = CHARGED) -> Outcome:
    """Job `a` of 100 s on one GPU through `moves`, by time; audited."""
    policy = moves if isinstance(moves, Moves) else Moves(moves)
    outcome = simulate([elastic("a", 0, 1, 100)], policy, "n2g4", table=TABLE, overheads=overheads)
    check_outcome(outcome)
    return outcome


def charges(outcome: Outcome) -> list[tuple[str, float]]:
    """What job `a` was charged, by kind of event."""
    return [(e.event, e.overhead_s) for e in outcome.events if e.job_id == "a" and e.event in ALLOCATES]


def test_preempted_halfway_through_its_first_launch_a_job_pays_another_launch() -> None:
    outcome = played({0: 1, 5: 0, 20: 1})
    assert charges(outcome) == [("start", 10), ("restart", 10)]
    record = outcome.of("a")
    assert (record.lost_s, record.restarts, record.preemptions, record.finish_s) == (15, 1, 1, 130)


def test_preempted_twice_before_its_first_iteration_it_pays_launches_only() -> None:
    outcome = played({0: 1, 5: 0, 20: 1, 29: 0, 40: 1})
    assert charges(outcome) == [("start", 10), ("restart", 10), ("restart", 10)]
    assert outcome.of("a").lost_s == 5 + 9 + 10


def test_preempted_at_the_end_of_a_payment_it_has_nothing_new_to_save() -> None:
    """After 10 s of launch nothing; after 26 s of a restart only what it saved before."""
    outcome = played({0: 1, 10: 0, 20: 1, 40: 0, 50: 1, 76: 0, 80: 1})
    assert charges(outcome) == [("start", 10), ("restart", 10), ("restart", 26), ("restart", 18)]
    assert outcome.of("a").finish_s == 80 + 18 + 90


def test_a_job_that_has_worked_saves_and_loads() -> None:
    outcome = played({0: 1, 10.5: 0, 20: 1})
    assert charges(outcome) == [("start", 10), ("restart", 26)]
    assert outcome.of("a").finish_s == 20 + 26 + 99.5


@pytest.mark.parametrize(
    ("held_s", "due_s"), [(2, 24), (7, 19), (8, 18), (12, 18), (25, 18), (26, 18), (26.5, 26)]
)
def test_a_save_is_paid_once(held_s: float, due_s: float) -> None:
    """The payment of 26 s begins with 8 s of save. What is left of them is owed at the next restart."""
    outcome = played({0: 1, 20: 0, 30: 1, 30 + held_s: 0, 80: 1})
    assert charges(outcome)[-2:] == [("restart", 26), ("restart", due_s)]
    worked_s = 10 + max(0.0, held_s - 26)
    assert outcome.of("a").lost_s == 10 + min(held_s, 26) + due_s
    assert outcome.of("a").finish_s == 80 + due_s + 100 - worked_s


def test_a_save_may_be_paid_in_parts() -> None:
    """3 s, 3 s, then the last 2 s with 10 s of launch and 8 s of load: as without the two preemptions."""
    outcome = played({0: 1, 20: 0, 30: 1, 33: 0, 40: 1, 43: 0, 50: 1})
    assert charges(outcome)[1:] == [("restart", 26), ("restart", 23), ("restart", 20)]
    assert outcome.of("a").lost_s == 10 + 26


def test_resized_and_migrated_during_a_payment() -> None:
    """During the first launch: another launch. During a restart: also a load, and the rest of the save."""
    assert charges(played({0: 1, 4: 2})) == [("start", 10), ("resize", 11)]
    assert charges(played({0: 1, 4: ((1, 1),)})) == [("start", 10), ("migrate", 12)]
    outcome = played({0: 1, 20: 2, 25: 4, 29: ((1, 4),), 60: 1})
    assert charges(outcome) == [
        ("start", 10), ("resize", 27), ("resize", 3 + 19), ("migrate", 20), ("resize", 27),
    ]  # fmt: skip
    assert (outcome.of("a").resizes, outcome.of("a").migrations) == (3, 1)


def test_on_more_nodes_the_rest_of_a_save_takes_less() -> None:
    """16 GB at 1 GB/s a node: a save of 16 s on one node, 8 s on two. A quarter of it is left."""
    overheads = Overheads(
        launch_s=1.0, checkpoint_bytes_per_parameter=1.0, storage_node_bytes_per_s=1e9,
        storage_bytes_per_s=1e12,
    )  # fmt: skip
    bench = Bench("n2g4", {("m", 8): {4: 4.0, 8: 8.0}}, {"m": 16e9}, overheads)
    outcome = bench.run([elastic("a", 0, 4, 400)], Moves({0: 4, 5: 0, 6: 4, 18: 8}))
    assert charges(outcome) == [("start", 1), ("restart", 33), ("resize", 1 + 8 / 4 + 8)]
    check_outcome(outcome)


def test_a_policy_sees_what_a_start_would_cost_now() -> None:
    policy = Moves(
        {0: 1, 5: 0, 20: 1, 29: 1, 35: 1, 40: 0, 50: 1, 53: 1, 54: 0, 60: 1},
        lambda job: (job.start_cost_s(1), job.start_cost_s(1, saved=True), job.restart_s(1)),
    )
    played(policy)
    most = 28  # a migration
    assert policy.seen == {
        0: (10, 10, most), 5: (10, 10, most), 20: (10, 10, most), 29: (10, 10, most), 35: (26, 18, most),
        40: (26, 18, most), 50: (26, 18, most), 53: (23, 18, most), 54: (22, 18, most), 60: (22, 18, most),
    }  # fmt: skip


def test_a_periodic_save_leaves_nothing_to_save() -> None:
    """10 s of launch, 20 s of work, 8 s of save: stopped right behind it, a job has a checkpoint. Stopped 1 s
    earlier or later, it saves.
    """
    saving = CHARGED.with_values(checkpoint_interval_s=20.0)
    due = {held_s: charges(played({0: 1, held_s: 0, 50: 1}, saving))[-1][1] for held_s in (37, 38, 39)}
    assert due == {37: 26, 38: 18, 39: 26}


# Against a job that is looked at in every second


@dataclass
class PlainJob:
    """`save_s`, `rest_s`: seconds still to pay, the save first. `cycle_s`: into a cycle of work and save."""

    interval_s: int
    done: int = 0
    saved: int = 0
    gpus: int = 0
    save_s: int = 0
    rest_s: int = 0
    cycle_s: int = 0
    at_save: int = 0
    lost_s: int = 0
    charged: list[int] = field(default_factory=list)

    def get(self, gpus: int) -> None:
        if not gpus:
            self.gpus = 0
            return
        self.save_s = SAVE_S if self.done > self.saved else self.save_s
        self.rest_s = LAUNCH_S + (LOAD_S if self.done else 0) + (RESIZE_S if self.gpus else 0)
        self.charged.append(self.save_s + self.rest_s)
        self.gpus, self.saved, self.cycle_s = gpus, self.done, 0

    def fail(self) -> None:
        self.done, self.gpus = self.saved, 0

    def second(self) -> None:
        if not self.gpus:
            return
        if self.save_s or self.rest_s:
            self.lost_s += 1
            self.save_s, self.rest_s = (self.save_s - 1, self.rest_s) if self.save_s else (0, self.rest_s - 1)
            return
        if self.cycle_s == self.interval_s:
            self.at_save = self.done
        self.cycle_s += 1
        if self.cycle_s <= self.interval_s:
            self.done += RATES[self.gpus]
            return
        self.lost_s += 1
        if self.cycle_s == self.interval_s + SAVE_S:
            self.saved, self.cycle_s = self.at_save, 0


RATES = {1: 1, 2: 2, 4: 3}
FAILS = -1
gaps = st.sampled_from((1, 2, 3, 5, 7, 8, 9, 10, 11, 18, 19, 26, 27, 30, 40))
histories = st.lists(st.tuples(gaps, st.sampled_from((0, 0, 1, 2, 4, FAILS))), min_size=1, max_size=14)


def plain(moves: Mapping[float, int], interval_s: int) -> PlainJob:
    """The job when it has paid for its last move."""
    job = PlainJob(interval_s)
    for t in range(int(max(moves)) + 1):
        if t in moves:
            job.fail() if moves[t] == FAILS else job.get(moves[t])
        job.second()
    while job.save_s or job.rest_s:
        job.second()
    return job


def legal(history: Sequence[tuple[int, int]]) -> dict[float, int]:
    """The history by time, from a start at 0 s to a job that runs, without moves that change nothing. A node
    that fails is back a second later.
    """
    moves: dict[float, int] = {0.0: 1}
    now, gpus, down_until = 0.0, 1, 0.0
    for gap_s, move in [*history, (2, 1)]:
        now += gap_s
        if max(move, 0) != gpus and not (move > 0 and now < down_until):
            moves[now], gpus = move, max(move, 0)
            down_until = now + 1 if move == FAILS else 0.0
    return moves


@pytest.mark.parametrize("interval_s", [10**9, 12])
@given(history=histories)
@example(
    history=[(5, 0), (3, 1), (3, FAILS), (3, 2), (19, 1), (3, FAILS), (2, 4), (40, 0), (1, 2), (3, FAILS)]
)
@example(history=[(30, 0), (1, 1), (3, 0), (1, 2), (3, FAILS), (3, 1), (3, 0)])
@settings(max_examples=examples(80), deadline=None)
def test_charges_are_those_of_a_job_looked_at_in_every_second(
    interval_s: int, history: list[tuple[int, int]]
) -> None:
    moves = legal(history)
    overheads = CHARGED.with_values(checkpoint_interval_s=interval_s)
    failures = [at_s for at_s, move in moves.items() if move == FAILS]
    with pytest.MonkeyPatch.context() as patch:
        outcome = simulate(
            [elastic("a", 0, 1, 5_000)], Moves({t: m for t, m in moves.items() if m != FAILS}), "n1g4",
            table=TABLE, overheads=overheads, failures=_failing(patch, failures),
        )  # fmt: skip
    check_outcome(outcome)
    expected = plain(moves, interval_s)
    assert [due for _, due in charges(outcome)] == pytest.approx(expected.charged)
    record = outcome.of("a")
    if interval_s == 10**9:
        assert record.lost_s - record.lost_work_s == pytest.approx(expected.lost_s)


def _failing(patch: pytest.MonkeyPatch, times: Sequence[float]) -> Failures:
    """The only node fails at these times, for a second each."""
    from clustersim.failures import outages
    from clustersim.failures.failures import Fault

    class Told:
        def __init__(self, parameters: Failures, seed: int, number: int):
            self.left, self.now = list(times), 0.0

        def life_s(self, mean_s: float) -> float:
            if not self.left:
                return 1e12
            at_s, before = self.left.pop(0), self.now
            self.now = at_s + 1.0
            return at_s - before

        first_life_s = life_s

        def fault(self) -> Fault:
            return Fault("gpu", 1.0)

    patch.setattr(outages, "Machine", Told)
    return Failures()


# From a folder, whose times are rounded

thirds = st.integers(0, 60).map(lambda n: n / 3)


@given(
    rows=st.lists(st.tuples(thirds, st.sampled_from((1, 4)), st.integers(1, 90)), min_size=2, max_size=12),
    policy=st.sampled_from(("srtf", "las", "edf")),
    launch_s=st.sampled_from((10.0, 20 / 3, 5e-7)),
    interval_s=st.sampled_from(("none", 7 / 3)),
)
@settings(max_examples=examples(25), deadline=None)
def test_the_audit_of_a_folder_agrees_though_its_times_are_rounded(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, int, int]], policy: str,
    launch_s: float, interval_s: object,
) -> None:  # fmt: skip
    """Times in thirds of a second: payments end as jobs come and go."""
    jobs = [
        rigid(str(i), at_s, gpus, run_s / 3, deadline_s=at_s + 100 - i)
        for i, (at_s, gpus, run_s) in enumerate(rows)
    ]
    charged = {"launch_s": launch_s, "plain_restart_s": 14 / 3, "checkpoint_interval_s": interval_s}
    run = clustersim.run(jobs, policy, cluster="n1g4", overheads=charged)
    folder: Path = tmp_path_factory.mktemp("run")
    write_run(folder, run)
    assert [v.text for finding in check_run_folder(folder) for v in finding.violations] == []


def test_the_audit_notices_a_save_that_is_paid_twice_or_not_at_all() -> None:
    """Also where only a part of it is left."""
    outcome = played({0: 1, 5: 0, 20: 1, 40: 0, 50: 1, 53: 0, 60: 1})
    assert [due for _, due in charges(outcome)] == [10, 10, 26, 23]
    events = list(outcome.events)
    places = [i for i, event in enumerate(events) if event.event == "restart"]
    for place, due_s, wrong_s in zip(places * 2, (10, 26, 23) * 2, (26, 18, 26, 18, 26.001, 18), strict=True):
        forged = [*events[:place], events[place]._replace(overhead_s=wrong_s), *events[place + 1 :]]
        found = {f.rule: f for f in prove(evidence_of(replace(outcome, events=tuple(forged))), RULES)}
        texts = [violation.text for violation in found["overheads"].violations]
        assert f"t={events[place].time_s:g}: restart of job a paid {wrong_s:g} s, due {due_s:g} s" in texts
