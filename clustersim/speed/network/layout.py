"""Iteration times by placement: of jobs on more nodes or leaf switches than they need.

A placement is reduced to a `Layout`, a shape that `itertime` can predict:

- *nodes*: all nodes count as the node with the fewest of the job's GPUs. With k GPUs there, a node has the
  NICs of k GPUs (a GPU's NIC is its own; other jobs on the node use theirs). Collectives that no longer fit
  into a node cross NICs. The job's curve holds for full nodes, and one with the rest, under one leaf.
- *leaves*: of the job's nodes below a switch, those that send upwards at once are as many as the rings that
  leave the switch (see `itertime.costs`): one for rings through neighbours, and the nodes of a stage where
  pipeline stages send to the next. Their traffic over the job's part of the uplinks is the oversubscription;
  the worst of the job's switches counts. A group crosses leaves if it is larger than the job's smallest
  part under one leaf.

If a plan uses fewer GPUs than the job holds, the most scattered GPUs are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor, inf, isclose, log2
from typing import NamedTuple

from clustersim.cluster import Cluster, Placement
from clustersim.speed.curve import Curve
from clustersim.speed.speed import Speed
from itertime.planning import Planner
from itertime.prediction import evaluate
from itertime.spec import DEFAULT_OPTIONS, Plan, PlanBatch, System

from .traffic import sent_share

__all__ = [
    "IterationTimes",
    "Layout",
    "LayoutTimes",
    "demand_of",
    "layout_of",
    "nodes_apart",
    "system_at",
    "uplinks",
    "used_part",
]

KNOTS_PER_OCTAVE = 4


class Layout(NamedTuple):
    """The shape of a placement.

    `gpus_per_node`: of the node with the fewest. `nodes_per_leaf`: nodes of that many GPUs under the leaf
    with the fewest GPUs; 0 if all nodes are under one leaf. `nodes_sending`: how many of them send up at
    once. `oversubscription`: the traffic of the job over the capacity of the uplinks, at least 1.
    """

    gpu_type: str
    gpus_per_node: int
    nodes_per_leaf: int = 0
    nodes_sending: int = 0
    oversubscription: float = 1.0


def uplinks(cluster: Cluster) -> dict[int, float]:
    """Bytes/s of the links that can be a bottleneck. The uplinks of leaf i are link i, those of spine block j
    link -1 - j.
    """
    links: dict[int, float] = {}
    for i, leaf in enumerate(cluster.leaves):
        if leaf.uplink_bytes_per_s is not None:
            links[i] = leaf.uplink_bytes_per_s
        if leaf.spine_uplink_bytes_per_s is not None:
            links[-1 - leaf.spine] = leaf.spine_uplink_bytes_per_s
    return links


def demand_of(cluster: Cluster, placement: Placement, plan: Plan, nic_bytes_per_s: float) -> dict[int, float]:
    """Bytes/s by link that an unhindered job sends up from each leaf and spine block; none if it is on a
    single leaf or block. `nic_bytes_per_s`: of one GPU.
    """
    leaves, blocks = _gpus_by_switch(cluster, placement)
    if len(leaves) == 1:
        return {}
    fewest = min(count for _, count in placement)
    node_limit = nodes_apart(plan, fewest) * fewest
    demand = {leaf: min(gpus, node_limit) * nic_bytes_per_s for leaf, gpus in leaves.items()}
    if len(blocks) > 1:
        demand |= {-1 - block: min(gpus, node_limit) * nic_bytes_per_s for block, gpus in blocks.items()}
    return demand


def nodes_apart(plan: Plan, gpus_per_node: int) -> int:
    """The largest distance, in nodes, from a rank to the next one of its rings. As many rings leave a switch
    side by side, each with the traffic of a node. Ranks are numbered by tp, cp, dp, pp unless the plan states
    another order.

    Plans whose `options` have workers count the rings within a worker. The rings between workers are
    longer, but run once in `local_steps` iterations, and are left out.
    """
    replica, dp = plan.tp * plan.cp, plan.dp // plan.options.workers
    if plan.rank_order == "tp-cp-pp-dp":
        node_count = replica * plan.pp if dp > 1 else replica
    else:
        node_count = replica * dp if plan.pp > 1 else replica
    return max(node_count // gpus_per_node, 1)


def _gpus_by_switch(cluster: Cluster, placement: Placement) -> tuple[dict[int, int], dict[int, int]]:
    """The GPUs of a placement by leaf, and by spine block."""
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
    """The part of a placement that holds `gpus` GPUs, with the nodes where the job has the most GPUs."""
    remaining, used_spots = gpus, []
    for node, count in sorted(placement, key=lambda place: (-place[1], place[0])):
        if remaining:
            used_spots.append((node, min(count, remaining)))
            remaining -= used_spots[-1][1]
    return tuple(sorted(used_spots))


def layout_of(
    cluster: Cluster,
    gpu_type: str,
    placement: Placement,
    plan: Plan,
    demand: Mapping[int, float],
    capacity: Mapping[int, float],
) -> Layout:
    """The layout of `placement`. `demand` (see `demand_of`) and `capacity` are bytes/s by link."""
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
    """Whether all nodes are full but one, which has the rest: the nodes for which `itertime` times a plan."""
    return sum(count == gpus_per_node for _, count in placement) >= len(placement) - 1


class LayoutTimes:
    """Seconds per iteration by layout, each computed once."""

    def __init__(self, speed: Speed):
        self._speed = speed
        self._known: dict[tuple[object, object, object, Layout], IterationTimes] = {}

    def of(self, curve: Curve, gpus: int, layout: Layout) -> IterationTimes | None:
        """The times of a job with `curve` on `gpus` GPUs; None if its traffic is unknown."""
        plan, planner = curve.training.get(gpus), self._speed.planner_of(layout.gpu_type)
        if plan is None or planner is None:
            return None
        key = curve.model, curve.framework, plan, layout
        if key not in self._known:
            self._known[key] = IterationTimes(curve, gpus, layout, planner.under(curve.framework))
        return self._known[key]


class IterationTimes:
    """Seconds per iteration of one kind of job in one layout. `sent_share`: what the job sends, of what it
    would send if its plan had no options.

    For a job that shares its uplinks the time is interpolated linearly between exact times, which are a
    factor of 2^(1/4) in oversubscription apart. The time of a transfer is linear in the oversubscription, and
    the slope changes only where communication outgrows the computation that hides it.
    """

    def __init__(self, curve: Curve, gpus: int, layout: Layout, planner: Planner):
        self._curve, self._gpus, self._layout, self._planner = curve, gpus, layout, planner
        self.sent_share = 1.0
        if curve.model is not None and curve.training[gpus].options != DEFAULT_OPTIONS:
            system = system_at(planner.system, layout, 1.0)
            self.sent_share = sent_share(curve.model, curve.training[gpus], system, planner.profile)
        self._exact: dict[int, float] = {}
        self._lines: dict[int, tuple[float, float, float, float]] = {}

    def unit_s(self, oversubscription: float = 1.0) -> float:
        """`oversubscription`: the job's demand over its present share of the uplinks. A value below that of
        the layout, which is for a job alone on its links, counts as that of the layout.
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

    def oversubscription(self, share: float) -> float:
        """The argument of `unit_s` for a job that gets `share` of what it sends on average.

        A job with a `sent_share` of 1 sends all the time. Any other sends at the full rate of its NICs in a
        part of the iteration. The other jobs' mean traffic is then on the links with it.
        """
        if share >= 1.0:
            return 1.0
        return 1.0 / share + (1.0 - self.sent_share) * self._layout.oversubscription

    def _at(self, knot: int) -> float:
        seconds = self._exact.get(knot)
        if seconds is None:
            ratio = self._layout.oversubscription * 2 ** (knot / KNOTS_PER_OCTAVE)
            seconds = self._exact[knot] = self._iteration_s(ratio)
        return seconds

    def _iteration_s(self, oversubscription: float) -> float:
        curve, gpus, planner = self._curve, self._gpus, self._planner
        assert curve.model is not None
        system = system_at(planner.system, self._layout, oversubscription)
        if system == planner.system:
            return (curve.alone or curve).unit_s[gpus]
        estimates = evaluate(curve.model, PlanBatch.of([curve.training[gpus]]), system, planner.profile)
        return float(estimates.iteration_s[0])


def system_at(system: System, layout: Layout, oversubscription: float) -> System:
    """`system`, with the nodes and switches that a job of that layout has."""
    nodes_per_leaf, leaf_oversubscription = None, 1.0
    if layout.nodes_per_leaf > 0 and oversubscription > 1:
        nodes_per_leaf = layout.nodes_per_leaf
        leaf_oversubscription = oversubscription * layout.nodes_per_leaf / layout.nodes_sending
    return replace(
        system.with_gpus(layout.gpus_per_node),
        nodes_per_leaf=nodes_per_leaf,
        leaf_oversubscription=leaf_oversubscription,
        nodes_per_spine=None,
        spine_oversubscription=1.0,
    )
