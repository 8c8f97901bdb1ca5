"""What each GPU count gives a job and costs it, as plain tuples (`JobView.curve`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from clustersim.cluster import Cluster
from clustersim.failures import Failures
from clustersim.jobs import LEAST_LEFT, ActiveJob
from clustersim.overheads import Overheads
from clustersim.speed import Curve

__all__ = [
    "NO_COUNTS",
    "JobCurve",
    "JobCurves",
    "PhaseView",
    "batch_curves",
    "in_all_phases_s",
    "phase_views",
]


@dataclass(frozen=True, eq=False, slots=True)
class JobCurve:
    """The useful GPU counts of one kind of job on one GPU type; tuples of equal length.

    | field | |
    |---|---|
    | `sizes` | GPUs, ascending, each count strictly faster than the one before |
    | `rates` | units of work per second (`JobView.rate`) |
    | `restarts` | the most seconds that a change to that count costs (`JobView.restart_s`) |
    | `launches` | seconds of a first start |
    | `lasting_rates` | `rates` in the long run: saves, and failures at their mean rate, take time, too |

    Jobs of one kind share one object, which compares and hashes by identity: a policy can keep what it
    derives from a curve under the curve.
    """

    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    restarts: tuple[float, ...]
    launches: tuple[float, ...]
    lasting_rates: tuple[float, ...]


NO_COUNTS = JobCurve((), (), (), (), ())
"""The curve of a job on a GPU type that cannot run it."""


class PhaseView(NamedTuple):
    """A phase of a job. `share`: of its work, None until the phase is over. `batch`: its global batch, None
    if the job states none. `unit_s`: seconds per unit of work in it by GPU count, on the best GPU type.
    """

    share: float | None
    batch: int | None
    unit_s: Mapping[int, float]


@dataclass(eq=False, slots=True)
class JobCurves:
    """The `JobCurve` of each kind of job, made when it is first looked up. `failures`: how nodes fail."""

    _cluster: Cluster
    _overheads: Overheads
    failures: Failures | None = None
    # The speeds are kept with the result: while they live, no other object has their id.
    _known: dict[tuple[int, str | None], tuple[Curve, JobCurve]] = field(default_factory=dict, init=False)

    def of(self, speeds: Curve, parameters: float, gpu_type: str | None = None) -> JobCurve:
        """The curve of jobs with these speeds on `gpu_type`, or where all nodes have as many GPUs as the
        largest if None. `parameters`: those of the model, which decide the size of a checkpoint.
        """
        entry = self._known.get((id(speeds), gpu_type))
        if entry is None:
            entry = self._known[id(speeds), gpu_type] = speeds, self._made(speeds, parameters, gpu_type)
        return entry[1]

    def _made(self, speeds: Curve, parameters: float, gpu_type: str | None) -> JobCurve:
        sizes, overheads, node = speeds.sizes, self._overheads, self._cluster.gpus_per_node
        if gpu_type is not None:
            node = self._cluster.pool(gpu_type).gpus_per_node
        rates = lasting_rates = tuple(1.0 / speeds.unit_s[n] for n in sizes)
        nodes = [-(-n // node) for n in sizes]
        if self.failures is not None or not isinstance(overheads.checkpoint_interval_s, str):
            mtbf_s = inf if self.failures is None else self.failures.node_mtbf_s(node)
            lasting_rates = tuple(
                rate / overheads.stretch(parameters, count, n, mtbf_s / count)
                for rate, count, n in zip(rates, nodes, sizes, strict=True)
            )
        return JobCurve(
            sizes,
            rates,
            tuple(overheads.change_s(parameters, count, n) for count, n in zip(nodes, sizes, strict=True)),
            tuple(overheads.start_s(n) for n in sizes),
            lasting_rates,
        )


# What a view shows of a job in phases.


def phase_views(job: ActiveJob) -> tuple[PhaseView, ...]:
    """The phases of a job; none if it states none."""
    phases = job.phases
    if phases is None:
        return ()
    return tuple(
        PhaseView(share if k < phases.present else None, batch, MappingProxyType(dict(curve.unit_s)))
        for k, (share, batch, curve, *_) in enumerate(phases.in_all.phases)
    )


def batch_curves(job: ActiveJob, curves: JobCurves) -> dict[int, JobCurve]:
    """The curve with each batch that a policy can choose in the present phase, on the best GPU type."""
    phases = job.phases
    if phases is None:
        return {}
    gpu_type = job.offers[0].gpu_type if job.offers else None
    choices = phases.in_all.phases[phases.present].choices
    return {batch: curves.of(choices[batch], job.curve.parameters, gpu_type) for batch in phases.batches}


def in_all_phases_s(job: ActiveJob, gpus: int, now: float) -> float:
    """Seconds of work left on `gpus` GPUs, by what the user states and through all phases; infinite where the
    job cannot run.

    What is misstated is the run time of all phases together. So the phases that are over take their own time
    off it, and the time left never grows while the job runs, whichever phases are the slow ones. As of any
    job, a tenth of the stated time is left until the job is done.
    """
    units = job.work_left_at(now)
    left_s = job.seconds_left(gpus, units)
    if left_s is None:
        return inf
    if not job.misstated:
        return left_s
    true_s = job.seconds_left(gpus, job.work) or 0.0
    stated_s = true_s * (job.as_stated(job.work) / job.work)
    return stated_s if units == job.work else max(left_s + (stated_s - true_s), LEAST_LEFT * stated_s)
