"""`Proposal.run`: jobs with GPU counts, most important first, as a draft that runs them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of
from clustersim.testing import decide, simulate
from tests.builders import Acts, MixedBench, elastic, rigid
from tests.effort import examples
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 1.9, 3: 2.5, 4: 3.4, 8: 5.5, 16: 8.0}}


def job(name: str, gpus: int = 4, submit_s: float = 0.0) -> Job:
    return elastic(name, submit_s, gpus, 10_000.0)


FREE = Overheads.none()


def asked(
    wanted: Mapping[str, Any],
    before: Callable[[Proposal, Any], object] = lambda proposal, jobs: None,
    running: Any = (),
    pending: Any = (),
    overheads: Overheads = FREE,
    cluster: str = "2x8",
    **options: bool,
) -> tuple[str, Any]:
    """The decision of a policy that calls `run` once, in words, and what `run` returned."""
    returned: dict[str, int] = {}

    def act(state: State, proposal: Proposal) -> None:
        jobs = {job.id: job for job in (*state.running, *state.pending)}
        before(proposal, jobs)
        unmet = proposal.run({jobs[name]: gpus for name, gpus in wanted.items()}, **options)
        returned.update({job.id: gpus for job, gpus in unmet.items()})

    decision = decide(
        Acts(act), running=running, pending=pending, cluster=cluster, table=TABLE, overheads=overheads
    )
    return str(decision), returned


DECISIONS = {
    case["case"]: case
    for case in yaml.safe_load(Path(__file__).with_name("run_decisions.yaml").read_text(encoding="utf-8"))
}
"""GPUs of running jobs, columns of pending ones, what is wanted, the decision, and what it leaves unmet."""


@pytest.mark.parametrize("name", DECISIONS)
def test_counts_become_a_decision(name: str) -> None:
    case = DECISIONS[name]
    running = [(job(name), gpus) for name, gpus in case.get("running", {}).items()]
    pending = [job(name, **columns) for name, columns in case["pending"].items()]
    answer = asked(case["wanted"], running=running, pending=pending, **case.get("options", {}))
    assert answer == (case["decision"], case.get("unmet", {}))


def test_jobs_that_state_a_part_of_a_gpu_count_as_that_part() -> None:
    halves = [Job(name, 0.0, "team", gpus=1, gpu_fraction=0.5, duration_s=99.0) for name in "de"]
    pending = [job("b", gpus=3), job("c", gpus=8), *halves]
    text, unmet = asked({"a": 4, "b": 3, "c": 8, "d": 1, "e": 1}, running=[job("a")], pending=pending)
    assert not unmet, text
    assert "start e on 1 GPU" in text


def test_what_is_idle_of_a_shared_gpu_goes_to_the_next_job_where_no_whole_gpu_is_free() -> None:
    parts = {"p": 0.6, "q": 0.6, "r": 0.7, "s": 0.5, "t": 0.5, "v": 0.5}
    jobs = {name: Job(name, 0.0, gpus=1, gpu_fraction=parts[name], duration_s=99.0) for name in parts}
    pending = [rigid("w", 0.0, 2, 99.0), jobs.pop("v")]
    wanted = {"q": 1, "w": 2, **dict.fromkeys("spvrt", 1)}
    text, _ = asked(wanted, running=[*jobs.values()], pending=pending, cluster="2x2")
    changes = "stop p; stop r; stop t; move s to 1 GPU (node 0); start v on 1 GPU (node 0); start w on 2 GPUs"
    assert text == f"t=0 s: {changes} (node 1)"


def test_what_the_draft_has_changed_before_counts() -> None:
    def before(proposal: Proposal, jobs: Mapping[str, JobView]) -> None:
        proposal.stop(jobs["a"])
        proposal.start(jobs["b"], 4, on=((1, 4),))

    wanted = {"b": 4, "a": 8}
    text, _ = asked(wanted, running=[job("a")], pending=[job("b")], before=before)
    assert text == "t=0 s: resize a from 4 to 8 GPUs (node 0); start b on 4 GPUs (node 1)"


@pytest.mark.parametrize("gpus", [5, -1, 32, 2.5, "4"])
def test_a_count_that_a_job_cannot_run_on_is_refused(gpus: Any) -> None:
    with pytest.raises(PolicyError, match=r"run\(job a, gpus=.*it can run on 1, 2, 3, 4, 8, 16 GPUs"):
        asked({"a": gpus}, pending=[job("a")])


NO_JOBS = r"run: wants \{job: GPUs\}, .*, not .*"
IMPOSSIBLE: list[tuple[Callable[[JobView], Any], str]] = [
    (lambda a: None, NO_JOBS),
    (lambda a: 5, NO_JOBS),
    (lambda a: "ab", NO_JOBS),
    (lambda a: [a], NO_JOBS),
    (lambda a: [(a, 4)], NO_JOBS),
    (lambda a: [(a, 4, None, 1)], NO_JOBS),
    (lambda a: {a: (4,)}, NO_JOBS),
    (lambda a: {"a": 4}, NO_JOBS),
    (lambda a: [(a, 1, 7)], "unknown GPU type .*7.*"),
    (lambda a: [(a, 1, "b")], "unknown GPU type .*b.*"),
]


@pytest.mark.parametrize(("wanted", "text"), IMPOSSIBLE)
def test_what_is_no_list_of_jobs_is_reported_at_the_line_of_the_policy(
    wanted: Callable[[JobView], Any], text: str
) -> None:
    def act(state: State, proposal: Proposal) -> None:
        for job in state.pending:
            proposal.run(wanted(job))

    with pytest.raises(PolicyError, match=rf"{text}test_run_counts\.py:\d+\)$"):
        simulate([rigid("a", 0, 1, 10)], Acts(act))


def test_a_job_that_has_left_is_refused() -> None:
    jobs: list[JobView] = []

    def act(state: State, proposal: Proposal) -> None:
        jobs.extend(state.pending)
        proposal.run(dict.fromkeys(jobs, 1))

    with pytest.raises(PolicyError, match="no longer in the system"):
        simulate([rigid("a", 0, 1, 10)], Acts(act))


def test_a_list_names_a_job_once_for_every_type_that_would_do() -> None:
    seen: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        jobs = sorted((*state.running, *state.pending), key=lambda job: job.order)
        unmet = proposal.run([(job, 4, name) for job in jobs for name in ("fast", "slow")], smaller=False)
        types = {job.id: proposal.gpu_type(job) for job in jobs}
        seen.append((types, {job.id: gpus for job, gpus in unmet.items()}))

    fast = {("m", 8): {4: 9.0, 8: 20.0}}
    bench = MixedBench([("slow", 1, 4), ("fast", 1, 8)], {"slow": TABLE, "fast": fast})
    bench.run([elastic(name, 0, 4, 900) for name in "abcd"], Acts(act))
    assert seen[0] == ({"a": "fast", "b": "fast", "c": "slow", "d": None}, {"d": 0})


def test_a_mapping_may_name_types() -> None:
    seen: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        if state.now == 0:
            a, b, c = state.pending
            unmet = proposal.run({a: (3, "slow"), b: (8, None), c: (2, "slow")})
            seen.append({job.id: (proposal.gpus(job), proposal.gpu_type(job)) for job in (a, b, c)})
            seen.append({job.id: gpus for job, gpus in unmet.items()})

    bench = MixedBench([("slow", 1, 4), ("fast", 1, 8)], {"slow": TABLE, "fast": TABLE})
    bench.run([elastic(name, 0, 4, 900) for name in "abc"], Acts(act))
    assert seen == [{"a": (3, "slow"), "b": (8, "fast"), "c": (1, "slow")}, {"c": 1}]


def test_settling_jobs_keep_their_counts_where_that_is_asked_for() -> None:
    """They have worked for less than a restart takes: `decide` charges no launch, and restarts take 100 s."""
    scene: Any = {
        "pending": [job("c", submit_s=60.0)],
        "overheads": Overheads(launch_s=100.0, plain_restart_s=0.0),
    }
    whole, half = [(job("a"), 8), (job("b"), 8)], [(job("a"), 4), (job("b"), 4), (job("d"), 4)]
    wanted = {"c": 8, "a": 8}
    assert asked(wanted, running=whole, **scene) == ("t=60 s: stop b; start c on 8 GPUs (node 1)", {})
    text = "t=60 s: nothing changes; c waits; wake up at t=100 s"
    assert asked(wanted, running=whole, **scene, let_settle=True) == (text, {"c": 0})
    # They move together, too: otherwise others would wait for GPUs that are free, though scattered.
    text = "t=60 s: stop b; move d to 4 GPUs (node 0); start c on 8 GPUs (node 1)"
    decision, unmet = asked(
        {"c": 8, "a": 4, "d": 4},
        lambda proposal, jobs: proposal.stop(jobs["b"]),
        running=half,
        **scene,
        let_settle=True,
    )
    assert (decision, unmet) == (text, {})


class Wanders(Scheduler):
    """Runs random counts of random jobs, and checks each draft."""

    def __init__(self, seed: int):
        self.random, self.calls = Random(seed), 0

    def schedule(self, state: State) -> Proposal:
        random, proposal = self.random, state.proposal()
        jobs = [*state.running, *state.pending]
        random.shuffle(jobs)
        wanted = {job: random.choice((0, *job.sizes)) for job in jobs if random.random() < 0.8}
        wanted |= {job: job.gpus for job in state.running if random.random() < 0.3}
        smaller = random.random() < 0.5
        unmet = proposal.run(wanted, smaller=smaller)
        self.check(state, proposal, wanted, unmet, smaller)
        again = state.proposal()
        assert again.run(wanted, smaller=smaller) == unmet
        assert list(again.changes.items()) == list(proposal.changes.items())
        self.calls += 1
        if state.pending or state.running:
            proposal.wake_at = state.now + 50
        return proposal

    def check(
        self, state: State, proposal: Proposal, wanted: dict[JobView, int], unmet: dict[JobView, int],
        smaller: bool,
    ) -> None:  # fmt: skip
        assert unmet == {job: proposal.gpus(job) for job, n in wanted.items() if proposal.gpus(job) != n}
        named = [job for job, gpus in wanted.items() if gpus]
        for job in proposal.running():
            if proposal.placement(job) != active_of(job).placement:
                gpus, wish = proposal.gpus(job), wanted.get(job, 0)
                if job.running and gpus == job.gpus:  # small jobs move together
                    assert state._facts.placer.name != "any", "what keeps its count keeps its place"
                else:
                    assert gpus == wish or (smaller and gpus < wish)
        if sum(wanted.values()) <= state.in_service and state._facts.placer.name == "any":
            assert not any(wanted[job] for job in unmet)
        first = named[0] if named else None
        if first is not None and wanted[first] <= state.in_service:
            assert proposal.gpus(first) == wanted[first], "the most important job runs"
        order = named + [job for job in state.running if job not in wanted]
        for place, job in enumerate(order):
            if job.running and not proposal.gpus(job):
                without = proposal.copy()
                for less in order[place + 1 :]:
                    if without.placement(less) and without.placement(less) != active_of(less).placement:
                        without.stop(less)
                assert not without.keep(job), "it loses its GPUs to more important jobs"
        if smaller:
            waiting = [job for job in named if not proposal.gpus(job)]
            assert not any(proposal.fits(job.sizes[0]) for job in waiting), "what fits runs"


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10**6), placement=st.sampled_from(["any", "pack", "buddy", "spread", "topology"]))
def test_any_counts_give_a_draft_as_described(seed: int, placement: str) -> None:
    random = Random(seed)
    jobs = [elastic(f"{i}", float(random.randrange(100)), 4, random.uniform(50, 400)) for i in range(12)]
    policy = Wanders(seed)
    cluster = Cluster(random.choice((1, 2, 3)), 8)
    simulate(jobs, policy, cluster, table=TABLE, placement=placement, until_s=2000)
    assert policy.calls > 10
