"""ElasticFlow's admission, its promise, and how it shares out spare GPUs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.overheads import Overheads
from clustersim.overheads.overheads import PRESETS
from clustersim.scheduler import Proposal, State
from clustersim.testing import check_outcome
from policies.elasticflow import ElasticFlow
from policies.vtrain_aware import VTrainAware
from tests.builders import Bench, elastic, states
from tests.deadlines import hostile_bench, late, random_bench, watch
from tests.effort import examples, rotated
from traces.job import Job

EIGHT = {("m", 8): {8: 1.0}}  # runs on 8 GPUs, an iteration a second
FOUR_EIGHT = {("m", 8): {4: 1.0, 8: 2.0}, ("wide", 8): {8: 1.0}}


# Admission


def test_a_deadline_that_cannot_be_kept_is_declined() -> None:
    jobs = [
        elastic("can", 0, 8, 90, 100),
        elastic("cannot", 200, 8, 110, 300),
        elastic("just", 400, 8, 99, 500),
    ]
    outcome = Bench("n1g8", EIGHT).run(jobs, ElasticFlow())
    assert states(outcome) == {"can": "finished", "cannot": "rejected", "just": "finished"}
    assert outcome.of("cannot").reason == "declined by the policy"


def test_the_launch_counts() -> None:
    """60 s of work, 30 s to launch, 1 s of guard."""
    charged = Overheads(launch_s=30.0, plain_restart_s=0.0)
    jobs = [elastic("can", 0, 8, 60, 91), elastic("cannot", 200, 8, 60, 290)]
    outcome = Bench("n1g8", EIGHT, overheads=charged).run(jobs, ElasticFlow())
    assert states(outcome) == {"can": "finished", "cannot": "rejected"}


def test_a_first_start_is_charged_as_a_launch() -> None:
    """A restart takes 50 s, a launch 30: with 1 s of guard, 60 s of work are promised in 91 s."""
    charged = Overheads(launch_s=30.0, plain_restart_s=20.0)
    jobs = [elastic("can", 0, 8, 60, 91.01), elastic("cannot", 200, 8, 60, 290.9)]
    jobs += [elastic("tight", 400, 8, 60, 505), elastic("roomy", 600, 8, 60, 800)]
    outcome = Bench("n1g8", EIGHT, overheads=charged).run(jobs, ElasticFlow())
    assert outcome.of("cannot").state == "rejected"
    assert [outcome.of(job).jct_s for job in ("can", "tight", "roomy")] == pytest.approx([90, 90, 90])


@pytest.mark.parametrize(("deadline_s", "state"), [(492.1, "finished"), (490.9, "rejected")])
def test_a_job_that_counts_on_a_launch_waits_for_its_reservation(deadline_s: float, state: str) -> None:
    """From 60 to 400 s there is room beside `a`, but a start there would cost `waits` a restart at 401 s."""
    charged = Overheads(launch_s=30.0, plain_restart_s=20.0)
    table = {("m", 8): {4: 1.0}, ("scales", 8): {4: 0.05, 8: 1.0}}
    jobs = [
        elastic("a", 0, 4, 370, 401.01, max_gpus=4),
        elastic("b", 0, 4, 30, 61.01, max_gpus=4),
        elastic("waits", 10, 4, 60, deadline_s, model="scales", max_gpus=8),
    ]
    outcome = Bench("n1g8", table, overheads=charged).run(jobs, ElasticFlow())
    assert states(outcome) == {"a": "finished", "b": "finished", "waits": state}
    assert late(outcome) == []


def test_arrivals_of_one_instant_are_judged_one_by_one() -> None:
    """One that cannot be served does not take the others with it."""
    jobs = [
        elastic("a", 0, 8, 50, 100),
        elastic("b", 0, 8, 90, 100),
        elastic("c", 0, 8, 40, 100),
    ]
    outcome = Bench("n1g8", EIGHT).run(jobs, ElasticFlow())
    assert states(outcome) == {"a": "finished", "b": "rejected", "c": "finished"}


def test_what_ends_at_an_instant_is_free_for_what_arrives_at_it() -> None:
    """`a` is done at 50 and gives back what it had reserved until 100 before `b` is judged."""
    jobs = [elastic("a", 0, 8, 50, 100), elastic("b", 50, 8, 48.5, 100)]
    outcome = Bench("n1g8", EIGHT).run(jobs, ElasticFlow())
    assert states(outcome) == {"a": "finished", "b": "finished"}


def test_an_urgent_job_goes_ahead_of_later_deadlines() -> None:
    """`slow` is filled on 4 GPUs from 69 s on; `urgent` needs all 8 until 91 s, then `slow` needs 8."""
    jobs = [
        elastic("slow", 0, 4, 80, 150),
        elastic("urgent", 0, 8, 90, 100, model="wide"),
    ]
    outcome = Bench("n1g8", FOUR_EIGHT).run(jobs, ElasticFlow())
    assert states(outcome) == {"slow": "finished", "urgent": "finished"}
    assert not late(outcome)


def test_every_job_without_a_deadline_is_admitted() -> None:
    jobs = [elastic(str(i), 0, 8, 100) for i in range(5)]
    outcome = Bench("n1g8", EIGHT).run(jobs, ElasticFlow())
    assert [record.finish_s for record in outcome.records] == [100, 200, 300, 400, 500]


def test_without_admission_no_job_is_declined_and_promises_stand() -> None:
    """`b` cannot be served in time; it waits for what `a`, which has its promise, leaves over."""
    jobs = [elastic("a", 0, 8, 90, 100), elastic("b", 1, 8, 90, 110)]
    declined = Bench("n1g8", EIGHT).run(jobs, ElasticFlow())
    assert states(declined) == {"a": "finished", "b": "rejected"}
    outcome = Bench("n1g8", EIGHT).run(jobs, ElasticFlow(admission=False))
    assert states(outcome) == {"a": "finished", "b": "finished"}
    assert late(outcome) == [("b", 70.0)]


# The promise


def test_a_job_still_paying_for_spare_gpus_leaves_them_when_its_reservation_begins() -> None:
    """It grows onto the idle cluster at 123 s; at 153 s another job is promised half of it from 185 s on.

    When its own reservation begins, at 170 s, it has done no work yet and cannot wait for what others leave.
    """
    table = {
        ("a", 8): {8: 1.834, 16: 2.286, 32: 2.848, 64: 3.529, 128: 4.388},
        ("b", 8): {16: 6.26, 32: 10.38, 64: 17.31, 128: 28.47},
        ("c", 8): {4: 1.196, 8: 1.669, 16: 2.357, 32: 3.271, 64: 4.58, 128: 6.41},
    }
    jobs = [
        elastic("0", 0.0, 4, 160.3, 279.7, model="c"),
        elastic("1", 0.0, 64, 324.7, 111.9, model="a"),
        elastic("7", 152.6, 32, 882.7, 296.8, model="b"),
    ]
    charged = Overheads(launch_s=30.0, plain_restart_s=30.0)
    outcome = Bench("n16g8", table, {"a": 1e9}, charged).run(jobs, ElasticFlow())
    assert states(outcome) == {"0": "finished", "1": "finished", "7": "finished"}
    assert late(outcome) == []


@pytest.mark.parametrize(("placement", "scale"), rotated(["pack", "any"], [0, 1, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(60), deadline=None)
def test_no_admitted_job_is_late(scale: float, placement: str, seed: int) -> None:
    on, jobs = random_bench(seed, scale, placement)
    outcome = on.run(jobs, ElasticFlow())
    check_outcome(outcome)
    assert late(outcome) == []


class Watched(ElasticFlow):
    """ElasticFlow, every decision of which is held to what the proof of its promise says."""

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        watch(proposal, self.reservations(state), state)
        return proposal


@pytest.mark.parametrize(("placement", "scale"), rotated(["any", "spread", "buddy", "pack"], [0, 1, 10]))
@given(seed=st.integers(0, 10**9))
@settings(max_examples=examples(40), deadline=None)
def test_odd_counts_keep_the_promise(scale: float, placement: str, seed: int) -> None:
    on, jobs = hostile_bench(seed, scale, placement)
    outcome = on.run(jobs, Watched())
    check_outcome(outcome)
    assert late(outcome) == []


@pytest.mark.long
@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("placement", ["pack", "any", "spread", "buddy", "topology"])
def test_a_campaign_of_odd_counts(scale: float, placement: str) -> None:
    """20,000 traces in all."""
    broken = []
    for seed in range(1334):
        on, jobs = hostile_bench(seed, scale, placement)
        if late(on.run(jobs, ElasticFlow())):
            broken.append(seed)
    assert broken == [], broken


@pytest.mark.parametrize("placement", ["pack", "spread"])
def test_jobs_smaller_than_a_node_are_never_moved_for_others(placement: str) -> None:
    """Two jobs of 3 GPUs with little to spare have one node in common from the start, so that the two that
    need a node each and come later find them, and no job restarts.
    """
    charged = Overheads(launch_s=30.0, plain_restart_s=30.0)
    small = [Job(f"s{i}", 0.0, gpus=3, duration_s=900.0, deadline_s=965.0) for i in range(2)]
    large = [Job(f"l{i}", 10.0, gpus=8, duration_s=300.0, deadline_s=400.0) for i in range(2)]
    on = Bench("n3g8", {}, overheads=charged, placement=placement)
    outcome = on.run([*small, *large], ElasticFlow())
    assert len(states(outcome)) == 4
    assert set(states(outcome).values()) == {"finished"}
    assert late(outcome) == []
    assert [record.lost_s for record in outcome.records] == [30.0] * 4


@pytest.mark.parametrize(("guard_s", "late_s"), [(0.0, [("c", 179.2)]), (1e-3, [])])
def test_the_least_guard_outweighs_rounding(guard_s: float, late_s: list[Any]) -> None:
    """With no guard at all the reservation of `c` ends before its last 1e-13 s of work are done, and it waits
    for `b`. Users cannot set that; it shows what the guard is for.
    """
    jobs = [
        Job("a", 0.0, gpus=1, duration_s=73.7, deadline_s=682.0),
        Job("b", 308.3, gpus=1, duration_s=211.9, deadline_s=958.8),
        Job("c", 173.5, gpus=1, duration_s=240.2, deadline_s=779.6),
        Job("d", 0.0, gpus=1, duration_s=10_000.0),
    ]
    policy = ElasticFlow(guard_s=1e-3)
    policy.guard_s = guard_s
    outcome = Bench("n1g1", {}).run(jobs, policy)
    assert [(job, pytest.approx(seconds)) for job, seconds in late(outcome)] == late_s


def test_a_job_that_fits_no_whole_nodes_is_not_held_to_them() -> None:
    """It may use 12 GPUs of nodes of 8, which are 12 times as fast as one, and needs them."""
    table = {("m", 8): {n: float(n) for n in (1, 2, 4, 8, 12)}}
    jobs = [elastic("alone", 0, 12, 1200, 102, max_gpus=12)]
    outcome = Bench("n2g8", table).run(jobs, ElasticFlow(guard_s=0.01))
    assert states(outcome) == {"alone": "finished"}
    assert outcome.of("alone").finish_s == pytest.approx(100)


# Spare GPUs


@pytest.mark.parametrize("deadline_s", [None, 10_000.0])
@pytest.mark.parametrize("charged", [Overheads.none(), Overheads(launch_s=25.0)])
def test_alone_a_job_gets_its_fastest_size(deadline_s: float | None, charged: Overheads) -> None:
    """JCT = launch + iterations / (iterations/s on as many GPUs as help)."""
    table = {("m", 8): {8: 1.0, 16: 1.9, 32: 3.5, 64: 3.4}}
    outcome = Bench("n8g8", table, overheads=charged).run(
        [elastic("alone", 7, 8, 700, deadline_s)], ElasticFlow()
    )
    assert outcome.of("alone").jct_s == pytest.approx(charged.start_s() + 700 / 3.5)
    assert outcome.of("alone").preemptions == outcome.of("alone").resizes == 0


def test_alone_a_job_gets_no_gpus_that_cost_it_more_than_they_save() -> None:
    """Launches take 30 s on 8 GPUs, 60 s on 16: there 100 s of work on 8 are not done sooner, 200 s are."""
    charged = PRESETS["helios"]
    table = {("m", 8): {8: 1.0, 16: 1.25}}
    for work, jct_s in ((100.0, 30 + 100), (200.0, 60 + 160)):
        outcome = Bench("n2g8", table, overheads=charged).run([elastic("alone", 0, 8, work)], ElasticFlow())
        assert outcome.of("alone").jct_s == pytest.approx(jct_s)


def test_spare_gpus_go_where_gpu_time_grows_least() -> None:
    """Both get a node; the third node goes to the model that scales well, whichever was submitted first."""
    table = {("good", 8): {8: 1.0, 16: 1.9}, ("bad", 8): {8: 1.0, 16: 1.2}}
    for first, second in (("good", "bad"), ("bad", "good")):
        jobs = [elastic("0", 0, 8, 1000, model=first), elastic("1", 0, 8, 1000, model=second)]
        outcome = Bench("n3g8", table).run(jobs, ElasticFlow())
        given_at_0 = {e.job_id: e.gpus for e in outcome.events if e.event == "start"}
        assert given_at_0 == {"0": 16 if first == "good" else 8, "1": 16 if second == "good" else 8}


def test_growth_is_per_gpu_added() -> None:
    """From 8 GPUs, 16 would cost GPU time and 24 would even save some: the job goes straight there."""
    table = {("m", 8): {8: 1.0, 16: 1.01, 24: 3.0}}
    outcome = Bench("n3g8", table).run([elastic("0", 0, 8, 1000)], ElasticFlow())
    assert outcome.log()[1] == (0, "start", "0", 24)


def test_a_job_on_spare_gpus_is_moved_only_if_that_pays() -> None:
    """At 100 s half of the cluster becomes free. Growing costs 60 s and saves 45 s of 95, or 282 s of 595."""
    table = {("m", 8): {8: 1.0, 16: 1.9}}
    charged = Overheads(launch_s=5.0, plain_restart_s=55.0)
    for work, resizes in ((190.0, 0), (690.0, 1)):
        jobs = [elastic("stays", 0, 8, work), elastic("goes", 0, 8, 95)]
        outcome = Bench("n2g8", table, overheads=charged).run(jobs, ElasticFlow())
        assert outcome.of("goes").finish_s == 100
        assert outcome.of("stays").resizes == resizes


# Its relatives and its parameters


def test_vtrain_aware_is_the_same_algorithm_under_another_planner() -> None:
    assert issubclass(VTrainAware, ElasticFlow)
    assert (ElasticFlow.planner, VTrainAware.planner) == ("data-parallel", "3d")
    own = {name for name in vars(VTrainAware) if not name.startswith("__")}
    assert own == {"planner"}


@pytest.mark.parametrize("guard_s", [-1.0, 0, float("nan"), float("inf"), True])
def test_guard(guard_s: float) -> None:
    with pytest.raises(ValueError, match="guard_s"):
        ElasticFlow(guard_s=guard_s)


def test_counts_that_leave_gaps_in_nodes_are_not_promised_twice() -> None:
    """5, 5 and 6 GPUs add up to two nodes of 8, but no two of them fit into one."""
    jobs = [Job(str(i), 0.0, gpus=n, duration_s=100.0, deadline_s=110.0) for i, n in enumerate((5, 5, 6))]
    run = clustersim.run(jobs, ElasticFlow, cluster="n2g8", overheads=None)
    assert [job.state for job in run.jobs] == ["finished", "finished", "rejected"]
    assert all(job.deadline_met for job in run.jobs[:2])


def test_on_one_type_the_schedule_is_that_of_identical_gpus() -> None:
    """Regression: the digest was taken before the policy knew GPU types."""
    seen = hashlib.sha256()
    for seed in range(16):
        for maker in (random_bench, hostile_bench):
            for scale, placement in ((0, "pack"), (1, "any"), (10, "spread")):
                on, jobs = maker(seed, scale, placement)
                outcome = on.run(jobs, ElasticFlow(admission=seed % 5 > 0))
                for e in outcome.events:
                    seen.update(f"{e.time_s:.3f} {e.event} {e.job_id} {e.placement}\n".encode())
    assert seen.hexdigest() == "c3673bf57b5036f61898444e6e3c30801c6a4e533684bd9fa241d9391801cfd6"
