"""Outages of nodes: their distributions against theory, that they depend on the seed alone, and calendars."""

from dataclasses import replace
from itertools import pairwise
from math import gamma, inf
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clustersim.failures import Failures, Maintenance, NodeChange, Outages, Spot, read_calendar
from clustersim.failures.failures import KINDS, Machine, lemons
from clustersim.failures.maintenance import Closure, PlannedChange
from itertime.errors import UserError
from tests.effort import examples
from tests.tables import TABLES

HOUR = 3600.0
CONFIDENCE = 0.99


def changes(outages: Outages, until_s: float) -> list[NodeChange]:
    found: list[NodeChange] = []
    while (change := outages.next_until(inf)) is not None and change.time_s < until_s:
        found.append(change)
    return found


def down_s(found: list[NodeChange], nodes: int, until_s: float) -> np.ndarray:
    """Seconds out of service before `until_s`, by node."""
    total, since = np.zeros(nodes), dict[int, float]()
    for change in found:
        if change.up:
            total[change.node] += change.time_s - since.pop(change.node)
        else:
            assert change.node not in since, "a node that is down goes down"
            since[change.node] = change.time_s
    for node, from_s in since.items():
        total[node] += until_s - from_s
    return total


def mean_of(values: Any, widest: float) -> Any:
    """Equal to every number in the 99 % confidence interval of the mean of `values`, whose half-width must be
    below `widest` of the mean.
    """
    mean, half_width = np.mean(values), stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * stats.sem(values)
    assert half_width <= widest * mean
    return pytest.approx(mean, abs=half_width)


# Machines


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_lives_have_the_stated_mean_and_shape(shape: float) -> None:
    machine = Machine(Failures(weibull_shape=shape), 1, 0)
    lives = np.array([machine.life_s(100.0) for _ in range(20_000)])
    assert mean_of(lives, 0.05) == 100.0
    scale = 100.0 / gamma(1 + 1 / shape)
    assert stats.kstest(lives, stats.weibull_min(shape, scale=scale).cdf).pvalue > 0.001


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_first_lives_are_those_of_machines_that_were_there_before(shape: float) -> None:
    """The rest of a life observed at a random moment has the mean E[L^2] / (2 E[L]) (inspection paradox)."""
    parameters = Failures(weibull_shape=shape)
    rests = [Machine(parameters, 1, i).first_life_s(100.0) for i in range(4_000)]
    second = (100.0 / gamma(1 + 1 / shape)) ** 2 * gamma(1 + 2 / shape)
    assert mean_of(rests, 0.08) == second / 200.0


def test_faults_come_in_their_shares_and_take_their_mean_to_repair() -> None:
    machine = Machine(Failures(repair_sigma=0.5), 3, 0)
    faults = [machine.fault() for _ in range(20_000)]
    counts = [sum(fault.kind == kind for fault in faults) for kind in KINDS]
    shares = [share for share, _ in KINDS.values()]
    assert stats.chisquare(counts, [share * len(faults) for share in shares]).pvalue > 0.001
    for kind, (_, hours) in KINDS.items():
        assert mean_of([fault.repair_s / HOUR for fault in faults if fault.kind == kind], 0.05) == hours


def test_published_rates_and_lemons() -> None:
    """One per 50,700 GPU-hours is one node of 8 in 264 days; lemons leave the mean rate as it is."""
    assert Failures.of({"preset": "llama3"}).node_mtbf_s(8) == pytest.approx(264 * 86_400, rel=1e-3)
    gpu_h_per_failure = 54 * 24 * 16_384 / 419
    assert gpu_h_per_failure == pytest.approx(50_700, rel=1e-3)
    parameters = Failures(lemon_share=0.1, lemon_factor=5.0)
    ordinary = parameters.ordinary_mtbf_s(8)
    assert 0.9 / ordinary + 0.1 * 5.0 / ordinary == pytest.approx(1 / parameters.node_mtbf_s(8))
    assert len(lemons(parameters, 200, 0)) == 20
    assert lemons(parameters, 200, 0) != lemons(parameters, 200, 1)
    assert not lemons(Failures(), 200, 0)


# Outages


@pytest.mark.parametrize("shape", [0.7, 1.0])
def test_availability_is_mtbf_over_mtbf_plus_mttr(shape: float) -> None:
    """Alternating renewal processes (Cox, Renewal Theory, 1962, section 7.4), nodes as replications."""
    nodes, until_s = 400, 6000 * HOUR
    failures = Failures(
        mtbf_gpu_h=8 * 90.0, weibull_shape=shape, kinds={"a": (1, 6.0), "b": (1, 14.0)}, repair_sigma=0.5
    )
    down = down_s(changes(Outages([8] * nodes, 0.0, failures=failures, seed=5), until_s), nodes, until_s)
    assert mean_of(down / until_s, 0.03) == 10.0 / (90.0 + 10.0)


def test_failures_are_as_many_as_stated() -> None:
    """Per GPU-hour in service; the fleet has lemons, which fail ten times as often."""
    nodes, until_s = 300, 2000 * HOUR
    failures = Failures(mtbf_gpu_h=8 * 50.0, lemon_share=0.1, kinds={"a": (1, 0.001)}, repair_sigma=0.0)
    counts = np.zeros(nodes)
    for change in changes(Outages([8] * nodes, 0.0, failures=failures, seed=2), until_s):
        counts[change.node] += not change.up
    assert counts.sum() == pytest.approx(nodes * 2000 / 50.0, rel=0.03)
    bad = sorted(lemons(failures, nodes, 2))
    good = [node for node in range(nodes) if node not in bad]
    assert counts[bad].mean() / counts[good].mean() == pytest.approx(10.0, rel=0.1)


def test_a_spare_takes_the_place_after_the_swap() -> None:
    base = {"mtbf_gpu_h": 8 * 1000.0, "kinds": {"a": (1, 500.0)}, "repair_sigma": 0.0}
    found = changes(
        Outages([8] * 4, 0.0, failures=Failures(**base, spare_nodes=50, spare_swap_s=60.0)),
        3000 * HOUR,  # type: ignore[arg-type]
    )
    downs = {(change.node, change.time_s) for change in found if not change.up}
    ups = [(change.node, change.time_s - 60.0) for change in found if change.up]
    assert len(downs) >= 8
    assert {(node, round(t, 3)) for node, t in ups} <= {(node, round(t, 3)) for node, t in downs}
    alone = changes(Outages([8] * 4, 0.0, failures=Failures(**base)), 3000 * HOUR)  # type: ignore[arg-type]
    first = {change.node: change for change in reversed(alone) if not change.up}
    for node, change in first.items():
        back = next((c.time_s for c in alone if c.up and c.node == node), None)
        assert back is None or back - change.time_s == pytest.approx(500 * HOUR)


def test_with_too_few_spares_the_repaired_machines_go_round() -> None:
    """Two nodes and one spare: never more than two machines serve, and every node comes back."""
    failures = Failures(
        mtbf_gpu_h=8 * 10.0, kinds={"a": (1, 10.0)}, repair_sigma=1.0, spare_nodes=1, spare_swap_s=600.0
    )
    until_s = 20_000 * HOUR
    found = changes(Outages([8] * 2, 0.0, failures=failures), until_s)
    for node in (0, 1):
        own = [change.up for change in found if change.node == node]
        assert len(own) > 100
        assert all(a != b for a, b in pairwise(own)), "a node goes down and up in turns"
    without = Failures(mtbf_gpu_h=8 * 10.0, kinds={"a": (1, 10.0)}, repair_sigma=1.0)
    worse = down_s(changes(Outages([8] * 2, 0.0, failures=without), until_s), 2, until_s).sum()
    assert down_s(found, 2, until_s).sum() < 0.8 * worse


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(0, 3))
def test_outages_alternate_in_order_of_time_and_repeat(seed: int, nodes: int, spares: int) -> None:
    failures = Failures(mtbf_gpu_h=8 * 50.0, spare_nodes=spares, repair_sigma=1.5)
    calendar = Maintenance.of(
        [{"at_s": 1e5, "maintenance": "0", "for_s": 2e5}, {"at_s": 2e5, "add": f"{nodes - 1}"}], nodes
    )
    one, two = (
        changes(Outages([8] * nodes, 0.0, failures=failures, maintenance=calendar, seed=seed), 3e6)
        for _ in range(2)
    )
    assert one == two
    assert all(a.time_s <= b.time_s for a, b in pairwise(one))
    assert (down_s(one, nodes, 3e6) >= 0).all()


def test_machines_fail_alike_in_any_cluster() -> None:
    """The first failure of a node is the same in a larger cluster, and with spares."""
    first = {}
    for nodes, spares in ((3, 0), (30, 0), (3, 5)):
        found = changes(Outages([8] * nodes, 0.0, failures=Failures(spare_nodes=spares), seed=9), 1e9)
        first[nodes, spares] = [
            next(change.time_s for change in found if change.node == node and not change.up)
            for node in range(3)
        ]
    assert first[3, 0] == first[30, 0] == first[3, 5]


PLANNED = {
    case["case"]: case
    for case in yaml.safe_load(Path(__file__).with_name("planned.yaml").read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", PLANNED)
def test_planned_changes(name: str) -> None:
    case = PLANNED[name]
    maintenance = Maintenance.of(case["calendar"], case["nodes"])
    outages = Outages([8] * case["nodes"], case["start_s"], maintenance=maintenance)
    assert changes(outages, 1e9) == [NodeChange(*change, True) for change in case["changes"]]
    assert outages.next_until(inf) is None
    assert outages.gone(60.0) == set(case["gone"])


def test_a_node_that_is_removed_for_good_is_not_reclaimed_any_more() -> None:
    """Else reclaims that change nothing would be drawn without end. The other spot node draws as before."""
    spot = Spot(nodes=(0, 1), mean_up_h=0.1, mean_down_h=0.1)
    calendar = Maintenance.of([{"at_s": 900, "remove": 0}], 3)
    alone = Outages([8] * 3, 0.0, maintenance=calendar, spot=replace(spot, nodes=(0,)))
    assert all(change.time_s < 2e4 for change in changes(alone, inf))
    both, without = (
        [change for change in changes(Outages([8] * 3, 0.0, maintenance=plan, spot=spot), 1e5) if change.node]
        for plan in (calendar, None)
    )
    assert both == without


def test_changes_are_drawn_as_far_as_they_are_asked_for() -> None:
    """The only node is out for 30 years while its machines fail and are repaired."""
    calendar = Maintenance.of([{"at_s": 0, "maintenance": 0, "for_s": 1e9}], 1)
    outages = Outages([8], 0.0, failures=Failures(mtbf_gpu_h=1e-3), maintenance=calendar)
    assert outages.next_until(100.0) == NodeChange(0.0, 0, False, "maintenance", True)
    assert outages.next_until(100.0) is None


def test_shares_are_scaled_to_one() -> None:
    assert Failures(kinds={"a": (3, 1.0), "b": (1, 2.0)}).kinds == {"a": (0.75, 1.0), "b": (0.25, 2.0)}


def test_machines_that_never_serve_cost_nothing() -> None:
    """Spares are drawn when they first serve, and draw the same as ever."""
    began = process_time()
    many = changes(Outages([8] * 4, 0.0, failures=Failures(mtbf_gpu_h=10.0, spare_nodes=1_000_000)), 1e6)
    assert process_time() - began < 2
    few = changes(Outages([8] * 4, 0.0, failures=Failures(mtbf_gpu_h=10.0, spare_nodes=5000)), 1e6)
    assert len(few) > 1000
    assert many == few


def test_failures_of_too_many_nodes_are_refused() -> None:
    with pytest.raises(UserError, match="has 100,001 nodes; failures are drawn for at most 100,000"):
        Outages([8] * 100_001, 0.0, failures=Failures())
    assert Outages([8] * 100_001, 0.0, failures=Failures(mtbf_gpu_h=None)).next_until(inf) is None


# Calendars


def test_a_calendar_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("calendar:\n  - {at_s: 5, remove: 0}\n")
    assert Maintenance.of(read_calendar(str(path)), 1).changes == (PlannedChange(5, 0, 1, "capacity"),)
    path.write_text("calender:\n  - {at_s: 5, remove: 0}\n")
    with pytest.raises(UserError, match=r"plan\.yaml: must hold one key, calendar"):
        read_calendar(str(path))
    with pytest.raises(UserError, match=r"must be a list of entries, or a file FILE\.yaml"):
        read_calendar("plan.txt")


def test_more_entries_than_a_manifest_should_hold_are_refused() -> None:
    with pytest.raises(UserError, match=r"has 100,001 entries, more than 100,000"):
        Maintenance.of([{"at_s": 1, "add": 1}] * 100_001, 4)


def test_what_is_announced_of_nodes_is_when_they_are_out() -> None:
    """Entries that overlap are one closure; the nodes of a part of the cluster count from its first one."""
    calendar = Maintenance.of(TABLES["what is announced of nodes"], 4)
    assert calendar.closures(1, 3) == [
        Closure(-inf, 5, (2,)), Closure(10, 20, (1,)), Closure(10, 25, (0,)), Closure(40, inf, (1,)),
    ]  # fmt: skip
    assert calendar.closures(0, 1) == [Closure(10, 20, (0,))]
