"""Curves: how fast one kind of job runs on how many GPUs of one type, and what a GPU type offers a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from types import MappingProxyType
from typing import NamedTuple

from clustersim.cluster import Cluster
from itertime.spec import ModelSpec, Plan

__all__ = [
    "CannotRun",
    "Curve",
    "Offer",
    "PhaseCurve",
    "PhaseSpeeds",
    "in_phases",
    "regular_counts",
    "worthwhile",
]


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

    `phases`: those of jobs that state some (`traces.phases`); the other fields are then those of the first.
    `alone`: of the curve of a phase, that of a job with the batch of the phase and no phases; a unit of work
    takes `per_unit` times as long here.
    """

    unit_s: Mapping[int, float]
    sizes: tuple[int, ...]
    plans: Mapping[int, str] = field(default_factory=dict)
    parameters: float = 0.0
    training: Mapping[int, Plan] = field(default_factory=dict)
    model: ModelSpec | None = None
    framework: str | None = None
    phases: tuple[PhaseCurve, ...] = ()
    alone: Curve | None = None
    per_unit: float = 1.0

    def work_s(self, gpus: int) -> float:
        """The mean seconds per unit of work on `gpus` GPUs, over all phases."""
        if not self.phases:
            return self.unit_s[gpus]
        if self.phases[0].batch is None and self.alone is not None:
            return self.alone.unit_s[gpus]  # phases of a run time do not change it
        return fsum(phase.share * phase.curve.unit_s[gpus] for phase in self.phases)


class PhaseCurve(NamedTuple):
    """One phase of a kind of job: its share of the work, its global batch (None if it states none), and the
    speeds in it. `choices`: the speeds with each batch that a policy may choose, that one included; none
    where the batch is no choice. `layers`: those of the model that trains, None for all.
    """

    share: float
    batch: int | None
    curve: Curve
    choices: Mapping[int, Curve] = MappingProxyType({})
    layers: int | None = None


class PhaseSpeeds(NamedTuple):
    """One phase as `in_phases` takes it. `by_batch`: for its global batch, then for each other that may be
    chosen, the curve of a job of that batch, and the factor by which a unit of work takes longer than a unit
    there.
    """

    share: float
    by_batch: Mapping[int | None, tuple[Curve, float]]
    layers: int | None = None


def in_phases(phase_speeds: Sequence[PhaseSpeeds]) -> Curve:
    """The curve of a job with phases.

    The counts are those that can run every phase, so a job never holds GPUs on which it cannot go on. A batch
    can be chosen if it runs on all of them. CannotRun if there are none.
    """
    curves_alone = [next(iter(phase.by_batch.values()))[0] for phase in phase_speeds]
    counts = [n for n in curves_alone[0].unit_s if all(n in curve.unit_s for curve in curves_alone)]
    if not counts:
        raise CannotRun("no number of GPUs can run all its phases")
    scaled_curves: dict[tuple[int, float], Curve] = {}

    def scaled(alone: Curve, per_unit: float) -> Curve:
        if (id(alone), per_unit) not in scaled_curves:
            unit_s = {n: alone.unit_s[n] * per_unit for n in counts}
            scaled_curves[id(alone), per_unit] = replace(
                alone,
                unit_s=unit_s,
                sizes=worthwhile(unit_s),
                plans={n: alone.plans[n] for n in counts if n in alone.plans},
                training={n: alone.training[n] for n in counts if n in alone.training},
                alone=alone,
                per_unit=per_unit,
            )
        return scaled_curves[id(alone), per_unit]

    phases = []
    for share, by_batch, layers in phase_speeds:
        curves = {
            batch: scaled(*speeds)
            for batch, speeds in by_batch.items()
            if all(n in speeds[0].unit_s for n in counts)
        }
        batch, curve = next(iter(curves.items()))
        choices = {
            size: batch_curve for size, batch_curve in curves.items() if size is not None and len(curves) > 1
        }
        phases.append(PhaseCurve(share, batch, curve, MappingProxyType(choices), layers))
    return replace(phases[0].curve, phases=tuple(phases))


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
        """Seconds per unit of work on the requested GPUs; in the first phase of a job with phases."""
        return self.curve.unit_s[self.requested]


def regular_counts(cluster: Cluster) -> tuple[int, ...]:
    """1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes, up to the size of the cluster."""
    node = cluster.gpus_per_node
    small = [1 << k for k in range(node.bit_length()) if 1 << k < node]
    whole_nodes = (node << k for k in range(cluster.nodes.bit_length()))
    return (*small, *(gpus for gpus in whole_nodes if gpus <= cluster.gpus))
