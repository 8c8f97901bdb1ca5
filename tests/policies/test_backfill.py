"""EASY and conservative backfilling: by hand, and what each guarantees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, State
from clustersim.testing import decide, simulate
from policies.conservative import Conservative
from policies.easy import Easy
from policies.fifo import Fifo
from policies.toolkit.backfill import Shadow
from policies.toolkit.gpu_calendar import FreeGpus
from tests.builders import rigid, starts
from tests.effort import examples
from traces.job import Job

# By hand

RUNNING, HEAD = rigid("runs", 0, 6, 100), rigid("head", 1, 7, 50)  # on 8 GPUs: the head waits until 100 s


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_what_may_pass_the_head(policy: Any) -> None:
    """`early` ends by 100 s; `narrow` does not, but leaves the head its 7 GPUs; `wide` would not."""
    jobs = [RUNNING, HEAD, rigid("wide", 2, 2, 200), rigid("early", 3, 1, 97), rigid("narrow", 4, 1, 300)]
    expected = {"runs": 0, "head": 100, "wide": 150, "early": 3, "narrow": 4}
    assert starts(simulate(jobs, policy(), "n1g8")) == expected


def test_wide_fits_beside_the_head() -> None:
    """8 - 6 GPUs are left beside the head, however long."""
    outcome = simulate([RUNNING, rigid("head", 1, 6, 50), rigid("wide", 2, 2, 200)], Easy(), "n1g8")
    assert starts(outcome) == {"runs": 0, "head": 100, "wide": 2}
    outcome = simulate([RUNNING, HEAD, rigid("wide", 2, 2, 99)], Easy(), "n1g8")
    assert starts(outcome) == {"runs": 0, "head": 100, "wide": 150}


def test_easy_delays_the_second_in_line_and_conservative_does_not() -> None:
    """On 4 GPUs `a` runs until 100 s, `b` leaves a GPU from then to 200 s, `c` is to have all of them next;
    `d` on one GPU from 3 s to 293 s delays no job but `c`.
    """
    jobs = [rigid("a", 0, 2, 100), rigid("b", 1, 3, 100), rigid("c", 2, 4, 100), rigid("d", 3, 1, 290)]
    assert starts(simulate(jobs, Easy(), "n1g4")) == {"a": 0, "b": 100, "c": 293, "d": 3}
    assert starts(simulate(jobs, Conservative(), "n1g4")) == {"a": 0, "b": 100, "c": 200, "d": 300}


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_estimates_decide(policy: Any) -> None:
    """`early` takes 98 s, which is too long before 100 s; if estimates are twice the truth, its 196 s fit
    before the 200 s at which `runs` seems to end, and the head pays for that.
    """
    jobs = [RUNNING, rigid("head", 1, 8, 50), rigid("early", 3, 1, 98)]
    assert starts(simulate(jobs, policy(), "n1g8"))["early"] == 150
    assert starts(simulate(jobs, policy(estimate_factor=2), "n1g8")) == {"runs": 0, "head": 101, "early": 3}


def test_estimates_are_of_the_whole_run() -> None:
    """At three times the truth `a` seems to end at 30 s, whenever that is asked: `b`, which seems to end at
    27 s, may start before the head.
    """
    jobs = [rigid("a", 0, 1, 10), rigid("head", 8, 4, 5), rigid("b", 9, 1, 6)]
    outcome = simulate(jobs, Easy(estimate_factor=3), "n1g4")
    assert starts(outcome) == {"a": 0, "head": 15, "b": 9}


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_estimates_are_of_the_whole_run_in_a_scene_that_begins_with_running_jobs(policy: Any) -> None:
    """At twice the truth `runs` seems to end at 100 s, and the 90 s of `early` fit before the head."""

    def started(factor: float, early_s: float) -> list[str]:
        pending = [rigid("head", 5, 8, 10), rigid("early", 10, 2, early_s)]
        scene = {"running": [rigid("runs", 0, 6, 50)], "pending": pending, "overheads": Overheads.none()}
        return list(decide(policy(estimate_factor=factor), **scene).starts)

    assert (started(1, 40), started(1, 41)) == (["early"], [])
    assert (started(2, 45), started(2, 46)) == (["early"], [])


def test_stated_work_needs_no_estimate() -> None:
    """A stated job is exact whatever the factor: `runs` ends at 100 s, and 98 s of `early` do not fit."""
    table = {("m", 8): {1: 1.0, 6: 1.0}}
    running = Job("runs", 0, model="m", global_batch=8, gpus=6, iterations=100)
    early = Job("early", 3, model="m", global_batch=8, gpus=1, iterations=98)
    jobs = [running, rigid("head", 1, 8, 50), early]
    for policy in (Easy, Conservative):
        outcome = simulate(jobs, policy(estimate_factor=5), "n1g8", table=table)
        assert starts(outcome)["early"] == 150


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_the_launch_counts(policy: str) -> None:
    """30 s of launch are part of every run: 70 s end just before the head's turn, 71 s just after."""
    for run_s, start_s in ((97.0, 3), (98.0, 180)):
        jobs = [RUNNING, rigid("head", 1, 8, 20), rigid("early", 3, 1, run_s)]
        run = clustersim.run(jobs, policy, cluster="n1g8", overheads={"launch_s": 30.0, "launch_gpu_s": 0.0})
        assert {j.job_id: j.start_s for j in run.jobs} == {"runs": 0, "head": 130, "early": start_s}
        assert run.manifest["oracle_used"]


def test_places_count_not_only_gpus() -> None:
    """Two nodes of 4, packed: `head` needs a whole one, at 50 s, when `b` ends. A job of 100 s on the GPUs
    beside `a` is not in its way, though 8 - 2 - 4 GPUs are all it leaves.
    """
    jobs = [rigid("a", 0, 2, 200), rigid("b", 0, 4, 50), rigid("head", 1, 4, 10), rigid("beside", 2, 2, 100)]
    for policy in (Easy, Conservative):
        outcome = simulate(jobs, policy(), "n2g4")
        assert starts(outcome) == {"a": 0, "b": 0, "head": 50, "beside": 2}


def test_a_reservation_that_fragments_cannot_serve_is_not_lost() -> None:
    """At 20 s two GPUs are free on each of two nodes, where `wide` has 4 reserved. It gets a node when `a`
    ends; `z-late`, due at 30 s, would keep it from that and waits.
    """
    lengths = {"a": 100, "b": 20, "c": 300, "d": 20}
    jobs = [*(rigid(name, 0, 2, run_s) for name, run_s in lengths.items()), rigid("wide", 1, 4, 10)]
    outcome = simulate([*jobs, rigid("z-late", 2, 2, 200)], Conservative(), "n2g4")
    assert (outcome.of("wide").start_s, outcome.of("z-late").start_s) == (100, 100)


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_plans_are_made_anew_when_nodes_come_and_go(policy: Any) -> None:
    """One of two nodes is gone from 5 s to 50 s. The policy does not know when `wide`, which needs both,
    can start, so no job waits for it; when the node is back it starts at once.
    """
    calendar = ({"at_s": 5, "remove": 1}, {"at_s": 50, "add": 1})
    jobs = [rigid("first", 0, 2, 20), rigid("wide", 10, 8, 30), rigid("next", 11, 4, 10)]
    outcome = simulate(jobs, policy(), "n2g4", calendar=calendar)
    assert starts(outcome) == {"first": 0, "wide": 50, "next": 20}


# Estimates of users


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_the_estimate_of_the_user_counts_before_all_others(policy: Any) -> None:
    """`runs` states its work of 100 s, `early` takes 98 s. By the users' estimates `runs` ends at 300 s and
    `early` at 203 s: it passes the head, whatever the factor.
    """
    table = {("m", 8): {1: 1.0, 6: 1.0}}
    running = Job("runs", 0, model="m", global_batch=8, gpus=6, iterations=100, estimate_s=300)
    early = rigid("early", 3, 1, 98, estimate_s=200)
    jobs = [running, rigid("head", 1, 8, 50, estimate_s=50), early]
    for factor in (1.0, 5.0):
        outcome = simulate(jobs, policy(factor), "n1g8", table=table)
        assert starts(outcome) == {"runs": 0, "head": 101, "early": 3}
    outcome = simulate([replace(running, estimate_s=None), *jobs[1:]], policy(), "n1g8", table=table)
    assert starts(outcome)["early"] == 150


@pytest.mark.parametrize(("run_s", "early_s"), [(500, 100), (161, 100), (160, 170), (100, 110)])
def test_an_estimate_that_runs_out_is_extended(run_s: float, early_s: float) -> None:
    """`runs` is expected to end at 100 s, then at 160 s, then at 460 s. `early`, of 300 s, has to wait for an
    expected end that leaves it 300 s: from 160 s on, if `runs` goes on; else the head is first.
    """
    jobs = [
        rigid("runs", 0, 6, run_s, estimate_s=100),
        rigid("head", 1, 8, 10, estimate_s=10),
        rigid("early", 2, 1, 300, estimate_s=300),
    ]
    expected = {500: {"head": 500, "early": 160}, 161: {"head": 460, "early": 160},
                160: {"head": 160, "early": 170}, 100: {"head": 100, "early": 110}}[int(run_s)]  # fmt: skip
    assert starts(simulate(jobs, Easy(), "n1g8")) == {"runs": 0, **expected}
    assert starts(simulate(jobs, Conservative(), "n1g8")) == {"runs": 0, **expected}


def test_the_steps_of_extensions_are_those_of_the_paper() -> None:
    """1, 5, 15, 30 minutes, 1, 2, 5, 10, 20, 50, 100 hours, and 100 hours from then on."""
    steps = [60, 300, 900, 1800, *(3600 * hours for hours in (1, 2, 5, 10, 20, 50, 100, 100, 100))]
    now, expected, found = 10.0, [], []
    for step in steps:
        expected.append(now + step)
        running, pending = [rigid("runs", 0, 7, 1e8, estimate_s=10)], [rigid("waits", 1, 8, 1)]
        scene = decide(Easy(), running=running, pending=pending, now_s=now, overheads=Overheads.none())
        found.append(scene.wake_at_s)
        now += step
    assert found == expected


def test_estimates_of_all_users_make_the_oracle_needless() -> None:
    jobs = [rigid("runs", 0, 6, 100), rigid("head", 1, 8, 50), rigid("early", 3, 1, 98)]
    stated = [replace(job, estimate_s=2 * (job.duration_s or 0)) for job in jobs]
    for policy in ("easy", "conservative"):
        for params in ({}, {"estimate_factor": 3.0}):
            run = clustersim.run(stated, policy, cluster="n1g8", overheads=None, params=params)
            assert not run.manifest["oracle_used"]
            run = clustersim.run([stated[0], *jobs[1:]], policy, cluster="n1g8", params=params)
            assert run.manifest["oracle_used"]


@pytest.mark.parametrize("policy", [Easy, Conservative])
@given(st.integers(0, 10**9), st.sampled_from((0.0, 1.0)), st.sampled_from(("pack", "any")))
@settings(max_examples=examples(40), deadline=None)
def test_estimates_that_are_true_change_nothing(policy: Any, seed: int, scale: float, placement: str) -> None:
    """To the last bit: every event at the same time, on the same nodes."""
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    true = [replace(job, estimate_s=job.duration_s) for job in jobs]
    settings = {"overheads": Overheads(scale=scale), "placement": placement}
    first, second = (simulate(trace, policy(), "n4g4", **settings) for trace in (jobs, true))
    assert first.events == second.events
    assert first.records == second.records


@pytest.mark.parametrize("policy", [Easy, Conservative])
def test_a_job_that_has_outlived_its_estimate_starts_again(policy: Any) -> None:
    """All nodes are gone from 150 s to 160 s, when `runs` has taken 50 s more than its estimate. It is then
    expected to take 10 s more, to the end of the first extension: as long as `early` takes beside it. `late`,
    of 20 s, may start at 170 s, when the estimate is extended again.
    """
    calendar = ({"at_s": 150, "remove": "0"}, {"at_s": 160, "add": "0"})
    jobs = [rigid("runs", 0, 6, 400, estimate_s=100)]
    jobs += [rigid(name, 151, gpus, s, estimate_s=s) for name, gpus, s in
             (("head", 8, 10), ("early", 1, 10), ("late", 1, 20))]  # fmt: skip
    outcome = simulate(jobs, policy(), "n1g8", calendar=calendar)
    assert starts(outcome) == {"runs": 0, "head": 410, "early": 160, "late": 170}


def test_a_head_that_asks_for_a_type_waits_for_that_type(tmp_path: Path) -> None:
    """The head asks for the H100s, which `h` holds until 100 s; the A100s, free at 50 s, are no room for it.
    `early` on an H100 until 102 s would be in its way, and waits.
    """
    (tmp_path / "two.yaml").write_text(
        "groups:\n  - {name: a, gpu_type: a100, nodes: 1}\n  - {name: h, gpu_type: h100, nodes: 1}\n"
    )
    jobs = [
        rigid("a", 0, 8, 50, gpu_type="a100"),
        rigid("h", 0, 7, 100, gpu_type="h100"),
        rigid("head", 1, 8, 50, gpu_type="h100"),
        rigid("early", 2, 1, 100, gpu_type="h100"),
        rigid("fits", 2, 1, 98, gpu_type="h100"),
    ]
    run = clustersim.run(jobs, "easy", cluster=str(tmp_path / "two.yaml"), overheads=None)
    assert {job.job_id: job.start_s for job in run.jobs} == {
        "a": 0, "h": 0, "head": 100, "early": 150, "fits": 2,
    }  # fmt: skip


# Guarantees


def random_jobs(seed: int, sizes: tuple[int, ...]) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(random.randint(5, 40)):
        now += random.choice((0.0, 0.0, random.expovariate(1 / 60)))
        jobs.append(rigid(str(i), now, random.choice(sizes), random.choice((10.0, random.uniform(1, 900)))))
    return jobs


class WatchedEasy(Easy):
    """Notes the shadow times of every head."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.shadows: dict[str, list[float]] = {}

    def shadow(self, head: JobView, proposal: Proposal, state: State) -> Shadow:
        shadow = super().shadow(head, proposal, state)
        self.shadows.setdefault(head.id, []).append(shadow.start_s)
        return shadow


@pytest.mark.parametrize("placement", ["pack", "any"])
@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(60), deadline=None)
def test_easy_never_delays_the_head(placement: str, seed: int, factor: float, scale: float) -> None:
    """Its shadow time is never postponed, and it starts by that time, wherever jobs are placed."""
    policy = WatchedEasy(factor)
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement=placement)
    for head, shadows in policy.shadows.items():
        assert all(b <= a + 1e-6 for a, b in pairwise(shadows))
        start_s = outcome.of(head).start_s
        assert start_s is not None
        assert start_s <= shadows[-1] + 1e-6


class WatchedConservative(Conservative):
    """Notes the first reservation of every job."""

    def __init__(self, factor: float):
        super().__init__(factor)
        self.first: dict[str, float] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        for view, start_s in self.reserved.items():
            self.first.setdefault(view.id, start_s)
        return proposal


@given(st.integers(0, 10**9), st.sampled_from((1.0, 3.0)), st.sampled_from((0.0, 1.0)))
@settings(max_examples=examples(80), deadline=None)
def test_conservative_keeps_every_reservation(seed: int, factor: float, scale: float) -> None:
    """Where jobs can run on any GPUs: no job starts after the reservation made at its submission."""
    policy = WatchedConservative(factor)
    jobs = random_jobs(seed, (1, 2, 3, 4, 5, 8, 16))
    outcome = simulate(jobs, policy, "n4g4", overheads=Overheads(scale=scale), placement="any")
    for name, reserved_s in policy.first.items():
        start_s = outcome.of(name).start_s
        assert start_s is not None
        assert start_s <= reserved_s + 1e-6


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_conservative_starts_no_job_later_than_fifo(seed: int) -> None:
    """With exact estimates: earlier jobs use, after a job's FIFO start, no more than under FIFO."""
    jobs = random_jobs(seed, (1, 2, 3, 4, 8, 16))
    fifo = starts(simulate(jobs, Fifo(), "n4g4", placement="any"))
    for name, start_s in starts(simulate(jobs, Conservative(), "n4g4", placement="any")).items():
        assert start_s is not None
        assert start_s <= (fifo[name] or 0.0) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 4))), st.data())
def test_earliest_is_the_first_gap(bookings: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Against a plain search second by second."""
    free, used = FreeGpus(0.0, 8), [0] * 200
    for start, span, gpus in bookings:
        if all(used[t] + gpus <= 8 for t in range(start, start + span)):
            free.take(float(start), float(start + span), gpus)
            used[start : start + span] = [n + gpus for n in used[start : start + span]]
    gpus, span, after = (data.draw(st.integers(*span)) for span in ((1, 8), (1, 20), (0, 60)))
    expected = next(t for t in range(after, 150) if all(used[i] + gpus <= 8 for i in range(t, t + span)))
    assert free.earliest(gpus, float(span), float(after)) == expected
    assert free.earliest(9, 1.0) == float("inf")


@pytest.mark.parametrize("policy", [Easy, Conservative])
@pytest.mark.parametrize("factor", [0.5, float("nan"), "2", None])
def test_estimates_are_upper_bounds(policy: Any, factor: Any) -> None:
    with pytest.raises(ValueError, match=r"estimate_factor=.*at least 1"):
        policy(estimate_factor=factor)
