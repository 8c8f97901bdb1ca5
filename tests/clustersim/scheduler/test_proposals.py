"""Drafts in any order of calls, and their searches against definitions: no GPU twice, gangs whole."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.jobs import ActiveJob
from clustersim.overheads import Overheads
from clustersim.placement import placer
from clustersim.placement.placers import PLACERS
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of
from clustersim.speed import Curve
from clustersim.testing import simulate
from tests.builders import Acts, Restless, Script, elastic, rigid
from tests.effort import examples
from traces.job import Job

SIZES = (1, 2, 3, 4, 8)
CURVE = Curve({n: 1.0 / n for n in SIZES}, SIZES)


class Drafting(RuleBasedStateMachine):
    """Eight jobs, some of them running; drafts, and copies of drafts. `expected`: GPUs by job of each."""

    drafts: Bundle[Proposal] = Bundle("drafts")

    @initialize(target=drafts, name=st.sampled_from(sorted(PLACERS)), started=st.integers(0, 5))
    def begin(self, name: str, started: int) -> Proposal:
        facts: ClusterState[JobView] = ClusterState(Cluster(3, 4), placer(name), Overheads.none())
        self.state = State(facts)
        self.jobs: list[JobView] = []
        for i in range(8):
            job = Job(str(i), 0.0, gpus=SIZES[i % 4], duration_s=10.0)
            active = ActiveJob(job, i, CURVE, SIZES[i % 4], "")
            view = JobView(active, facts)
            self.jobs.append(view)
            place = facts.placer.place(facts.capacity, active.requested, ())
            if i < started and place is not None:
                facts.capacity.take(place)
                active.hold(place, active.requested, 1.0, 0.0, 0.0)
                facts.running[view] = active.generation
            else:
                facts.waiting.add(view)
        self.before = (self.state.free, {job: active_of(job).placement for job in self.jobs})
        self.expected: dict[int, dict[JobView, int]] = {}
        self.wake_ups: dict[int, float | None] = {}
        self.all: list[Proposal] = []
        return self.known(self.state.proposal(), {job: job.gpus for job in self.jobs})

    def known(self, draft: Proposal, gpus: dict[JobView, int]) -> Proposal:
        self.all.append(draft)
        self.expected[id(draft)] = gpus
        return draft

    @rule(draft=drafts, i=st.integers(0, 7), gpus=st.sampled_from(SIZES))
    def start_or_resize(self, draft: Proposal, i: int, gpus: int) -> None:
        job, held = self.jobs[i], self.expected[id(draft)]
        grow = draft.resize if held[job] else draft.start
        free = draft.free + held[job]
        placement = grow(job, gpus)
        if placement is not None:
            assert sum(count for _, count in placement) == gpus
            held[job] = gpus
        else:
            assert gpus > free or not draft.fits(gpus) or held[job]

    @rule(draft=drafts, i=st.integers(0, 7))
    def stop(self, draft: Proposal, i: int) -> None:
        job, held = self.jobs[i], self.expected[id(draft)]
        if held[job]:
            draft.stop(job)
            held[job] = 0

    @rule(draft=drafts, time_s=st.sampled_from((1.0, 2.0)))
    def wake(self, draft: Proposal, time_s: float) -> None:
        draft.wake_at = self.wake_ups[id(draft)] = time_s

    @rule(target=drafts, draft=drafts)
    def copy(self, draft: Proposal) -> Proposal:
        twin = self.known(draft.copy(), dict(self.expected[id(draft)]))
        self.wake_ups[id(twin)] = self.wake_ups.get(id(draft))
        return twin

    @invariant()
    def drafts_are_possible(self) -> None:
        for draft in getattr(self, "all", []):
            held = self.expected[id(draft)]
            used = [0, 0, 0]
            for job in self.jobs:
                assert draft.gpus(job) == held[job]
                places = draft.placement(job) or ()
                assert sum(count for _, count in places) == held[job]
                for node, count in places:
                    used[node] += count
            assert max(used) <= 4
            assert (draft.free, draft.wake_at) == (12 - sum(used), self.wake_ups.get(id(draft)))
            assert [draft.free_on(node) for node in range(3)] == [4 - count for count in used]

    @invariant()
    def reality_stays(self) -> None:
        if hasattr(self, "before"):
            assert (self.state.free, {job: active_of(job).placement for job in self.jobs}) == self.before


TestDrafting = Drafting.TestCase
TestDrafting.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


# Searches


# run_by


def naive_run_by(state: State, key: Callable[[JobView], Any]) -> list[JobView]:
    """Serve all active jobs strictly by key; a job without room is skipped. Any free GPU will do."""
    left, chosen = state.cluster.gpus, []
    for job in sorted([*state.pending, *state.running], key=lambda job: (key(job), job.order)):
        if job.requested <= left:
            chosen.append(job)
            left -= job.requested
    return chosen


def remaining(job: JobView) -> float:
    return job.oracle_remaining()


def aged(job: JobView) -> float:
    """It changes while the job waits, and never grows while it runs."""
    return job.oracle_remaining() - 2.5 * job.waited_s


def by_value(values: list[int], job: JobView) -> int:
    return values[int(job.id)]


class Wanderer(Scheduler):
    """Runs an arbitrary set of jobs, and compares `run_by` with the definition at each decision."""

    def __init__(self, seed: int, values: list[int]):
        self.random, self.key = Random(seed), partial(by_value, values)
        self.compared = 0

    def schedule(self, state: State) -> Proposal:
        draft = state.proposal()
        draft.run_by(self.key)
        running = [job for job in [*state.running, *state.pending] if draft.gpus(job)]
        if state._facts.placer.name == "any":
            chosen = naive_run_by(state, self.key)
            assert sorted(job.id for job in running) == sorted(job.id for job in chosen)
        assert draft.free == state.cluster.gpus - sum(job.requested for job in running)
        kept = [job for job in state.running if draft.gpus(job)]
        if state._facts.placer.name == "any":
            assert all(draft.placement(job) == active_of(job).placement for job in kept), (
                "a job that keeps running keeps its GPUs"
            )
        for falling in (self.key, remaining):
            one, other = state.proposal(), state.proposal()
            one.run_by(falling)
            other.run_by(falling, falling=True)
            assert list(one.changes.items()) == list(other.changes.items()), "a promise changes nothing"
        self.compare_ageing(state)
        self.compared += 1
        return self.wander(state)

    def compare_ageing(self, state: State) -> None:
        draft, other = state.proposal(), state.proposal()
        draft.run_by(aged, changing=True)
        other.run_by(aged, changing=True, falling=True)
        assert list(draft.changes.items()) == list(other.changes.items()), "a promise changes nothing"
        if state._facts.placer.name == "any":
            running = [job.id for job in [*state.running, *state.pending] if draft.gpus(job)]
            assert sorted(running) == sorted(job.id for job in naive_run_by(state, aged))

    def wander(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in [job for job in state.running if self.random.random() < 0.3]:
            proposal.stop(job)
        for job in [job for job in state.pending if self.random.random() < 0.6]:
            proposal.start(job)
        if state.pending or state.running:
            proposal.wake_at = state.now + 10.0
        return proposal


rows = st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(1, 60))


def trace_of(shapes: list[tuple[int, int, int]]) -> list[Job]:
    return [
        rigid(str(i), 7.0 * sum(gap for gap, _, _ in shapes[: i + 1]), gpus, float(run_s))
        for i, (_, gpus, run_s) in enumerate(shapes)
    ]


rigid_traces = st.lists(rows, min_size=1, max_size=14).map(trace_of)


@pytest.mark.parametrize("placement", ["any", "pack", "spread", "buddy"])
@given(
    jobs=rigid_traces,
    seed=st.integers(0, 10**6),
    values=st.lists(st.integers(0, 4), min_size=14, max_size=14),
)
@settings(max_examples=examples(60), deadline=None)
def test_run_by_is_the_naive_greedy(placement: str, jobs: list[Job], seed: int, values: list[int]) -> None:
    policy = Wanderer(seed, values)
    outcome = simulate(jobs, policy, "n3g4", placement=placement)
    assert policy.compared >= 1
    assert all(record.state in ("finished", "rejected") for record in outcome.records)


def assert_contract(state: State, proposal: Proposal, key: Callable[[JobView], Any]) -> None:
    """No job waits for one behind it or for free GPUs, and none loses GPUs that no job before it takes."""
    active = sorted([*state.pending, *state.running], key=lambda job: (key(job), job.order))
    for place, job in enumerate(active):
        placement = proposal.placement(job)
        if placement is None or active_of(job).placement not in (None, placement):
            draft = proposal.copy()
            for later_job in active[place:]:
                if draft.placement(later_job):
                    draft.stop(later_job)
            assert not draft.keep(job), f"job {job.id} loses its GPUs"
            assert placement or not draft.start(job), f"job {job.id} waits"


SPLIT_ROOM = [(0, 7, 8), (0, 3, 2), (0, 1, 6), (0, 1, 8), (0, 3, 1), (1, 5, 1)]  # gap / 7 s, GPUs, run time
CORES = Cluster.of([NodeGroup("a", nodes=3, gpus_per_node=4, gpu_type="a", cpus_per_node=8)])


@pytest.mark.parametrize("placement", ["pack", "topology", "buddy", "spread"])
@given(
    jobs=rigid_traces,
    values=st.lists(st.integers(0, 4), min_size=14, max_size=14),
    cores=st.lists(st.sampled_from((0, 1, 3)), min_size=14, max_size=14),
    limited=st.booleans(),
)
@example(jobs=trace_of(SPLIT_ROOM), values=[1, 1, 0, 0, 1, 0], cores=[0] * 6, limited=False)
@settings(max_examples=examples(60), deadline=None)
def test_run_by_wastes_nothing_where_placement_may_keep_jobs_out(
    placement: str, jobs: list[Job], values: list[int], cores: list[int], limited: bool
) -> None:
    key = partial(by_value, values)

    def act(state: State, proposal: Proposal) -> None:
        proposal.run_by(key)
        assert_contract(state, proposal, key)

    if limited:  # each node has cores for 4 GPUs at 1 core each, or for 2 at 3
        jobs = [
            replace(job, cpus=count and job.gpus * count) for job, count in zip(jobs, cores, strict=False)
        ]
    simulate(jobs, Acts(act), CORES if limited else "n3g4", placement=placement)


# compact


TABLE = {("m", 8): {1: 1.0, 2: 1.6, 4: 3.0, 8: 2.0}}
ELASTIC = Job("e", 0.0, model="m", global_batch=8, gpus=2, iterations=320.0)
POWERS = {("m", 8): {n: n**0.9 for n in (1, 2, 4, 8, 16, 32)}}


class Compacting(Restless):
    """Runs jobs at arbitrary sizes, and tries `compact` on a draft at each decision."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.compared = 0

    def schedule(self, state: State) -> Proposal:
        self.compare(state)
        return super().schedule(state)

    def compare(self, state: State) -> None:
        """All jobs that fit by number of GPUs are placed, and no other job loses GPUs."""
        node, draft = state.cluster.gpus_per_node, state.proposal()
        active = [*state.running, *state.pending]
        expected = {job: job.gpus for job in active}
        wanted: dict[JobView, int] = {}
        for job in self.random.sample(active, self.random.randint(0, len(active))):
            gpus = self.random.choice(job.sizes)
            room = state.cluster.gpus - sum(expected.values()) + expected[job]
            if gpus <= room and (gpus >= job.gpus or job.gpus < node):
                wanted[job] = expected[job] = gpus
        draft.compact(wanted)
        assert {job: draft.gpus(job) for job in active} == expected
        used: dict[int, int] = {}
        for job in active:
            for place, count in draft.placement(job) or ():
                used[place] = used.get(place, 0) + count
        assert all(count <= node for count in used.values())
        assert draft.free == state.cluster.gpus - sum(used.values())
        self.compared += 1


@given(
    seed=st.integers(0, 10**6),
    work=st.lists(
        st.tuples(st.sampled_from((0.0, 3.0, 9.0, 20.0)), st.integers(1, 200)), min_size=1, max_size=12
    ),
)
@settings(max_examples=examples(80), deadline=None)
def test_compact_makes_room(seed: int, work: list[tuple[float, int]]) -> None:
    jobs = [elastic(str(i), at, 1, float(n)) for i, (at, n) in enumerate(work)]
    policy = Compacting(seed)
    simulate(jobs, policy, "n4g8", table=POWERS, until_s=2000)
    assert policy.compared >= len({job.submit_s for job in jobs})


def test_compact_of_more_than_there_is_room_for() -> None:
    """Jobs without room get no GPUs, and no rule is broken."""

    def step(proposal: Proposal, jobs: dict[str, JobView]) -> None:
        proposal.compact({jobs["x"]: 8, jobs["y"]: 8, jobs["e"]: 2})
        assert proposal.gpus(jobs["x"]) + proposal.gpus(jobs["y"]) == 8
        assert proposal.gpus(jobs["e"]) == 0

    wide = tuple(Job(j, 0.0, gpus=8, duration_s=1.0) for j in "xy")
    simulate([*wide, ELASTIC], Script({0.0: step}), "n2g4", table=TABLE)
