"""Every registered policy while nodes fail, leave and return: it keeps every rule and serves every job."""

from __future__ import annotations

import pytest

from clustersim.overheads import Overheads
from clustersim.runs import list_policies, make_policy
from clustersim.testing import simulate
from traces.job import Job

POLICIES = [info.name for info in list_policies()]


COUNTS_ALONE = ("elasticflow", "vtrain-aware")  # they do not see that free GPUs are in no common block


@pytest.mark.parametrize("removed", [(1,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(name, marks=[pytest.mark.long] * (i % 4 > 0 and name != "unicron"))
        for i, name in enumerate(POLICIES)
    ],
)
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
