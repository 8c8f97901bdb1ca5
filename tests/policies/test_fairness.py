"""Fairness: Gandiva_fair's tickets, trades and turns; an auction; Shockwave by hand; AlloX's least total."""

from collections import Counter
from collections.abc import Mapping
from itertools import product
from math import exp, inf, log
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.cluster import SharedPlacement
from clustersim.records import ALLOCATES
from clustersim.scheduler import JobView, Proposal
from clustersim.testing import Outcome, simulate
from policies.allox import Allox
from policies.gandiva_fair import GandivaFair, divided
from policies.shockwave import Shockwave
from policies.solvers.partial_allocation import auction
from policies.toolkit import WorkCourse, course_of, predicted_shares
from tests.builders import MixedBench, Script, drawn_jobs, elastic, rigid, starts, times
from tests.tables import table_rows
from traces.job import Job

Rates = dict[str, tuple[float, float]]
"""By tenant: iterations/s for each GPU on the fast and on the slow type."""


def on_two_types(rates: Rates, jobs: list[Job], policy: GandivaFair, until_s: float) -> dict[str, float]:
    """What each tenant received, in GPU-seconds of the fast type. 8 fast and 8 slow GPUs in nodes of 4."""
    tables = [
        {(name, 1): {n: n * speeds[i] for n in (1, 2, 4)} for name, speeds in rates.items()} for i in (0, 1)
    ]
    bench = MixedBench([("fast", 2, 4), ("slow", 2, 4)], dict(zip(("fast", "slow"), tables, strict=True)))
    outcome = bench.run(jobs, policy, until_s)
    received = dict.fromkeys(rates, 0.0)
    since: dict[str, tuple[float, float, str]] = {}
    for event in outcome.events:
        if event.job_id in since:
            start_s, speed, tenant = since.pop(event.job_id)
            received[tenant] += speed * (event.time_s - start_s)
        if event.placement:
            tenant = event.job_id.split("-")[0]
            fast, slow = rates[tenant]
            relative = 1.0 if event.placement[0][0] < 2 else slow / fast
            since[event.job_id] = (event.time_s, relative * event.gpus, tenant)
    for start_s, speed, tenant in since.values():
        received[tenant] += speed * (until_s - start_s)
    return received


def endless(tenant: str, gpus: list[int], submit_s: float = 0.0) -> list[Job]:
    return [
        Job(f"{tenant}-{i}", submit_s, tenant, model=tenant, global_batch=1, gpus=n, iterations=1e9)
        for i, n in enumerate(gpus)
    ]


@pytest.mark.parametrize(("margin", "sharp"), [(0.1, 7.2), (10.0, 5.0)])
def test_two_tenants_trade(margin: float, sharp: float) -> None:
    """Speed-ups of 4 and 1.25, half of 8 fast and 8 slow GPUs each: worth 4 + 1 and 4 + 3.2. At 1.25, the
    first buys 3.2 fast GPUs for its 4 slow ones: 7.2 and 0.8 + 8 x 0.8. Without trades each has its part.
    """
    rates: Rates = {"sharp": (4.0, 1.0), "dull": (1.25, 1.0)}
    jobs = [*endless("sharp", [1] * 20), *endless("dull", [1] * 20)]
    received = on_two_types(rates, jobs, GandivaFair(round_s=10.0, margin=margin), 6000.0)
    mean_gpus = {name: gpu_s / 6000.0 for name, gpu_s in received.items()}
    assert mean_gpus == pytest.approx({"sharp": sharp, "dull": 7.2}, rel=0.02)


@pytest.mark.parametrize(
    ("groups", "tickets", "until_s", "gpus"),
    [
        ([("a", 8, 0.0, 1, 1.0), ("b", 8, 0.0, 1, 1.0)], {"a": 3.0}, 4000, [6.0, 2.0]),
        (
            [("a", 1, 0.0, 4, 2.0), ("a", 1, 0.0, 4, 1.0), ("b", 2, 0.0, 4, 1.0)], None, 6000,
            [8 / 3, 4 / 3, 4.0],
        ),
        ([("a", 1, 0.0, 8, 1.0), ("b", 8, 0.0, 1, 1.0)], None, 4000, [4.0, 4.0]),
        ([("a", 1, 0.0, 1, 1.0), ("b", 9, 0.0, 1, 1.0)], None, 1000, [1.0, 7.0]),
        ([("a", 8, 0.0, 1, 1.0), ("b", 8, 1000.0, 1, 1.0)], None, 3000, [16 / 3, 8 / 3]),
    ],
    ids=["tickets", "weights within a tenant", "a gang of all GPUs", "what a tenant cannot use", "late"],
)  # fmt: skip
def test_gpu_time_follows_tickets_and_weights(
    groups: list[tuple[str, int, float, int, float]], tickets: dict[str, float] | None, until_s: int,
    gpus: list[float],
) -> None:  # fmt: skip
    """Of groups of alike jobs (tenant, jobs, submission, GPUs, weight) on 8 GPUs: the mean GPUs of each."""
    jobs = [
        rigid(f"{k}-{i}", submit_s, n, 1e6, tenant=tenant, weight=weight)
        for k, (tenant, count, submit_s, n, weight) in enumerate(groups)
        for i in range(count)
    ]
    outcome = simulate(jobs, GandivaFair(10.0, tickets), "n1g8", until_s=until_s)
    mean_gpus = [0.0] * len(groups)
    for record in outcome.records:
        mean_gpus[int(record.job_id[0])] += record.gpu_seconds / until_s
    assert mean_gpus == pytest.approx(gpus, abs=0.1)


@pytest.mark.parametrize("seed", range(8))
def test_no_tenant_gets_less_than_its_part_of_the_cluster(seed: int) -> None:
    """Gangs of 1, 2 and 4 GPUs of two or three tenants, enough to fill the cluster. Before any trade, a part
    is a tenant's tickets' part of the fast and of the slow GPUs. Rounding to gangs costs at most a quarter of
    a GPU here.
    """
    random = Random(seed)
    rates = {name: (random.uniform(1.0, 5.0), 1.0) for name in "abc"[: random.choice((2, 3))]}
    tickets = {name: random.choice((1.0, 1.0, 2.0)) for name in rates}
    jobs = []
    for name in rates:
        jobs += endless(name, [random.choice((1, 2, 4)) for _ in range(16)])
    policy = GandivaFair(round_s=10.0, tickets=tickets)
    received = on_two_types(rates, jobs, policy, 4000.0)
    for name, (fast, slow) in rates.items():
        part = 8 * (1 + slow / fast) * tickets[name] / sum(tickets.values())
        assert received[name] / 4000.0 >= part - 0.25


def stride(tickets: list[float], gpus: int, rounds: int) -> list[int]:
    """Stride scheduling (Waldspurger and Weihl, 1995) of jobs of one GPU, in plain Python: the least pass
    first, which grows by the stride 1 / tickets with each round. The rounds of each job.
    """
    passes, received = [1.0 / n for n in tickets], [0] * len(tickets)
    for _ in range(rounds):
        for i in sorted(range(len(tickets)), key=lambda i: (round(passes[i], 9), i))[:gpus]:
            passes[i] += 1.0 / tickets[i]
            received[i] += 1
    return received


@pytest.mark.parametrize("seed", range(4))
def test_turns_are_those_of_stride_scheduling(seed: int) -> None:
    """Tickets of no job are worth more than a GPU; after 300 rounds, to within three."""
    random = Random(seed)
    weights = [random.uniform(1.0, 2.0) for _ in range(random.randint(6, 10))]
    jobs = [rigid(f"j{i}", 0, 1, 1e6, weight=weight) for i, weight in enumerate(weights)]
    outcome = simulate(jobs, GandivaFair(round_s=10.0), "n1g3", until_s=3000)
    held = [outcome.of(f"j{i}").gpu_seconds / 10.0 for i in range(len(weights))]
    assert held == pytest.approx(stride(weights, 3, 300), abs=3)


def test_the_jobs_with_the_largest_speed_up_get_the_fast_gpus() -> None:
    """Two fast and two slow GPUs for four jobs of one GPU."""
    speeds = np.array([[1.0, 0.8], [1.0, 0.2], [1.0, 0.9], [1.0, 0.3]])
    shares = divided(np.array([2.0, 2.0]), speeds, np.ones(4), np.ones(4))
    assert shares.tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


class Shares(GandivaFair):
    """Keeps the shares of time, and what they are worth to each tenant, in GPUs of its jobs' best types."""

    worth: Counter[str]

    def time_shares(self, jobs: Any, rates: Any, capacity: Any, now: float) -> Any:
        shares = super().time_shares(jobs, rates, capacity, now)
        self.worth = Counter()
        for job, row, rate in zip(jobs, shares, rates, strict=True):
            self.worth[job.tenant] += job.requested * float((row * rate).sum() / rate.max())
        return shares


@pytest.mark.parametrize("seed", range(30))
def test_tenants_of_different_jobs_are_no_worse_off_than_alone(seed: int) -> None:
    """Jobs of one tenant have other speed-ups than each other. Alone on its part of a cluster, a tenant has
    shares of the same worth as here without trades, and here no smaller ones.
    """
    random = Random(seed)
    views = [
        SimpleNamespace(tenant=name, requested=random.choice((1, 2)), weight=random.choice((1.0, 2.0)))
        for name in "ab" for _ in range(random.randint(4, 9))
    ]  # fmt: skip
    rates = np.array([[1.0, random.choice((0.15, 0.5, 0.9))] for _ in views])
    policy = Shares(margin=0.0)
    policy.time_shares(views, rates, [8, 8], 0.0)
    for name in "ab":
        mine = [i for i, view in enumerate(views) if view.tenant == name]
        alone = Shares(margin=0.0)
        alone.time_shares([views[i] for i in mine], rates[mine], [4, 4], 0.0)
        assert policy.worth[name] >= alone.worth[name] - 1e-6


def test_a_tenant_that_would_lose_does_not_trade() -> None:
    """Tenant `mixed` has jobs with speed-ups of 5 and 1.1, so fast GPUs go to the first ones. By its mean it
    would sell them for too little.
    """
    views = [SimpleNamespace(tenant="mixed", requested=1, weight=1.0) for _ in range(8)]
    views += [SimpleNamespace(tenant="other", requested=1, weight=1.0) for _ in range(8)]
    rates = np.array([[1.0, 0.2]] * 4 + [[1.0, 0.9]] * 4 + [[1.0, 0.5]] * 8)
    policy = Shares(margin=0.0)
    policy.time_shares(views, rates, [4, 4], 0.0)
    assert policy.worth["mixed"] == pytest.approx(2 + 2 * 0.9)
    assert policy.worth["other"] == pytest.approx(2 + 2 * 0.5)


# Gandiva


PAIRS = {"good": {"good": 1.1, "bad": 1.8}, "bad": {"good": 2.4, "bad": 2.2}}
"""Two good jobs do 1.82 times the work of one; a good and a bad one 0.97, two bad ones 0.91."""


def run_of(jobs: list[Job], sharing: Any, cluster: str = "n1g1", **more: Any) -> clustersim.Run:
    params = {"packing": True, **more.pop("params", {})}
    return clustersim.run(
        jobs, "gandiva", cluster=cluster, sharing=sharing, params=params, **{"overheads": None, **more}
    )


def together_s(run: clustersim.Run) -> dict[frozenset[str], float]:
    """The longest time for which each two jobs ran on the same GPUs."""
    where: dict[str, SharedPlacement] = {}
    since: dict[frozenset[str], float] = {}
    longest: dict[frozenset[str], float] = {}
    for event in run.events:
        if event.event in ("submit", "rate", "note"):
            continue
        where.pop(event.job_id, None)
        for pair in [pair for pair in since if event.job_id in pair]:
            longest[pair] = max(longest.get(pair, 0.0), event.time_s - since.pop(pair))
        if event.event in ALLOCATES and isinstance(event.placement, SharedPlacement):
            for other, place in where.items():
                if place.key == event.placement.key:
                    since[frozenset({event.job_id, other})] = event.time_s
            where[event.job_id] = event.placement
    return longest


@pytest.mark.parametrize("seed", range(3))
def test_with_full_interference_no_packing_lasts_and_none_beats_turns(seed: int) -> None:
    """All work is 1 GPU's: it takes as long in turns as in pairs, so the last job ends when it does alone."""
    random = Random(seed)
    jobs = [rigid(f"j{i}", 10.0 * i, 1, random.uniform(2000, 9000), model=f"m{i % 3}") for i in range(8)]
    turns, packed = (run_of(jobs, {"slowdown": 2.0}, params={"packing": on}) for on in (False, True))
    assert turns.summary["makespan_s"] == pytest.approx(sum(job.duration_s or 0.0 for job in jobs))
    assert packed.summary["makespan_s"] == pytest.approx(turns.summary["makespan_s"])
    assert max(together_s(packed).values()) == pytest.approx(120.0)  # a trial
    worse = run_of(jobs, {"slowdown": 3.0})
    assert turns.summary["makespan_s"] < worse.summary["makespan_s"]
    assert worse.summary["makespan_s"] < 1.02 * turns.summary["makespan_s"]  # at most six trials of 120 s


def test_only_pairs_that_gain_stay_together() -> None:
    random = Random(7)
    jobs = [
        rigid(f"{model}{i}", 5.0 * i, 2, random.uniform(3000, 9000), model=model)
        for i in range(12)
        for model in ("good", "bad")
    ]
    run = run_of(jobs, {"pairs": PAIRS}, "n2g4")
    lasting = {pair for pair, seconds in together_s(run).items() if seconds > 121}
    assert lasting
    assert all(job.startswith("good") for pair in lasting for job in pair)
    assert {"good", "bad"} in [{job.rstrip("0123456789") for job in pair} for pair in together_s(run)]
    alone = run_of(jobs, {"pairs": PAIRS}, "n2g4", params={"packing": False})
    assert run.summary["makespan_s"] < 0.85 * alone.summary["makespan_s"]


@pytest.mark.parametrize("params", [{}, {"grow_shrink": True}, {"quantum_s": 200.0, "trial_s": 300.0}])
def test_every_rule_holds_and_all_jobs_finish(params: dict[str, Any], tmp_path: Path) -> None:
    jobs = drawn_jobs(1, 60, 400, (1, 1, 2, 3, 4, 8), (300, 4000), model=("good", "bad"))
    run = run_of(
        jobs, {"pairs": PAIRS}, "n3g8", overheads={"launch_s": 20.0}, params=params,
        out=tmp_path / "run", failures={"mtbf_gpu_h": 30.0}, seed=1,
    )  # fmt: skip
    assert all(job.state == "finished" for job in run.jobs)
    assert not [v for finding in check_run_folder(tmp_path / "run") for v in finding.violations]


# The auction


bid = st.dictionaries(st.integers(1, 6), st.floats(0, 3), max_size=4).map(
    lambda gains: {0: 0.0} | dict(zip(sorted(gains), sorted(gains.values()), strict=True))
)


@given(st.lists(bid, min_size=1, max_size=4), st.integers(0, 10))
@settings(deadline=None)
def test_awards_have_the_largest_product_of_values(bids: list[dict[int, float]], gpus: int) -> None:
    awards = auction(bids, gpus)
    assert sum(award.gpus for award in awards) <= gpus
    mine = sum(bid[award.gpus] for bid, award in zip(bids, awards, strict=True))
    assert mine == pytest.approx(_best(bids, gpus), abs=1e-8)
    for i, award in enumerate(awards):
        beside = mine - bids[i][award.gpus]
        without = _best(bids[:i] + bids[i + 1 :], gpus)
        assert award.kept == pytest.approx(min(1.0, exp(beside - without)))


def _best(bids: list[dict[int, float]], gpus: int) -> float:
    choices = [counts for counts in product(*bids) if sum(counts) <= gpus]
    return max(sum(bid[n] for bid, n in zip(bids, counts, strict=True)) for counts in choices)


@pytest.mark.parametrize("bidders", [2, 3, 5])
def test_payment_of_equal_bidders(bidders: int) -> None:
    """Values proportional to GPUs: every job wins an equal part, and keeps ((N - 1) / N)^(N - 1) of it, more
    than 1/e (Cole et al. 2013).
    """
    gpus = bidders * (bidders - 1) * 2
    values = {0: -100.0} | {n: log(n) for n in range(1, gpus + 1)}
    awards = auction([values] * bidders, gpus)
    assert [award.gpus for award in awards] == [gpus // bidders] * bidders
    assert [award.kept for award in awards] == pytest.approx(
        [((bidders - 1) / bidders) ** (bidders - 1)] * bidders
    )


def test_a_winner_that_delays_no_job_pays_nothing() -> None:
    assert [award.kept for award in auction([{0: 0.0, 4: 1.0}, {0: 0.0, 2: 1.0}], 6)] == [1.0, 1.0]
    assert auction([], 8) == []


# Shockwave


TABLE = {("m", 8): {1: 1.0}, ("m", 32): {1: 1.0}}


def test_the_course_of_a_job_goes_through_its_predicted_phases() -> None:
    """Of four phases none is over: a quarter of the work at 1 unit/s, the rest at 4. The speed of the first
    alone would say 1,000 s.
    """
    seen: list[WorkCourse] = []

    def look(proposal: Proposal, jobs: Mapping[str, JobView]) -> None:
        seen.extend([course_of(jobs["a"]), course_of(jobs["a"], predicts=False)])
        proposal.start(jobs["a"])

    job = elastic("a", 0, 1, 1000, phases="0.01:8 0.33:32 0.33:32 0.33:32")
    simulate([job], Script({0.0: look}), "n1g1", table=TABLE)
    predicted, present = seen
    assert (predicted.left_s, present.left_s) == pytest.approx((250 + 750 / 4, 1000))
    assert predicted.share_after(250 + 100) == pytest.approx(0.25 + 0.4)


@pytest.mark.parametrize(
    ("past", "phases", "done", "due"), table_rows("the work that past phases leave is divided evenly")
)
def test_the_work_that_past_phases_leave_is_divided_evenly(
    past: list[float], phases: int, done: float, due: list[float]
) -> None:
    assert predicted_shares(past, phases, done) == pytest.approx(due)


def test_a_long_job_gets_its_turn_among_short_ones() -> None:
    """Short jobs arrive faster than they can be served, and gain more per round. Without its weight, which
    grows with its age, the long job waits until they have ended.
    """
    jobs = [rigid("long", 10, 4, 600.0)] + [rigid(f"s{i}", 27.0 * i, 4, 30.0) for i in range(200)]
    fair = simulate(jobs, Shockwave(round_s=30), "n1g4")
    unfair = simulate(jobs, Shockwave(round_s=30, fairness_power=0.0), "n1g4")
    assert times(unfair)["long"][0] == 6000.0
    assert times(fair)["long"][0] < 4000.0


GangRates = dict[str, dict[str, float]]


def run_mixed(nodes: dict[str, int], rates: GangRates, jobs: list[Job]) -> Outcome:
    """On nodes of one GPU. `rates`: iterations/s by model and GPU type."""
    tables = {
        name: {(model, 1): {1: by_type[name]} for model, by_type in rates.items() if name in by_type}
        for name in nodes
    }
    return MixedBench([(name, count, 1) for name, count in nodes.items()], tables).run(jobs, Allox())


def job(model: str, iterations: float = 100.0, submit_s: float = 0.0, **more: Any) -> Job:
    return Job(model, submit_s, model=model, global_batch=1, gpus=1, iterations=iterations, **more)


def least_total_s(run_s: list[dict[str, float]], nodes: dict[str, int]) -> float:
    """Over every choice of a GPU for each job; on one GPU the shortest first is best."""
    gpus = [name for name, count in nodes.items() for _ in range(count)]
    best = inf
    for chosen in product(range(len(gpus)), repeat=len(run_s)):
        total = 0.0
        for gpu, name in enumerate(gpus):
            clock = 0.0
            for seconds in sorted(run[name] for run, mine in zip(run_s, chosen, strict=True) if mine == gpu):
                clock += seconds
                total += clock
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(10))
def test_no_schedule_of_jobs_that_are_all_present_has_a_smaller_mean(seed: int) -> None:
    """Up to six jobs of one GPU on three or four GPUs of two or three types."""
    random = Random(seed)
    nodes = random.choice(({"fast": 1, "slow": 2}, {"a": 1, "b": 1, "c": 1}, {"fast": 2, "slow": 1}))
    rates = {f"m{i}": {name: random.uniform(0.2, 5.0) for name in nodes} for i in range(random.randint(2, 6))}
    picky = random.choice(list(rates))
    rates[picky].pop(next(iter(nodes)))
    outcome = run_mixed(nodes, rates, [job(model) for model in rates])
    run_s = [{name: 100.0 / by_type.get(name, 1e-9) for name in nodes} for by_type in rates.values()]
    total = sum(record.finish_s or inf for record in outcome.records)
    assert total == pytest.approx(least_total_s(run_s, nodes), rel=1e-6)


def crowd() -> list[Job]:
    """Tenant `many` has short jobs all the time, `few` one long job in the queue from the start."""
    jobs = [rigid(f"m{i}", 10.0 * i, 1, 20.0, tenant="many") for i in range(40)]
    return [*jobs, rigid("few", 0.0, 1, 100.0, tenant="few")]


def test_the_least_served_tenants_come_first() -> None:
    """With half of two tenants the long job starts second, without the rule it waits for the last."""
    fair, plain = (starts(simulate(crowd(), Allox(alpha=alpha), "n1g1"))["few"] for alpha in (0.5, 1.0))
    assert fair is not None
    assert plain is not None
    assert fair <= 20.0
    assert plain == 800.0


def test_a_window_of_all_jobs_or_more_is_the_same() -> None:
    """And a small one is no worse here than by a fifth."""
    jobs = drawn_jobs(1, 60, 32, (1, 2, 4), (5, 200))
    means = {
        window: sum(record.jct_s or inf for record in simulate(jobs, Allox(window=window), "n1g8").records)
        for window in (60, 2000, 5)
    }
    assert means[60] == means[2000]
    assert means[5] <= 1.2 * means[60]
