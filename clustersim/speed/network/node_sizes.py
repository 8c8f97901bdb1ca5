"""Speeds where nodes of one GPU type differ in the number of their GPUs, on an ideal network.

A curve is that of the largest nodes. A job runs at its speed if all its nodes are as large, but for one,
which may have the rest. Otherwise the smallest of its nodes decides, not counting the one with the fewest of
its GPUs: the job runs as its plan does on nodes of that size. Under `tiers` and `contention` the layout says
as much (`layout.py`). Jobs known by their duration or by a throughput table have the same speed everywhere.
"""

from __future__ import annotations

from clustersim.cluster import Cluster, Placement
from clustersim.speed.curve import Curve
from clustersim.speed.speed import Speed

from .layout import Layout, LayoutTimes

__all__ = ["NodeSizes"]


class NodeSizes:
    """Seconds per unit of work by the sizes of a job's nodes."""

    def __init__(self, cluster: Cluster, speed: Speed):
        self._cluster, self._times = cluster, LayoutTimes(speed)

    def unit_s(self, curve: Curve, gpus: int, placement: Placement) -> float:
        """Seconds per unit of a job with `curve` that has the `gpus` GPUs of `placement`."""
        if len(placement) == 1 or gpus not in curve.training:
            return curve.unit_s[gpus]
        cluster = self._cluster
        sizes_by_count = sorted((count, -cluster.size_of(node)) for node, count in placement)
        smallest = min(-size for _, size in sizes_by_count[1:])
        gpu_type = cluster.type_of(placement[0][0])
        if smallest == cluster.pool(gpu_type).gpus_per_node:
            return curve.unit_s[gpus]
        times = self._times.of(curve, gpus, Layout(gpu_type, smallest))
        return curve.unit_s[gpus] if times is None else times.unit_s() * curve.per_unit
