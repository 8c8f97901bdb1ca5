"""The simulator of Tiresias' authors: every start, end and preemption, where the rules are the same."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.scheduler import Scheduler
from experiments.peers.rows import columns
from experiments.peers.tiresias import LIMITS_GPU_S, QUEUES, SAME_RULES, beside, traces_in
from policies.gittins import Gittins
from policies.tiresias import Tiresias
from tests.places import SHARED
from tests.published.peers.doubles import LateTiresias

FOLDER = SHARED / "reference" / "peers" / "tiresias"
TRACES = [pytest.param(path, id=name) for name, path in traces_in(FOLDER).items()]
pytestmark = pytest.mark.skipif(
    not TRACES, reason=f"no decisions of Tiresias' simulator at {FOLDER}: they are not part of the project"
)


@pytest.mark.parametrize("path", TRACES)
@pytest.mark.parametrize("there", [*SAME_RULES, *QUEUES])
def test_the_same_rules_make_the_same_schedule(path: Path, there: str) -> None:
    """Those of Tiresias with late falls."""
    late = LateTiresias(LIMITS_GPU_S, QUEUES[there]) if there in QUEUES else None
    here, policy = SAME_RULES.get(there, ("tiresias", lambda: late))
    row = beside(path, there, here, policy())
    assert row.equal == row.of
    assert row.preemptions is not None
    assert row.preemptions[0] == row.preemptions[1]


@pytest.mark.parametrize("path", TRACES)
@pytest.mark.parametrize("there", QUEUES)
def test_tiresias_is_near_in_every_schedule(path: Path, there: str) -> None:
    """All of the 60 jobs of the authors' example; elsewhere wide jobs fall late there."""
    row = beside(path, there, "tiresias", Tiresias(LIMITS_GPU_S, QUEUES[there]))
    assert row.difference is not None
    assert abs(row.difference) <= 0.06
    assert row.preemptions is not None
    assert row.preemptions[0] <= 1.45 * row.preemptions[1]
    if path.name.startswith("60_job."):
        assert row.equal == row.of == 60


def test_the_order_within_a_queue_matters() -> None:
    """By submission the mean JCT is farther away, and jobs of a queue preempt each other."""
    path = traces_in(FOLDER)["t300"]
    ours, other = (
        beside(path, "dlas-gpu-1", "tiresias", Tiresias(LIMITS_GPU_S, 1.0, order))
        for order in ("start", "submission")
    )
    assert ours.difference is not None
    assert other.difference is not None
    assert abs(ours.difference) < 0.01 < 0.15 < other.difference
    assert other.preemptions > ours.preemptions  # type: ignore[operator]


@pytest.mark.parametrize(("trace", "least", "most"), [("60_job", -0.125, -0.115), ("t300", -0.01, 0.0)])
def test_gittins_is_another_index(trace: str, least: float, most: float) -> None:
    """Theirs divides by whole sizes instead of what is left; the mean JCT here is the smaller one."""
    sizes = [float(row["duration"]) for row in columns(FOLDER / "yarn-gput1000.csv")]
    row = beside(traces_in(FOLDER)[trace], "dlas-gpu-gittins", "gittins", Gittins(sizes))
    assert row.equal < row.of
    assert row.difference is not None
    assert least < row.difference < most


@pytest.mark.parametrize("policy", [policy for _, policy in SAME_RULES.values()])
def test_a_wrong_policy_is_seen(policy: Callable[[], Scheduler]) -> None:
    """Each rule beside the schedule of another one: a comparison that finds all equal would show nothing."""
    names = list(SAME_RULES)
    mine = next(there for there, (_, rule) in SAME_RULES.items() if rule is policy)
    other = names[(names.index(mine) + 1) % len(names)]
    row = beside(traces_in(FOLDER)["t300"], other, "another", policy())
    assert row.equal < row.of
