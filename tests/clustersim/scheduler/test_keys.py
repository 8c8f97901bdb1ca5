"""The rankings of waiting jobs against `sorted`, and that a frozen key that changes ends a run, at the cost
of one key in four decisions.
"""

from dataclasses import dataclass, field
from math import nan
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.key_checks import _same
from clustersim.scheduler.ranking import ChangingRanking, CurrentKeys, NonIncreasingKeys, Ranking
from tests.builders import Acts, free_setup, rigid
from tests.effort import examples

# Rankings


@dataclass(eq=False)
class Waiting:
    """The part of a job view that a ranking needs."""

    order: int
    requested: int
    value: int
    waits: int = 0
    calls: list[int] = field(default_factory=list)

    @property
    def needs(self) -> float:
        return self.requested

    @property
    def sizes(self) -> tuple[int, ...]:
        return (max(1, self.requested // 2), self.requested)


def value(job: Any) -> int:
    job.calls.append(1)
    return job.value


def ranking_of(jobs: list[Waiting]) -> Ranking:
    ranking = Ranking(value)
    for job in jobs:
        ranking.add(cast(Any, job))
    return ranking


shapes = st.lists(st.tuples(st.sampled_from((1, 2, 4, 8)), st.integers(0, 4)), max_size=25)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), st.integers(0, 24)),
        st.tuples(st.just("age"), st.lists(st.integers(0, 24), max_size=25)),
        st.tuples(st.just("walk"), st.integers(0, 20)),
        st.tuples(st.just("changes"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", [Ranking, ChangingRanking])
@given(shapes, steps, st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_a_ranking_is_as_sorted_has_it(
    kind: type[Ranking], rows: list[tuple[int, int]], moves: list[tuple[str, Any]], elastic: bool
) -> None:
    """Jobs are added, removed and added again with other keys. The order, walks with shrinking room, and
    copies kept by `changes` are as `sorted` has them, whatever keys do where they may change.
    """
    jobs, copy = [Waiting(i, *row) for i, row in enumerate(rows)], set[Any]()
    inside, ranking = dict[Waiting, None](), kind(value, elastic)
    for move, what in [*[("toggle", i) for i in range(len(jobs))], *moves, ("walk", 20), ("changes", 0)]:
        if move == "age" and kind is ChangingRanking:
            for i, change in zip(what, reversed(what), strict=True):
                if i < len(jobs):
                    jobs[i].value += change - 12
        elif move == "changes":
            dropped, came = ranking.changes()
            assert copy >= set(dropped)
            copy = copy - set(dropped) | set(came)
            assert copy == {(job.value, job.order, job) for job in inside}
        elif move == "walk":
            assert _taken_by(ranking, what) == _expected(inside, what, elastic)
            assert list(ranking) == sorted(inside, key=lambda job: (job.value, job.order))
        elif move == "toggle" and what < len(jobs):
            job = jobs[what]
            if job in inside:
                del inside[job]
                ranking.remove(cast(Any, job))
            else:
                job.value += len(job.calls) % 3
                inside[job] = None
                ranking.add(cast(Any, job))
                job.waits += 1
    assert len(ranking) == len(inside)
    if kind is Ranking:
        assert all(len(job.calls) == job.waits for job in jobs), "the key is asked once per wait"


def test_a_stranger_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        ranking_of([]).remove(cast(Any, Waiting(0, 1, 1)))


def test_a_job_is_ranked_anew_on_request() -> None:
    first, second = Waiting(0, 1, 5), Waiting(1, 1, 6)
    ranking = ranking_of([first, second])
    first.value = 9
    assert list(ranking) == [first, second], "a key is looked up once"
    assert list(ranking.outdated()) == [(first, 5, 9)]
    ranking.rerank(cast(Any, first))
    assert list(ranking) == [second, first]
    assert not list(ranking.outdated())


def test_every_job_has_its_turn_to_be_looked_at() -> None:
    jobs = [Waiting(i, 2 ** (i % 3), i) for i in range(7)]
    ranking = ranking_of(jobs)
    for job in jobs:
        job.value += 100
    found = {job.order for number in range(9) for job, _, _ in ranking.outdated(number)}
    assert found == set(range(7))
    assert all(len(list(ranking.outdated(number))) == 1 for number in range(30))
    assert not list(ranking_of([]).outdated(3))


# Keys that change


def _need(job: Any, elastic: bool) -> int:
    return job.sizes[0] if elastic else job.requested


def _expected(jobs: Any, room: int, elastic: bool) -> list[Any]:
    """(key, order, job) of the jobs that get room, one after the other."""
    taken = []
    for job in sorted(jobs, key=lambda job: (job.value, job.order)):
        if _need(job, elastic) <= room:
            taken.append((job.value, job.order, job))
            room -= _need(job, elastic)
    return taken


def _taken_by(ranking: Ranking, room: int) -> list[Any]:
    """The same by walking the ranking."""
    taken: list[Any] = []
    need = ranking._needs
    for entry in ranking.entries(lambda gpus: gpus <= room - sum(need(job) for _, _, job in taken)):
        taken.append(entry)
    return taken


def test_a_walk_that_is_under_way_keeps_its_order() -> None:
    jobs = [Waiting(i, 1, i) for i in range(4)]
    ranking = ChangingRanking(value)
    for job in jobs:
        ranking.add(cast(Any, job))
    walk = ranking.walk(lambda gpus: True)
    assert next(walk) is jobs[0]
    for job in jobs:
        job.value = -job.value
    assert list(ranking) == jobs[::-1]
    assert list(walk) == jobs[1:]


def test_only_keys_of_jobs_that_may_fit_are_looked_up() -> None:
    small, large = [Waiting(i, 1, i) for i in range(5)], [Waiting(i, 8, i) for i in range(5, 12)]
    ranking = ChangingRanking(value)
    for job in small + large:
        ranking.add(cast(Any, job))
    for room, looked_up in ((0, 0), (1, 5), (4, 5), (8, 12)):
        before = sum(len(job.calls) for job in small + large)
        next(ranking.walk(lambda gpus, room=room: gpus <= room), None)  # type: ignore[misc]
        assert sum(len(job.calls) for job in small + large) - before == looked_up
    assert not list(ranking.outdated())


@dataclass(eq=False)
class Running:
    """The part of a running job's view that non-increasing keys need; `starts` counts its starts."""

    order: int
    value: int
    running: bool = True
    starts: int = 0
    calls: list[int] = field(default_factory=list)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 12)),
        st.tuples(st.just("stop"), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.integers(0, 30)),
        st.tuples(st.just("work"), st.integers(0, 30)),
        st.tuples(st.just("ask"), st.integers(-1, 12)),
    ),
    max_size=80,
)


def taken_last(keys: NonIncreasingKeys | CurrentKeys, limit: Any) -> list[Any]:
    """All that come after `limit`, the last first."""
    taken = []
    while (entry := keys.take_last(limit)) is not None:
        taken.append(entry)
    return taken


@given(moves)
@settings(max_examples=examples(300), deadline=None)
def test_falling_keys_are_as_if_looked_up_anew(moves: list[tuple[str, int]]) -> None:
    keys, jobs, running = NonIncreasingKeys(value), list[Running](), dict[Any, int]()
    for move, n in moves:
        if move == "start":
            jobs.append(Running(len(jobs), n))
            running[jobs[-1]] = 0
        elif move == "ask":
            limit = (n, 5.5)
            expected = sorted(
                ((j.value, j.order) for j in running if (j.value, j.order) > limit), reverse=True
            )
            keys.update(cast(Any, running))
            behind = [job for _, _, job in keys.behind(limit)]
            assert len(set(behind)) == len(behind)
            assert {order for _, order in expected} <= {job.order for job in behind}
            taken = taken_last(keys, limit)
            assert [entry[:2] for entry in taken] == expected
            if n % 2:  # a draft that stops no job in the end
                for entry in taken:
                    keys.put_back(entry)
                assert [entry[:2] for entry in taken_last(keys, limit)] == expected
        elif jobs:
            job = jobs[n % len(jobs)]
            if move == "work" and job.running:
                job.value -= n % 3
            elif move == "stop" and job.running:
                job.running = False
                del running[job]
            elif move == "restart" and not job.running:
                job.running, job.starts, job.value = True, job.starts + 1, n
                running[job] = job.starts


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(-1, 6))
@settings(max_examples=examples(200), deadline=None)
def test_keys_of_now_are_those_of_sorted(values: list[int], limit: int) -> None:
    jobs: Any = [Running(i, number) for i, number in enumerate(values)]
    keys, turn = CurrentKeys(value, jobs), (limit, 4.5)
    expected = sorted(((job.value, job.order) for job in jobs if (job.value, job.order) > turn), reverse=True)
    assert [entry[:2] for entry in keys.behind(cast(Any, turn))][::-1] == expected
    taken = taken_last(keys, turn)
    assert [entry[:2] for entry in taken] == expected
    for entry in taken:
        keys.put_back(entry)
    assert taken_last(keys, turn) == taken


def test_few_falling_keys_are_looked_up_again() -> None:
    jobs = [Running(i, i) for i in range(100)]
    running: Any = dict.fromkeys(jobs, 0)
    keys = NonIncreasingKeys(value)
    for _ in range(5):
        keys.update(running)
        assert len(keys.behind((50, 99))) == 49
        last = keys.take_last((50, 99))
        assert last is not None
        assert last[2] is jobs[99]
    assert sum(len(job.calls) for job in jobs) == 100 + 5 * 1


def test_falling_keys_forget_what_ended() -> None:
    keys = NonIncreasingKeys(value)
    for i in range(1000):
        job: Any = Running(i, 0)
        keys.update({job: 0})
    assert len(keys._bounds) < 100
    assert len(keys._latest) < 100


# Checks of frozen keys


CLUSTER = Cluster(1, 4)


class ByKey(Scheduler):
    """Counts decisions and keys; `factor`: how fast waiting jobs age."""

    def __init__(self, factor: float, changing: bool = False):
        self.factor, self.changing, self.decisions, self.keys = factor, changing, 0, 0

    def schedule(self, state: State) -> Proposal:
        self.decisions += 1
        proposal = state.proposal()
        for job in state.pending_by(self.key, changing=self.changing).walk(proposal.fits):
            proposal.start(job)
        return proposal

    def key(self, job: JobView) -> float:
        self.keys += 1
        return job.requested - self.factor * job.waited_s


JOBS = [rigid(f"{i:02}", 10.0 * i, 4, 100.0) for i in range(20)]


def test_a_frozen_key_that_ages_ends_the_run() -> None:
    """The jobs from 01 on wait. The fourth decision, at 30 s, looks at one of them."""
    with pytest.raises(
        PolicyError,
        match=r"policy ByKey at t=30 s: the key of job 0[12] changed while it waits, from 4.0 to 3.[89], "
        r"but a key is looked up once \(.*test_keys.py:\d+\); pass changing=True to run_by or "
        r"pending_by, or call rerank\(job\)",
    ):
        Simulation(JOBS, free_setup(CLUSTER, ByKey(0.01))).run()


def test_the_check_looks_up_one_key_in_four_decisions() -> None:
    """There are 39 decisions: job 10 comes when job 00 ends. All are checked in which a job waits."""
    policy = ByKey(0.0)
    Simulation(JOBS, free_setup(CLUSTER, policy)).run()
    assert (policy.decisions, policy.keys) == (39, len(JOBS) + 39 // 4)


def test_a_key_without_an_order_is_called_that() -> None:
    """NaN differs from itself, which is no change that `changing=True` would mend."""
    with pytest.raises(PolicyError, match=r"the key of job 0[12] is nan: NaN has no order \(.*py:\d+\)$"):
        Simulation(JOBS, free_setup(CLUSTER, ByKey(nan))).run()


def test_a_new_key_at_every_decision_is_refused_with_the_remedy() -> None:
    policy = Acts(lambda state, proposal: proposal.run_by(lambda job: job.requested))
    with pytest.raises(
        PolicyError, match=r"more than 16 different keys; .*a method of the policy, not a lambda"
    ):
        Simulation(JOBS, free_setup(CLUSTER, policy)).run()


def test_keys_that_may_change_are_not_checked() -> None:
    policy = ByKey(0.01, changing=True)
    recorder = Simulation(JOBS, free_setup(CLUSTER, policy)).run()
    assert [job.start_s for job in recorder.jobs] == [100.0 * i for i in range(20)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.001, False),
        ((1, 2.0), (1, 2.0 + 1e-13), True),
        ((1, 2.0), (1, 2.5), False),
        ((1,), (1, 2), False),
        (("a", (3.0, 1)), ("a", (3.0, 1)), True),
        ("a", "b", False),
        (1, 1.0, True),
    ],
)
def test_rounding_is_no_change(one: object, other: object, same: bool) -> None:
    assert _same(one, other) is same
