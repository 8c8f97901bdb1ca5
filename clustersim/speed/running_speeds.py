"""The speeds of the running jobs: as predicted for their GPUs, times all that slows them down in truth."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from clustersim.cluster import Cluster, Placement
from traces.job import Job

from .curve import Curve, Offer
from .interference import CoRunners, Interference
from .network import Network, NodeSizes, network_for
from .slowdown import Slowdown
from .speed import Speed

__all__ = ["RunningSpeeds"]


class PlacedJob(Hashable, Protocol):
    """What the speeds ask of a job."""

    job: Job
    curve: Curve
    offers: tuple[Offer, ...]

    def curve_on(self, cluster: Cluster, node: int) -> Curve:
        """The job's curve on GPUs of the type of a node."""

    def curve_at(self, gpu_type: str) -> Curve:
        """The job's curve on GPUs of one type."""


AnyJob = TypeVar("AnyJob", bound=PlacedJob)


class RunningSpeeds(Generic[AnyJob]):
    """The seconds per unit of work of every running job, a product of

    | factor | depends on | changes while the job holds its GPUs |
    |---|---|---|
    | the curve, or the network | the number of GPUs, or their nodes and the traffic of other jobs | yes |
    | the sizes of its nodes, without a network | the nodes, where those of a type differ | no |
    | `sharing` | the jobs on the same GPUs | yes |
    | `slowdown` | the job and its GPUs | no |

    `independent`: whether no job's speed depends on other jobs.
    """

    def __init__(
        self,
        cluster: Cluster,
        speed: Speed,
        *,
        sharing: Interference | None = None,
        slowdown: Slowdown | None = None,
    ):
        """`sharing`: None where jobs on one GPU do not slow each other down. `slowdown`: None where jobs run
        as predicted.
        """
        self._cluster, self._slowdown = cluster, slowdown
        self.network: Network[AnyJob] | None = None
        if cluster.network_model.by_placement:
            self.network = network_for(cluster, speed)
        self._node_sizes: NodeSizes | None = None
        if cluster.unequal and self.network is None:
            self._node_sizes = NodeSizes(cluster, speed)
        self._co_runners = None if sharing is None else CoRunners[AnyJob](sharing, _model_of)
        self.independent = self.network is None and self._co_runners is None
        # Of the running jobs; empty where speeds are independent, since no factor is needed again.
        self._factors: dict[AnyJob, _Factors] = {}

    def move(self, changes: Mapping[AnyJob, Placement | None]) -> dict[AnyJob, float]:
        """Move jobs to these placements; None: the job releases its GPUs. Returns the new speeds of the jobs
        that got GPUs, then of those whose speed changed because of them, or of jobs that left before.
        """
        if self.independent:
            alone_s = {}
            for job, placement in changes.items():
                if placement is not None:
                    alone_s[job] = self.alone_s(job, sum([count for _, count in placement]), placement)
            return alone_s
        factors, changed = self._factors, {}
        for job, placement in changes.items():
            if placement is not None:
                changed[job] = factors[job] = self._factors_in(job, placement)
        if self.network is not None:
            for job, predicted_s in self.network.move(changes).items():
                changed[job] = factors[job]
                changed[job].predicted_s = predicted_s
        if self._co_runners is not None:
            for job, by_sharing in self._co_runners.move(changes).items():
                changed[job] = factors[job]
                changed[job].by_sharing = by_sharing
        return {
            job: factor.predicted_s * factor.by_sharing * factor.by_steps * factor.by_nodes
            for job, factor in changed.items()
        }

    def forget(self, job: AnyJob) -> None:
        """A job holds no GPUs any more."""
        if self.network is not None:
            self.network.forget(job)
        if self._co_runners is not None:
            self._co_runners.forget(job)
        self._factors.pop(job, None)

    def alone_s(self, job: AnyJob, gpus: int, placement: Placement) -> float:
        """Seconds per unit of a job that has the `gpus` GPUs of `placement`, where speeds are independent."""
        curve = job.curve_on(self._cluster, placement[0][0]) if job.offers else job.curve
        unit_s = curve.unit_s[gpus]
        if self._node_sizes is not None:
            unit_s = self._node_sizes.unit_s(curve, gpus, placement)
        if self._slowdown is None:
            return unit_s
        by_steps, by_nodes = self._slowdown.factors(job.job.job_id, job.job.model, gpus, placement)
        return unit_s * by_steps * by_nodes

    def _factors_in(self, job: AnyJob, placement: Placement) -> _Factors:
        """The factors of a job in `placement`, as long as no other job takes links or GPUs from it."""
        gpus = sum([count for _, count in placement])
        curve = job.curve_on(self._cluster, placement[0][0])
        factors = _Factors(curve.unit_s[gpus])
        if self._node_sizes is not None:
            factors.predicted_s = self._node_sizes.unit_s(curve, gpus, placement)
        if self._slowdown is not None:
            factors.by_steps, factors.by_nodes = self._slowdown.factors(
                job.job.job_id, job.job.model, gpus, placement
            )
        return factors


class _Factors:
    """The factors of the seconds per unit of work of one running job, see `RunningSpeeds`."""

    __slots__ = ("by_nodes", "by_sharing", "by_steps", "predicted_s")

    def __init__(self, predicted_s: float):
        self.predicted_s = predicted_s
        self.by_sharing = self.by_steps = self.by_nodes = 1.0


def _model_of(job: PlacedJob) -> str:
    return job.job.model or ""
