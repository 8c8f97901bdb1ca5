"""Jobs that lose their GPUs while they still pay for them: each save is paid once, and a load only where
there is a checkpoint. Examples are in `schedules/cut_payments.yaml`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.rundir import write_run
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.testing import Outcome, check_outcome, simulate
from tests.builders import Acts, Bench, elastic, failing, rigid
from tests.effort import examples

LAUNCH_S, SAVE_S, LOAD_S, RESIZE_S = 10, 8, 8, 1
CHARGED = Overheads(launch_s=LAUNCH_S, plain_restart_s=SAVE_S + LOAD_S, resize_s=RESIZE_S, migrate_s=2.0)
TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0}}

Moves = Mapping[float, int]
"""The GPUs that the job gets by time, 0 for none."""


def moving(moves: Moves, look: Callable[[float, JobView], object] = lambda now, job: None) -> Acts:
    """A policy that gives job `a` other GPUs at the given times, after a `look` at it."""

    def act(state: State, proposal: Proposal) -> None:
        for job in [*state.running, *state.pending]:
            gpus = moves.get(state.now)
            if gpus is None:
                continue
            look(state.now, job)
            if job.gpus and gpus:
                proposal.resize(job, gpus)
            elif gpus:
                proposal.start(job, gpus)
            elif job.gpus:
                proposal.stop(job)
        proposal.wake_at = min((at_s for at_s in moves if at_s > state.now), default=None)

    return Acts(act)


def played(policy: Scheduler) -> Outcome:
    """Job `a` of 100 s on one GPU, audited."""
    outcome = simulate([elastic("a", 0, 1, 100)], policy, "n2g4", table=TABLE, overheads=CHARGED)
    check_outcome(outcome)
    return outcome


def charges(outcome: Outcome) -> list[tuple[str, float]]:
    """What job `a` was charged, by kind of event."""
    return [(e.event, e.overhead_s) for e in outcome.events if e.job_id == "a" and e.event in ALLOCATES]


@pytest.mark.parametrize(
    ("held_s", "due_s"), [(2, 24), (7, 19), (8, 18), (12, 18), (25, 18), (26, 18), (26.5, 26)]
)
def test_a_save_is_paid_once(held_s: float, due_s: float) -> None:
    """The payment of 26 s begins with 8 s of save. What is left of them is owed at the next restart."""
    outcome = played(moving({0: 1, 20: 0, 30: 1, 30 + held_s: 0, 80: 1}))
    assert charges(outcome)[-2:] == [("restart", 26), ("restart", due_s)]
    worked_s = 10 + max(0.0, held_s - 26)
    assert outcome.of("a").lost_s == 10 + min(held_s, 26) + due_s
    assert outcome.of("a").finish_s == 80 + due_s + 100 - worked_s


def test_a_policy_sees_what_a_start_would_cost_now() -> None:
    seen: dict[float, tuple[float, ...]] = {}

    def look(now: float, job: JobView) -> None:
        seen[now] = job.start_cost_s(1), job.start_cost_s(1, saved=True), job.restart_s(1)

    played(moving({0: 1, 5: 0, 20: 1, 29: 1, 35: 1, 40: 0, 50: 1, 53: 1, 54: 0, 60: 1}, look))
    most = 28  # a migration
    assert seen == {
        0: (10, 10, most), 5: (10, 10, most), 20: (10, 10, most), 29: (10, 10, most), 35: (26, 18, most),
        40: (26, 18, most), 50: (26, 18, most), 53: (23, 18, most), 54: (22, 18, most), 60: (22, 18, most),
    }  # fmt: skip


def test_a_policy_sees_what_is_left_to_pay_of_shared_loads() -> None:
    """1 s of launch and 6 s to save; a load of 60 GB alone takes 6 s. `a` loads alone from t=27 and is to
    be ready at t=33; `b` joins at t=31 and halves what is left.
    """
    overheads = Overheads(
        launch_s=1.0, checkpoint_bytes_per_parameter=1.0, storage_node_bytes_per_s=1e10,
        storage_bytes_per_s=1e10, storage_shared=True,
    )  # fmt: skip
    seen: dict[float, float] = {}

    def act(state: State, proposal: Proposal) -> None:
        for job in state.pending:
            proposal.start(job)
        for job in state.running:
            if job.id == "a":
                seen[state.now] = job.paying_s
            if (job.id, state.now) in (("a", 20.0), ("b", 24.0)):
                proposal.resize(job, 4)
        proposal.wake_at = state.now + 1 if state.now < 45 else None

    bench = Bench("n2g4", TABLE, {"m": 60e9}, overheads)
    bench.run([elastic(name, 0, 1, 100) for name in "ab"], Acts(act))
    times = (21.0, 26.0, 27.0, 30.0, 31.0, 32.0, 35.0, 36.0)
    assert [seen[time_s] for time_s in times] == pytest.approx([12, 7, 6, 3, 4, 3, 0, 0])


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
    policy = moving({at_s: move for at_s, move in moves.items() if move != FAILS})
    with failing({0: [(at_s, 1.0) for at_s, move in moves.items() if move == FAILS]}):
        outcome = simulate(
            [elastic("a", 0, 1, 5_000)], policy, "n1g4", table=TABLE, overheads=overheads, failures=Failures()
        )
    check_outcome(outcome)
    expected = plain(moves, interval_s)
    assert [due for _, due in charges(outcome)] == pytest.approx(expected.charged)
    record = outcome.of("a")
    if interval_s == 10**9:
        assert record.lost_s - record.lost_work_s == pytest.approx(expected.lost_s)


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
