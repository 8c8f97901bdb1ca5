"""Drafts in any order of calls: no GPU twice, gangs whole, and reality unchanged."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from clustersim.cluster import Cluster
from clustersim.jobs import ActiveJob
from clustersim.overheads import Overheads
from clustersim.placement import placer
from clustersim.placement.placers import PLACERS
from clustersim.scheduler import JobView, Proposal, State
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of
from clustersim.speed import Curve
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

    @rule(target=drafts, draft=drafts)
    def copy(self, draft: Proposal) -> Proposal:
        return self.known(draft.copy(), dict(self.expected[id(draft)]))

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
            assert draft.free == 12 - sum(used)
            assert [draft.free_on(node) for node in range(3)] == [4 - count for count in used]

    @invariant()
    def reality_stays(self) -> None:
        if hasattr(self, "before"):
            assert (self.state.free, {job: active_of(job).placement for job in self.jobs}) == self.before


TestDrafting = Drafting.TestCase
TestDrafting.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
