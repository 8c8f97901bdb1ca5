"""Work left, curves and costs of changes, as a view states them, and look-aheads: what the engine does."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, isclose, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.look_ahead import Shares
from clustersim.testing import simulate
from tests.builders import Acts, Bench, elastic, free_setup, rigid, stated_speed
from tests.effort import examples
from traces.job import Job, submission_order

# Costs of changes


SLOW = {("m", 8): {1: 1.0, 2: 1.8, 4: 3.0, 8: 5.0}, ("w", 8): {2: 0.5, 4: 0.9, 16: 2.0}}
FAST = {("m", 8): {1: 2.0, 2: 3.5, 4: 6.5}, ("w", 8): {4: 2.0, 8: 3.0}}
PARAMETERS = {"m": 1e9, "w": 6e9}
PLAIN = Cluster(4, 4)
MIXED = Cluster.of(
    [NodeGroup("a", 3, 4, gpu_type="a"), NodeGroup("b", 2, 8, gpu_type="b", usd_per_gpu_hour=2.0)]
)


def jobs(seed: int) -> list[Job]:
    random, made = Random(seed), []
    for i in range(8):
        at = float(random.choice((0, 0, 25, 60, 130)))
        if random.random() < 0.2:
            made.append(rigid(f"{i}", at, random.choice((1, 2, 4)), random.uniform(20, 200)))
        else:
            model = random.choice("mw")
            work = random.uniform(40, 400)
            made.append(elastic(f"{i}", at, 4, work, model=model, global_batch=8))
    return made


class Changer(Scheduler):
    """Stops, starts, resizes and moves jobs at random times, and notes what each change was said to cost."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.said: dict[tuple[float, str], float] = {}

    def schedule(self, state: State) -> Proposal:
        random, proposal = self.random, state.proposal()
        for job in [*state.running, *state.pending]:
            if random.random() < 0.5:
                continue
            if job.running and random.random() < 0.4:
                proposal.stop(job)
                continue
            gpu_type = random.choice(job.gpu_types)
            sizes = job.curve_on(gpu_type).sizes
            gpus = random.choice(sizes)
            if job.running:
                proposal.stop(job)  # so that a change of place alone is a migration
            proposal.start(job, gpus, gpu_type=gpu_type)
        for job, placement in proposal.changes.items():
            gpu_type = proposal.gpu_type(job)
            if placement and gpu_type:
                node = state.cluster.pool(gpu_type).gpus_per_node
                stays = job.gpus == proposal.gpus(job) and job.gpu_type == gpu_type
                if len(placement) == -(-proposal.gpus(job) // node) and not stays:
                    self.said[state.now, job.id] = job.change_cost_s(proposal.gpus(job), gpu_type)
        if state.running or state.pending:
            proposal.wake_at = state.now + random.choice((1.0, 7.0, 20.0, 33.0, 90.0))
        return proposal


@st.composite
def overheads(draw: Any) -> Overheads:
    seconds = st.sampled_from((0.0, 3.0, 20.0))
    return Overheads(
        launch_s=draw(seconds),
        launch_gpu_s=draw(st.sampled_from((0.0, 0.5))),
        plain_restart_s=draw(seconds),
        resize_s=draw(seconds),
        migrate_s=draw(seconds),
        checkpoint_bytes_per_parameter=draw(st.sampled_from((0.0, 14.0))),
        checkpoint_interval_s=draw(st.sampled_from(("none", "daly", 10.0))),
        storage_shared=draw(st.booleans()),
        scale=draw(st.sampled_from((0.0, 1.0, 1.5))),
    )


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), charged=overheads(), mixed=st.booleans(), fails=st.booleans())
def test_a_change_costs_what_the_view_says(seed: int, charged: Overheads, mixed: bool, fails: bool) -> None:
    """States: never started, waiting after work, stopped while paying, running, paying; resizes, restarts and
    changes of type; with periodic checkpoints, failures and shared storage.
    """
    cluster = MIXED if mixed else PLAIN
    speed = stated_speed(cluster, {"a": SLOW, "b": FAST} if mixed else SLOW, PARAMETERS)
    policy = Changer(seed)
    failures = Failures(mtbf_gpu_h=0.5, kinds={"short": (1.0, 0.01)}) if fails else None
    setup = free_setup(
        cluster, policy, speed=speed, overheads=charged, failures=failures, seed=seed, until_s=3000.0
    )
    recorder = Simulation(submission_order(jobs(seed)), setup).run()
    models = {job.job_id: PARAMETERS.get(job.model or "", 0.0) for job in jobs(seed)}
    compared = 0
    for event in recorder.events:
        said = policy.said.pop((event.time_s, event.job_id), None)
        if event.event not in ALLOCATES or said is None:
            continue
        nodes = len(event.placement)
        paid_s = event.overhead_s
        alone_s = charged.load_s(models[event.job_id], nodes)
        loads = charged.shares_load(models[event.job_id]) and isclose(said, paid_s + alone_s)
        assert isclose(said, paid_s, abs_tol=1e-9) or loads, event
        compared += 1
    assert compared >= 3


def looked_at(job: Job, at_s: float, look: Any, *, charged: Overheads, **more: Any) -> Any:
    """What `look(view)` returns at a time of a run in which the job starts at once on 4 GPUs."""
    seen: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        for view in state.pending:
            proposal.start(view, 4)
        if state.now == at_s:
            seen.append(look(next(iter(state.running))))
        elif state.now < at_s:
            proposal.wake_at = at_s

    speed = stated_speed(PLAIN, SLOW, PARAMETERS)
    Simulation([job], free_setup(PLAIN, Acts(act), speed=speed, overheads=charged, **more)).run()
    return seen[0]


CHARGED = Overheads(launch_s=10.0, plain_restart_s=20.0, resize_s=4.0, checkpoint_bytes_per_parameter=0.0)


@pytest.mark.parametrize(
    ("at_s", "stay", "resize"),
    [(4.0, 6.0, 14.0), (10.0, 0.0, 14.0), (25.0, 0.0, 34.0)],
    ids=["it pays its launch and has nothing to save or load", "its launch is paid", "it has worked"],
)
def test_staying_costs_what_is_still_to_pay(at_s: float, stay: float, resize: float) -> None:
    def look(view: JobView) -> tuple[float, ...]:
        return view.change_cost_s(4), view.change_cost_s(8), view.start_cost_s(8), view.restart_s(8)

    found = looked_at(elastic("a", 0.0, 4, 300.0), at_s, look, charged=CHARGED)
    assert found == (stay, resize, resize - 4.0, 34.0)


def test_work_left_is_in_units_of_the_rate() -> None:
    def look(view: JobView) -> tuple[float, ...]:
        return view.work_left, view.oracle_work_left, view.remaining(8) * view.rate(8), view.rate(4)

    assert looked_at(elastic("a", 0.0, 4, 300.0), 30.0, look, charged=CHARGED) == (240.0, 240.0, 240.0, 3.0)


def test_only_the_oracle_knows_the_work_of_a_job_that_does_not_state_it() -> None:
    noted: list[bool] = []

    def look(view: JobView) -> tuple[float, ...]:
        left = view.work_left
        noted.append(view._facts.oracle_used)
        left, true = left, view.oracle_work_left
        noted.append(view._facts.oracle_used)
        return left, true, view.rate(4)

    assert looked_at(rigid("a", 0.0, 4, 300.0), 30.0, look, charged=CHARGED) == (inf, 280.0, 1.0)
    assert noted == [False, True]


def test_jobs_of_a_kind_share_one_curve() -> None:
    curves: dict[str, Any] = {}

    def look(state: State, proposal: Proposal) -> None:
        for view in [*state.pending]:
            curve = curves[view.id] = view.curve
            assert view.curve is curve
            assert curve.sizes == view.sizes
            assert curve.rates == tuple(view.rate(n) for n in view.sizes)
            assert curve.restarts == tuple(view.restart_s(n) for n in view.sizes)
            assert curve.launches == tuple(view.start_cost_s(n) for n in view.sizes)
            proposal.start(view)

    made = [elastic(name, 0.0, 4, 30.0, model=model) for name, model in (("a", "m"), ("b", "w"), ("c", "m"))]
    Bench(PLAIN, SLOW, PARAMETERS, replace(CHARGED, launch_gpu_s=1.0)).run(made, Acts(look))
    assert curves["a"] is curves["c"]
    assert curves["a"] is not curves["b"]
    assert {curves["a"]: 1}[curves["c"]] == 1


def test_a_type_that_cannot_run_the_job_has_no_counts() -> None:
    seen: list[Any] = []

    def look(state: State, proposal: Proposal) -> None:
        for view in state.pending:
            seen.append((view.curve_on("a").sizes, view.curve_on("b").sizes, view.curve.sizes))
            seen.append((view.curve_on("b").rates, view.curve_on("b").restarts))
            for ask in (view.curve_on, partial(view.change_cost_s, 4)):
                with pytest.raises(PolicyError, match="GPU type"):
                    ask("c")

    bench = Bench(MIXED, {"a": {}, "b": FAST}, PARAMETERS, Overheads())
    bench.run([elastic("x", 0.0, 4, 30.0, model="w")], Acts(look), until_s=1.0)
    save_s = 6e9 * 14 / 2e9
    assert seen[0] == ((), (4, 8), (4, 8))
    assert seen[1] == ((2.0, 3.0), (30 + 2 * save_s, 30 + 2 * save_s))


@pytest.mark.parametrize(("at_s", "owed_s"), [(29.0, 10.0), (30.0, 0.0), (31.0, 10.0)])
def test_a_job_that_has_just_saved_owes_no_save(at_s: float, owed_s: float) -> None:
    """It launches until 10 s, works until 20 s and saves until 30 s."""
    periodic = replace(CHARGED, checkpoint_interval_s=10.0)
    failures = Failures(mtbf_gpu_h=1e9, kinds={"rare": (1.0, 1.0)})
    job = elastic("a", 0.0, 4, 300.0)
    cost_s = looked_at(job, at_s, lambda view: view.change_cost_s(8), charged=periodic, failures=failures)
    assert cost_s == 24.0 + owed_s


# Look-aheads, where placement does not matter


NODE = 4
WHOLE = {("m", 8): {4: 1.0, 8: 1.8, 16: 3.0}, ("w", 8): {8: 0.5, 16: 0.9, 32: 1.2}}
WHOLE_FAST = {("m", 8): {4: 2.0, 8: 3.9}, ("w", 8): {8: 2.0, 16: 2.5}}
NODES_OF_4 = Cluster(8, NODE)
TWO_TYPES = Cluster.of([NodeGroup("a", 5, 4, gpu_type="a"), NodeGroup("b", 4, 4, gpu_type="b")])


def erratic(seed: int, state: State) -> dict[JobView, tuple[int, str | None]]:
    """Shares that are a function of the jobs in the system alone: whole nodes, different after each end."""
    jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
    random = Random(f"{seed} {[job.id for job in jobs]} {state.in_service}")
    left, shares = state.in_service_by_type(), {}
    order = list(jobs)
    random.shuffle(order)
    for job in order:
        gpu_type = random.choice(job.gpu_types)
        fitting = [n for n in job.sizes_on(gpu_type) if n <= left[gpu_type]]
        stays = job.gpu_type is not None and random.random() < 0.4 and job.gpus <= left[job.gpu_type]
        if stays:
            assert job.gpu_type is not None
            shares[job] = job.gpus, job.gpu_type
            left[job.gpu_type] -= job.gpus
        elif fitting and random.random() < 0.8:
            shares[job] = random.choice(fitting), gpu_type
            left[gpu_type] -= shares[job][0]
    if jobs and not shares:
        job = min(jobs, key=lambda job: job.sizes[0])
        shares[job] = job.sizes[0], job.gpu_types[0]
    return shares


def made_jobs(seed: int, count: int) -> list[Job]:
    random, made = Random(seed), []
    for i in range(count):
        at = float(random.choice((0, 0, 20, 45, 130)))
        if random.random() < 0.2:
            made.append(rigid(f"{i}", at, random.choice((4, 8, 16)), random.uniform(20, 200)))
        else:
            made.append(elastic(f"{i}", at, 8, random.uniform(40, 400), model=random.choice("mw")))
    return made


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), charged=overheads(), mixed=st.booleans(), ask_at=st.integers(0, 4))
def test_jobs_end_when_it_was_foreseen(seed: int, charged: Overheads, mixed: bool, ask_at: int) -> None:
    """Jobs of whole nodes, in any state: never started, paying, running, stopped; on one or two GPU types."""
    charged = replace(charged, storage_shared=False, checkpoint_interval_s="none")
    cluster = TWO_TYPES if mixed else NODES_OF_4
    speed = stated_speed(cluster, {"a": WHOLE, "b": WHOLE_FAST} if mixed else WHOLE, PARAMETERS)
    jobs = made_jobs(seed, 8)
    foreseen: dict[str, float] = {}
    submitted, asks = 0, ask_at

    def act(state: State, proposal: Proposal) -> None:
        """Follow `erratic`; after the last submission ask when the jobs will end."""
        nonlocal submitted, asks
        submitted += sum(event.kind == "submitted" for event in state.events)
        if submitted == len(jobs) and not foreseen:
            asks -= 1
            if asks < 0:
                foreseen.update(by_id(state.look_ahead(lambda ahead: erratic(seed, ahead))))
        wanted = erratic(seed, state)
        assert not proposal.run(
            wanted | {job: 0 for job in state.running if job not in wanted}, smaller=False
        )

    setup = free_setup(cluster, Acts(act), speed=speed, overheads=charged)
    ends = {record.job_id: record.finish_s for record in Simulation(submission_order(jobs), setup).run().jobs}
    assert ask_at > 0 or foreseen
    for job_id, end_s in foreseen.items():
        assert ends[job_id] == pytest.approx(end_s, rel=1e-9, abs=1e-6)
    assert list(foreseen.values()) == sorted(foreseen.values())


def in_order(state: State) -> dict[JobView, int]:
    jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
    return dict.fromkeys(jobs[: state.in_service // 8], 8)


def asked(ask: Callable[[State], Any], *jobs: Job, at_s: float = 50.0) -> Any:
    """What `ask` returns at `at_s`, where jobs run in order of submission on 8 GPUs each. By default on 16
    GPUs `a` (90 iterations at 1.8/s) and `b` (180) have run since 0 s, 10 s of it launch; `c` (90) waits.
    """
    answers: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        proposal.run(in_order(state))
        if state.now == at_s:
            answers.append(ask(state))
        elif state.now < at_s:
            proposal.wake_at = at_s

    rows = (("a", 0, 90.0), ("b", 0, 180.0), ("c", 10, 90.0))
    jobs = jobs or tuple(elastic(name, submit_s, 8, work) for name, submit_s, work in rows)
    simulate(jobs, Acts(act), "n4g4", table=WHOLE, overheads=Overheads(launch_s=10.0, plain_restart_s=20.0))
    return answers[0]


def by_id(ends: dict[JobView, float]) -> dict[str, float]:
    return {job.id: end_s for job, end_s in ends.items()}


def test_the_ends_by_hand() -> None:
    ends = asked(lambda state: by_id(state.look_ahead(in_order)))
    assert ends == pytest.approx({"a": 60.0, "b": 110.0, "c": 120.0})
    assert list(ends) == ["a", "b", "c"]


def test_a_rule_that_moves_jobs_pays_for_it() -> None:
    """`b` stops for `c` at once: launch 10 s, work 50 s. At 60 s `a` ends and `b` restarts in 30 s."""

    def last_first(ahead: State) -> Shares:
        jobs = sorted([*ahead.running, *ahead.pending], key=lambda job: (job.id == "b", job.order))
        return dict.fromkeys(jobs[:2], 8)

    ends = asked(lambda state: by_id(state.look_ahead(last_first)))
    assert ends == pytest.approx({"a": 60.0, "c": 110.0, "b": 60.0 + 30.0 + 60.0})


def test_what_the_rule_sees_as_time_passes() -> None:
    seen: list[Any] = []

    def rule(ahead: State) -> Shares:
        ended = [event.job.id for event in ahead.events if event.job is not None]
        left = {job.id: round(job.remaining(8)) for job in [*ahead.running, *ahead.pending]}
        seen.append((round(ahead.now), ended, left, ahead.free, len(ahead.pending)))
        return in_order(ahead)

    asked(lambda state: state.look_ahead(rule, round_s=20.0))
    assert seen == [
        (50, [], {"a": 10, "b": 60, "c": 50}, 0, 1),
        (60, ["a"], {"b": 50, "c": 50}, 8, 1),
        (80, [], {"b": 30, "c": 40}, 0, 0),
        (100, [], {"b": 10, "c": 20}, 0, 0),
        (110, ["b"], {"c": 10}, 8, 0),
    ]


def test_the_end_of_the_look_and_jobs_without_gpus() -> None:
    ends = asked(lambda state: by_id(state.look_ahead(in_order, until_s=110.0)))
    assert ends == pytest.approx({"a": 60.0, "b": 110.0, "c": inf})
    assert asked(lambda state: by_id(state.look_ahead(lambda ahead: {}))) == dict.fromkeys("abc", inf)
    some = asked(lambda state: by_id(state.look_ahead(in_order, [*state.pending])))
    assert some == pytest.approx({"c": 110.0})


def test_reality_is_left_alone() -> None:
    """Jobs, free GPUs and orders are as before, and the run goes on as without the question."""

    def look(state: State) -> Any:
        before = [(job.id, job.gpus, job.attained, job.remaining(8)) for job in state.running]
        ranked = [job.id for job in state.pending_by(first)]
        one = state.look_ahead(in_order)
        assert one == state.look_ahead(in_order), "it is deterministic"
        assert all(job in {*state.running, *state.pending} for job in one)
        assert before == [(job.id, job.gpus, job.attained, job.remaining(8)) for job in state.running]
        return ranked == [job.id for job in state.pending_by(first)]

    assert asked(look) is True


def first(job: JobView) -> int:
    return job.order


def test_shares_may_name_the_jobs_of_the_state() -> None:
    """As a plan that stays the same: jobs of it that have ended need no GPUs."""

    def look(state: State) -> Any:
        plan = in_order(state)
        with pytest.raises(PolicyError, match="look_ahead: job a does not take part"):
            state.look_ahead(lambda ahead: plan, [*state.pending])
        return by_id(state.look_ahead(lambda ahead: plan))

    assert asked(look) == pytest.approx({"a": 60.0, "b": 110.0, "c": inf})


def turns(ahead: State) -> Shares:
    """Restarts of 30 s every 5 s: no job makes progress."""
    return {job: 4 if job.gpus == 8 else 8 for job in [*ahead.running, *ahead.pending][:2]}


NO_TIME = r"look_ahead\(until_s=.*must be a time and seconds above 0"


@pytest.mark.parametrize(
    ("rule", "times", "text"),
    [
        (lambda ahead: dict.fromkeys(ahead.running, 16), {}, r"32 GPUs of type .* given out of 16"),
        (lambda ahead: dict.fromkeys(ahead.running, 3), {}, r"look_ahead\(job a, gpus=3\): it cannot run on"),
        (lambda ahead: ahead.proposal(), {}, "return {job: GPUs} instead of a proposal"),
        (lambda ahead: {ahead.running: 3}, {}, "raised"),
        (turns, {"round_s": 5.0}, "no job has ended in 10,000 rounds; set until_s"),
        *((in_order, {"round_s": seconds}, NO_TIME) for seconds in (0.0, -1.0, nan)),
        (in_order, {"until_s": nan}, NO_TIME),
    ],
)
def test_impossible_shares_and_times(rule: Any, times: dict[str, float], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        asked(lambda state: state.look_ahead(rule, **times))


def test_stated_work_is_what_counts() -> None:
    """`a` states 36 iterations and does 300: 20 s of work after 10 s of launch, as far as a policy knows."""

    def look(state: State) -> Any:
        return by_id(state.look_ahead(in_order))["a"], state._facts.oracle_used

    misstated = elastic("a", 0, 4, 300.0, stated_iterations=36.0)
    assert asked(look, misstated, at_s=0.0) == (pytest.approx(30.0), False)
    assert asked(look, rigid("a", 0, 8, 300.0), at_s=0.0) == (310.0, True)
