"""Every registered policy where nodes fail, go and come: it keeps every rule, and serves everybody."""

from __future__ import annotations

import pytest

from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.registry import list_policies, make_policy
from clustersim.testing import CASES, check_outcome, simulate

FAILURES = Failures(mtbf_gpu_h=3.0, kinds={"a": (1, 0.02), "b": (1, 0.2)}, spare_nodes=1, spare_swap_s=30.0)
CALENDAR = (
    {"at_s": 400, "maintenance": 0, "for_s": 300, "every_s": 900, "times": 3},
    {"at_s": 800, "remove": 1},
    {"at_s": 1500, "add": 1},
)


@pytest.mark.parametrize("policy", [info.name for info in list_policies()])
def test_a_policy_keeps_every_rule_where_nodes_fail(policy: str) -> None:
    interrupted = 0
    for case in CASES:
        if case.cluster.nodes < 4:
            continue
        overheads = Overheads(launch_s=4.0, plain_restart_s=6.0, checkpoint_interval_s=60.0)
        outcome = simulate(
            case.jobs, make_policy(policy, {}), case.cluster, table=case.table, overheads=overheads,
            failures=FAILURES, calendar=CALENDAR, seed=2,
        )  # fmt: skip
        check_outcome(outcome)
        interrupted += sum(record.interruptions for record in outcome.records)
    assert interrupted > 5
