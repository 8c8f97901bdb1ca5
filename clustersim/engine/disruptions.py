"""What disturbs the jobs of a simulation apart from its policy: nodes that fail or are maintained, jobs that
fail, and shared storage.
"""

from __future__ import annotations

from functools import partial
from math import inf

from clustersim.cluster import Placement
from clustersim.failures import Failures, Outages, failure_of_job
from clustersim.jobs import ActiveJob, CheckpointedJob, PhasedJob
from clustersim.overheads import Cycle
from clustersim.speed import Curve, Offer
from traces.job import Job

from .checkpoint_loading import CheckpointLoading
from .closures import Closures
from .enactment import Enactment
from .kernel import Kernel
from .node_events import NodeEvents, NodesInService
from .setup import RunSetup
from .wake_ups import WakeUps

__all__ = ["Disruptions"]


class Disruptions:
    """Node outages, job failures, checkpoints and their loads in one run."""

    def __init__(
        self, kernel: Kernel, enactment: Enactment, wake_ups: WakeUps, setup: RunSetup, first: int | None
    ):
        """`first`: None outside a fleet; in a fleet, which applies the outages, the number of node 0."""
        failures = setup.failures
        self._kernel, self._failures, self._seed = kernel, failures, setup.seed
        self._cluster = cluster = kernel.facts.cluster
        retries = Failures.retries if failures is None else failures.retries
        self.nodes = NodesInService(kernel, enactment, wake_ups, retries, first or 0)
        reclaims = setup.spot is not None or (setup.maintenance is not None and setup.maintenance.reclaims)
        cordon = reclaims and (setup.spot is None or setup.spot.cordon)
        self._closures = Closures(kernel, self.nodes, bool(cordon), setup.reservations)
        self._node_events: NodeEvents | None = None
        if first is None:
            gpus = [cluster.size_of(node) for node in range(cluster.nodes)]
            outages = Outages(
                gpus, kernel.clock.now,
                failures=failures, maintenance=setup.maintenance, spot=setup.spot, seed=setup.seed,
            )  # fmt: skip
            self._node_events = NodeEvents(kernel.clock, [self.nodes], outages)
        self._loading = CheckpointLoading(kernel, enactment) if kernel.overheads.storage_shared else None

    @classmethod
    def of(
        cls, kernel: Kernel, enactment: Enactment, wake_ups: WakeUps, setup: RunSetup, first: int | None
    ) -> Disruptions | None:
        """The disruptions of a run; None if only the policy changes what jobs do."""
        overheads, maintenance = kernel.overheads, setup.maintenance
        saves = not isinstance(overheads.checkpoint_interval_s, str)
        planned = maintenance is not None and (maintenance.changes or maintenance.absent)
        taken = setup.failures is not None or setup.spot is not None or bool(setup.reservations)
        if not taken and not planned and not saves and not overheads.storage_shared:
            return None
        return cls(kernel, enactment, wake_ups, setup, first)

    def begin(self) -> None:
        """Called once, before the first event."""
        self._closures.begin()
        if self._node_events is not None:
            self._node_events.begin()

    def job(
        self, job: Job, order: int, curve: Curve, requested: int, note: str, offers: tuple[Offer, ...] = ()
    ) -> ActiveJob:
        """A submitted job, with its failure if it has one. `offers`: by GPU type, of a job in phases."""
        found = None if self._failures is None else failure_of_job(job, self._failures, self._seed)
        failure, share = ("", 1.0) if found is None else found
        kind = CheckpointedJob if job.phases is None else partial(PhasedJob, offers=offers)
        return kind(
            job, order, curve, requested, note,
            cycle_of=partial(self._cycle, curve.parameters), loads=self._loading,
            failure=failure, share=share,
        )  # fmt: skip

    def _cycle(self, parameters: float, placement: Placement) -> Cycle:
        """How a job with a model of `parameters` parameters saves in `placement`. A failure of any of its
        nodes stops the job, at a rate that depends on all their GPUs.
        """
        gpus = sum(self._cluster.size_of(node) for node, _ in placement)
        mtbf_s = self._failures.node_mtbf_s(gpus) if self._failures is not None else inf
        return self._kernel.overheads.cycle(parameters, len(placement), mtbf_s)
