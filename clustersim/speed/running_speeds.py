"""The speeds of the running jobs: as predicted for their GPUs, times all that slows them down in truth."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from clustersim.cluster import Cluster, Placement
from traces.job import Job

from .curve import Curve, Offer
from .interference import CoRunners, Interference
from .network import Network, network_for
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
        self._co_runners = None if sharing is None else CoRunners[AnyJob](sharing, _model_of)
        self.independent = self.network is None and self._co_runners is None
        # The factors of the running jobs; none where speeds are independent, since none is needed again.
        self._predicted_s: dict[AnyJob, float] = {}
        self._sharing_factor: dict[AnyJob, float] = {}
        self._true_factors: dict[AnyJob, tuple[float, float]] = {}

    def after(self, changes: Mapping[AnyJob, Placement | None]) -> dict[AnyJob, float]:
        """Move jobs to these placements; None: the job releases its GPUs. Returns the new speeds of the jobs
        that got GPUs, then of those whose speed changed because of them, or of jobs that left before.
        """
        if self.independent:
            alone_s = {}
            for job, placement in changes.items():
                if placement is not None:
                    alone_s[job] = self.alone_s(job, sum([count for _, count in placement]), placement)
            return alone_s
        changed = {}
        for job, placement in changes.items():
            if placement is not None:
                self._enter(job, placement)
                changed[job] = 0.0
        if self.network is not None:
            predicted_s = self.network.after(changes)
            self._predicted_s.update(predicted_s)
            changed.update(predicted_s)
        if self._co_runners is not None:
            factors = self._co_runners.after(changes)
            self._sharing_factor.update(factors)
            changed.update(factors)
        return {job: self._unit_s(job) for job in changed}

    def leave(self, job: AnyJob) -> None:
        """A job holds no GPUs any more."""
        if self.network is not None:
            self.network.leave(job)
        if self._co_runners is not None:
            self._co_runners.leave(job)
        for factors in (self._predicted_s, self._sharing_factor, self._true_factors):
            factors.pop(job, None)

    def alone_s(self, job: AnyJob, gpus: int, placement: Placement) -> float:
        """Seconds per unit of a job that has the `gpus` GPUs of `placement`, where speeds are independent."""
        curve = job.curve_on(self._cluster, placement[0][0]) if job.offers else job.curve
        unit_s = curve.unit_s[gpus]
        if self._slowdown is None:
            return unit_s
        by_steps, by_nodes = self._factors(job, gpus, placement)
        return unit_s * by_steps * by_nodes

    def _enter(self, job: AnyJob, placement: Placement) -> None:
        gpus = sum([count for _, count in placement])
        self._predicted_s[job] = job.curve_on(self._cluster, placement[0][0]).unit_s[gpus]
        self._sharing_factor.pop(job, None)
        self._true_factors[job] = self._factors(job, gpus, placement)

    def _factors(self, job: AnyJob, gpus: int, placement: Placement) -> tuple[float, float]:
        if self._slowdown is None:
            return 1.0, 1.0
        return self._slowdown.factors(job.job.job_id, job.job.model, gpus, placement)

    def _unit_s(self, job: AnyJob) -> float:
        by_steps, by_nodes = self._true_factors[job]
        return self._predicted_s[job] * self._sharing_factor.get(job, 1.0) * by_steps * by_nodes


def _model_of(job: PlacedJob) -> str:
    return job.job.model or ""
