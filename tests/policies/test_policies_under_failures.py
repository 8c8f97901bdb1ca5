"""Every registered policy while nodes fail, leave and return: it keeps every rule and serves every job."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.runs import list_policies, make_policy
from clustersim.testing import CASES, Case, check_outcome, simulate
from tests.effort import rotated
from traces.job import Job

POLICIES = [info.name for info in list_policies()]
FAILURES = Failures(mtbf_gpu_h=3.0, kinds={"a": (1, 0.02), "b": (1, 0.2)}, spare_nodes=1, spare_swap_s=30.0)
CALENDAR = (
    {"at_s": 400, "maintenance": 0, "for_s": 300, "every_s": 900, "times": 3},
    {"at_s": 800, "remove": 1},
    {"at_s": 1500, "add": 1},
)


LARGE = [case for case in CASES if case.cluster.nodes >= 4]


@pytest.mark.parametrize(
    "cases", [LARGE[1:3], pytest.param(LARGE, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_keeps_every_rule_where_nodes_fail(policy: str, cases: Sequence[Case]) -> None:
    interrupted = 0
    for case in cases:
        overheads = Overheads(launch_s=4.0, plain_restart_s=6.0, checkpoint_interval_s=60.0)
        outcome = simulate(
            case.jobs, make_policy(policy, {}), case.cluster, table=case.table, overheads=overheads,
            failures=FAILURES, calendar=CALENDAR, seed=2,
        )  # fmt: skip
        check_outcome(outcome)
        interrupted += sum(record.interruptions for record in outcome.records)
    assert interrupted > 5


COUNTS_ALONE = ("elasticflow", "vtrain-aware")  # they do not see that free GPUs are in no common block


@pytest.mark.parametrize(("policy", "removed"), rotated(POLICIES, [(1,), (1, 2)]), ids=str)
def test_jobs_without_a_place_on_the_nodes_that_are_left_keep_no_job_out(
    policy: str, removed: tuple[int, ...]
) -> None:
    """Of nodes 0 to 3 of 4 GPUs some go for good, and with them blocks: what needs those never runs."""
    calendar = [{"at_s": 100.0 + 400 * i, "remove": node} for i, node in enumerate(removed)]
    overheads = Overheads(launch_s=4.0, plain_restart_s=6.0)
    jobs = [
        Job(str(i), 30.0 * i, f"tenant{i % 3}", gpus=(12, 1, 8, 4, 16, 2, 3)[i % 7], duration_s=100.0 + i)
        for i in range(21)
    ]
    outcome = simulate(
        jobs, make_policy(policy, {}), "n4g4", placement="buddy", calendar=calendar, overheads=overheads
    )
    left = [record.job_id for record in outcome.records if record.state == "unfinished"]
    assert left, "some jobs have no place any more"
    if policy not in COUNTS_ALONE:
        assert not [job for job in left if jobs[int(job)].gpus <= 4]


@pytest.mark.parametrize("policy", COUNTS_ALONE)
def test_a_reservation_that_passes_while_nodes_are_down(policy: str) -> None:
    """`next` counts on a launch at the end of `first`, and the node is down then. Later it runs like any
    other job, and so does `last`, which waits behind it.
    """
    table = {("m", 8): {1: 1.0}}
    jobs = [
        Job(name, submit_s, model="m", global_batch=8, gpus=1, iterations=work, deadline_s=deadline_s)
        for name, submit_s, work, deadline_s in (
            ("first", 0.0, 100.0, 115.0), ("next", 20.0, 60.0, 190.0), ("last", 300.0, 5.0, None)
        )
    ]  # fmt: skip
    outcome = simulate(
        jobs, make_policy(policy, {}), "n1g1", table=table,
        overheads=Overheads(launch_s=10.0, plain_restart_s=50.0),
        calendar=[{"at_s": 90, "maintenance": 0, "for_s": 400}],
    )  # fmt: skip
    assert [record.state for record in outcome.records] == ["finished"] * 3


BLOCKING = ("fifo", "sjf", "drf")
HEAD = Job("head", 200.0, "one", gpus=8, duration_s=10.0)
BEHIND = Job("behind", 210.0, "two", gpus=4, duration_s=30.0)


def two_nodes(policy: str, *calendar: dict[str, object]) -> dict[str, object]:
    """When a job of both nodes and a later one of one node start."""
    outcome = simulate([HEAD, BEHIND], make_policy(policy, {}), "n2g4", calendar=calendar)
    head = outcome.of("head")
    if head.state == "unfinished":
        assert head.reason == "no place for 8 GPUs on the nodes that were left for good"
    return {job: outcome.of(job).start_s for job in ("head", "behind")}


@pytest.mark.parametrize("policy", BLOCKING)
def test_a_head_that_will_never_have_a_place_keeps_no_job_waiting(policy: str) -> None:
    removed = {"at_s": 100, "remove": 1}
    assert two_nodes(policy, removed) == {"head": None, "behind": 210}
    assert two_nodes(policy, removed, {"at_s": 5000, "add": 1}) == {"head": 5000, "behind": 5010}


@pytest.mark.parametrize("policy", BLOCKING)
def test_a_node_that_goes_for_good_while_it_is_out_of_service(policy: str) -> None:
    """At 300 nothing changes but that the node will not come back; maintenance to come is no hope."""
    out = {"at_s": 100, "maintenance": 1, "for_s": 1000}
    later = {"at_s": 2000, "maintenance": 0, "for_s": 10}
    assert two_nodes(policy, out) == {"head": 1100, "behind": 1110}
    assert two_nodes(policy, out, {"at_s": 300, "remove": 1}, later) == {"head": None, "behind": 300}
