"""How long an iteration takes where a job runs: spread over more nodes or leaf switches than it needs.

A placement becomes a `Layout`, the shape that `itertime` can be asked about:

- *nodes*: every node counts as the one with the fewest of the job's GPUs, k of them, with k GPUs' part of the
  node's NICs (a GPU's NIC is its own; neighbours of other jobs use theirs). Collectives that no longer fit
  into a node cross NICs. Full nodes and one with the rest, under one leaf, are what the job's speed is for.
- *leaves*: of the nodes that a job has below a switch, as many send upwards at once as rings leave it (see
  `itertime.fabric`): one for rings through neighbours, the nodes of a stage where pipeline stages send to the
  next. What that comes to, over what the job gets of the uplinks, is how far they are oversubscribed, at
  the worst of its switches. A group counts as crossing when it is larger than the job's smallest part
  under one leaf.

A plan that uses fewer GPUs than the job holds leaves those out that lie most scattered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor, inf, isclose, log2
from typing import TYPE_CHECKING, NamedTuple

from .cluster import Cluster, Placement

if TYPE_CHECKING:
    from itertime.plan import Plan
    from itertime.planner import Planner
    from itertime.system import System

    from .curve import Curve
    from .speed import Speed

__all__ = ["IterationTimes", "Layout", "LayoutTimes", "demand_of", "layout_of", "uplinks"]

KNOTS_PER_OCTAVE = 4


class Layout(NamedTuple):
    """The GPU type; GPUs per node (of the node with the fewest); nodes, of that many GPUs, under the leaf
    with the fewest, 0 if all are under one, and how many of these send up at once; what they send over what
    the uplinks carry when nobody else uses them, at least 1.
    """

    gpu_type: str
    gpus_per_node: int
    nodes_per_leaf: int = 0
    nodes_sending: int = 0
    oversubscription: float = 1.0


def uplinks(cluster: Cluster) -> dict[int, float]:
    """Bytes/s of the links that can be short: leaf i's uplinks as link i, spine block j's as link -1 - j."""
    links: dict[int, float] = {}
    for i, leaf in enumerate(cluster.leaves):
        if leaf.uplink_bytes_per_s is not None:
            links[i] = leaf.uplink_bytes_per_s
        if leaf.spine_uplink_bytes_per_s is not None:
            links[-1 - leaf.spine] = leaf.spine_uplink_bytes_per_s
    return links


def demand_of(cluster: Cluster, placement: Placement, plan: Plan, nic_bytes_per_s: float) -> dict[int, float]:
    """Bytes/s that a job sends up from each leaf and spine block if nothing holds it back, by link; nothing
    from the only leaf or block it is on. `nic_bytes_per_s`: of one GPU.
    """
    leaves, blocks = _gpus_by_switch(cluster, placement)
    if len(leaves) == 1:
        return {}
    fewest = min(count for _, count in placement)
    most = nodes_apart(plan, fewest) * fewest
    demand = {leaf: min(gpus, most) * nic_bytes_per_s for leaf, gpus in leaves.items()}
    if len(blocks) > 1:
        demand |= {-1 - block: min(gpus, most) * nic_bytes_per_s for block, gpus in blocks.items()}
    return demand


def nodes_apart(plan: Plan, gpus_per_node: int) -> int:
    """How many nodes lie, at most, between a rank and the next of one of its rings: so many rings leave a
    switch side by side, each with a node's traffic. Ranks count tp, cp, dp, pp.
    """
    stage = plan.tp * plan.cp * plan.dp
    if plan.rank_order == "tp-cp-pp-dp":
        apart = plan.tp * plan.cp * plan.pp if plan.dp > 1 else plan.tp * plan.cp
    else:
        apart = stage if plan.pp > 1 else plan.tp * plan.cp
    return max(apart // gpus_per_node, 1)


def _gpus_by_switch(cluster: Cluster, placement: Placement) -> tuple[dict[int, int], dict[int, int]]:
    leaf_of, switches = cluster.leaf_of, cluster.leaves
    leaves: dict[int, int] = {}
    for node, count in placement:
        leaves[leaf_of[node]] = leaves.get(leaf_of[node], 0) + count
    blocks: dict[int, int] = {}
    for leaf, count in leaves.items():
        block = switches[leaf].spine
        blocks[block] = blocks.get(block, 0) + count
    return leaves, blocks


def used_part(placement: Placement, gpus: int) -> Placement:
    """The places of `gpus` of a job's GPUs, the nodes where it holds the most first."""
    left, used = gpus, []
    for node, count in sorted(placement, key=lambda place: (-place[1], place[0])):
        if left:
            used.append((node, min(count, left)))
            left -= used[-1][1]
    return tuple(sorted(used))


def layout_of(
    cluster: Cluster, gpu_type: str, placement: Placement, plan: Plan, demand: Mapping[int, float],
    capacity: Mapping[int, float],
) -> Layout:  # fmt: skip
    """The layout of `placement`, whose `demand` (see `demand_of`) meets links of `capacity` bytes/s."""
    per_node = cluster.pool(gpu_type).gpus_per_node
    if len(placement) == 1 or (not demand and _is_packed(placement, per_node)):
        return Layout(gpu_type, per_node)
    fewest = min(count for _, count in placement)
    if not demand:
        return Layout(gpu_type, fewest)
    worst = max(amount / capacity.get(link, inf) for link, amount in demand.items())
    leaves, _ = _gpus_by_switch(cluster, placement)
    per_leaf = max(min(leaves.values()) // fewest, 1)
    return Layout(gpu_type, fewest, per_leaf, min(nodes_apart(plan, fewest), per_leaf), max(worst, 1.0))


def _is_packed(placement: Placement, gpus_per_node: int) -> bool:
    """Whether all nodes but one, which has the rest, are full: `itertime` prices a plan on such nodes."""
    return sum(count == gpus_per_node for _, count in placement) >= len(placement) - 1


class LayoutTimes:
    """Seconds per iteration by layout, each worked out once."""

    def __init__(self, speed: Speed):
        self._speed = speed
        self._known: dict[tuple[object, object, Layout], IterationTimes] = {}

    def of(self, curve: Curve, gpus: int, layout: Layout) -> IterationTimes | None:
        """Those of a job of `curve` on `gpus` GPUs; None if nothing is known of what it sends."""
        plan, planner = curve.training.get(gpus), self._speed.planner_of(layout.gpu_type)
        if plan is None or planner is None:
            return None
        key = curve.model, plan, layout
        if key not in self._known:
            self._known[key] = IterationTimes(curve, gpus, layout, planner)
        return self._known[key]


class IterationTimes:
    """Seconds per iteration of one kind of job in one layout.

    At a smaller share of the uplinks than a job gets alone, the time is interpolated on a straight line
    between exact times at 2^(1/4) times the oversubscription, and so on: what is sent grows linearly with it,
    and changes of slope, where communication outgrows what hides it, are few.
    """

    def __init__(self, curve: Curve, gpus: int, layout: Layout, planner: Planner):
        self._curve, self._gpus, self._layout, self._planner = curve, gpus, layout, planner
        self._exact: dict[int, float] = {}
        self._lines: dict[int, tuple[float, float, float, float]] = {}

    def unit_s(self, oversubscription: float = 1.0) -> float:
        """`oversubscription`: what it sends up over what it gets, as it is now; no less than that of the
        layout, when nobody else is there.
        """
        alone = self._layout.oversubscription
        if oversubscription <= alone or isclose(oversubscription, alone, rel_tol=1e-9):
            return self._at(0)
        low = floor(KNOTS_PER_OCTAVE * log2(oversubscription / alone))
        if low not in self._lines:
            below, above = (alone * 2 ** ((low + i) / KNOTS_PER_OCTAVE) for i in (0, 1))
            self._lines[low] = below, above, self._at(low), self._at(low + 1)
        below, above, early, late = self._lines[low]
        return early + (late - early) * (oversubscription - below) / (above - below)

    def _at(self, knot: int) -> float:
        seconds = self._exact.get(knot)
        if seconds is None:
            ratio = self._layout.oversubscription * 2 ** (knot / KNOTS_PER_OCTAVE)
            seconds = self._exact[knot] = self._iteration_s(ratio)
        return seconds

    def _iteration_s(self, oversubscription: float) -> float:
        from itertime.planbatch import PlanBatch
        from itertime.prediction import evaluate

        curve, gpus, planner = self._curve, self._gpus, self._planner
        assert curve.model is not None
        system = system_at(planner.system, self._layout, oversubscription)
        if system == planner.system:
            return curve.unit_s[gpus]
        found = evaluate(curve.model, PlanBatch.of([curve.training[gpus]]), system, planner.profile)
        return float(found.iteration_s[0])


def system_at(system: System, layout: Layout, oversubscription: float) -> System:
    """`system` as a job of that layout sees it."""
    count = layout.gpus_per_node
    share = count / system.gpus_per_node
    nics = system.nics_per_node and max(1, round(system.nics_per_node * share))
    crosses = layout.nodes_per_leaf > 0 and oversubscription > 1
    return replace(
        system,
        gpus_per_node=count,
        nic_bytes_per_s=system.nic_bytes_per_s * share,
        nics_per_node=nics,
        nodes_per_leaf=layout.nodes_per_leaf if crosses else None,
        leaf_oversubscription=oversubscription * layout.nodes_per_leaf / layout.nodes_sending
        if crosses
        else 1.0,
        nodes_per_spine=None,
        spine_oversubscription=1.0,
    )
