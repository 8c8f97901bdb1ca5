"""What disturbs the jobs of a simulation apart from its policy: nodes that fail or are maintained, jobs that
fail, and shared storage.
"""

from __future__ import annotations

from functools import partial
from math import inf

from clustersim.cluster import Placement
from clustersim.engine.enactment import Enactment
from clustersim.engine.setup import RunSetup
from clustersim.engine.world import World
from clustersim.failures import Failures, Outages, failure_of_job
from clustersim.jobs import ActiveJob, Checkpoints
from clustersim.overheads import Cycle

from .checkpoint_loading import CheckpointLoading
from .closures import Closures
from .node_events import NodeEvents, NodesOfCluster

__all__ = ["Disruptions"]


class Disruptions:
    """Node outages, job failures, checkpoints and their loads in one run."""

    columns = ()

    def __init__(self, world: World, enactment: Enactment, setup: RunSetup, first: int | None):
        """`first`: None outside a fleet; in a fleet, which applies the outages, the number of node 0."""
        failures = setup.failures
        self._world, self._failures, self._seed = world, failures, setup.seed
        self._cluster = cluster = world.facts.cluster
        retries = Failures.retries if failures is None else failures.retries
        self.nodes = NodesOfCluster(world, enactment, retries, first or 0)
        reclaims = setup.spot is not None or (setup.maintenance is not None and setup.maintenance.reclaims)
        cordon = reclaims and (setup.spot is None or setup.spot.cordon)
        announced = [] if setup.maintenance is None else setup.maintenance.closures(first or 0, cluster.nodes)
        self._closures = Closures(world, self.nodes, bool(cordon), setup.reservations, announced)
        self._node_events: NodeEvents | None = None
        if first is None:
            gpus = [cluster.size_of(node) for node in range(cluster.nodes)]
            outages = Outages(
                gpus,
                world.clock.now,
                failures=failures,
                maintenance=setup.maintenance,
                spot=setup.spot,
                seed=setup.seed,
            )
            self._node_events = NodeEvents(world.clock, [self.nodes], outages)
        world.at_begin.append(self._begin)
        self._loading = CheckpointLoading(world, enactment) if world.overheads.storage_shared else None

    def _begin(self) -> None:
        self._closures.begin()
        if self._node_events is not None:
            self._node_events.begin()

    def receive(self, active: ActiveJob) -> bool:
        """A job saves as the run says, and fails if its trace or the run says so."""
        active.checkpoints = Checkpoints(partial(self._cycle, active.curve.parameters), self._loading)
        if self._failures is not None:
            failure = failure_of_job(active.job, self._failures, self._seed)
            if failure is not None:
                reason, share = failure
                active.fail_after(share, reason)
        return False

    def _cycle(self, parameters: float, placement: Placement) -> Cycle:
        """How a job with a model of `parameters` parameters saves in `placement`. A failure of any of its
        nodes stops the job, at a rate that depends on all their GPUs.
        """
        gpus = sum(self._cluster.size_of(node) for node, _ in placement)
        mtbf_s = self._failures.node_mtbf_s(gpus) if self._failures is not None else inf
        return self._world.overheads.cycle(parameters, len(placement), mtbf_s)
