"""Curves: how fast one kind of job runs on how many GPUs of one type, and what a GPU type offers a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clustersim.cluster import Cluster
from itertime.spec import ModelSpec, Plan

__all__ = ["CannotRun", "Curve", "Offer", "regular_counts", "worthwhile"]


def worthwhile(unit_s: Mapping[int, float]) -> tuple[int, ...]:
    """The counts that are strictly faster than every smaller one."""
    sizes: list[int] = []
    best = float("inf")
    for n in sorted(unit_s):
        if unit_s[n] < best:
            sizes.append(n)
            best = unit_s[n]
    return tuple(sizes)


class CannotRun(Exception):
    """No GPU count of this cluster can run the job; the text is the reason for its rejection."""


@dataclass(frozen=True)
class Curve:
    """Speed of one kind of job by GPU count, on one GPU type.

    `unit_s`: seconds per unit of work (an iteration, or a second of logged duration) at each count that can
    run the job. `sizes`: the counts worth giving, ascending, each strictly faster than the one before.
    `plans`: the label of the plan at each count. `training`: those plans of `model` themselves. `framework`:
    the software that the jobs state; None for that of the nodes' system.
    """

    unit_s: Mapping[int, float]
    sizes: tuple[int, ...]
    plans: Mapping[int, str] = field(default_factory=dict)
    parameters: float = 0.0
    training: Mapping[int, Plan] = field(default_factory=dict)
    model: ModelSpec | None = None
    framework: str | None = None


@dataclass(frozen=True)
class Offer:
    """What one GPU type offers a job: its curve, and the number of GPUs to use if a policy names none.
    `note` explains a `requested` that differs from what the job asked for.
    """

    gpu_type: str
    curve: Curve
    requested: int
    note: str

    @property
    def unit_s(self) -> float:
        """Seconds per unit of work on the requested GPUs."""
        return self.curve.unit_s[self.requested]


def regular_counts(cluster: Cluster) -> tuple[int, ...]:
    """1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes, up to the size of the cluster."""
    node = cluster.gpus_per_node
    small = [1 << k for k in range(node.bit_length()) if 1 << k < node]
    return (*small, *(node << k for k in range(cluster.nodes.bit_length())))
