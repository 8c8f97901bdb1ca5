"""The features of a run."""

from __future__ import annotations

from clustersim.engine.enactment import Enactment
from clustersim.engine.setup import RunSetup
from clustersim.engine.world import World

from .disruptions import Disruptions
from .eligibility import StatedRuns
from .feature import Feature
from .host_demands import HostDemands
from .node_shapes import NodeShapes
from .phases import PhasedJobs
from .predictions import Predictions
from .services import Services

__all__ = ["features_of"]


def features_of(
    setup: RunSetup, world: World, enactment: Enactment, first_node: int | None
) -> tuple[Feature, ...]:
    """The features of a run, in the order in which a job meets them. `first_node`: None outside a fleet; in
    a fleet, which applies what happens to nodes, the number of node 0.
    """
    features: list[Feature] = [PhasedJobs(), NodeShapes(world)]
    if setup.cluster.states_host:
        features.append(HostDemands(world))
    features.append(Services(world, enactment, world.facts, setup.prices, setup.services_preempt))
    if setup.disturbs_jobs:
        features.append(Disruptions(world, enactment, setup, first_node))
    if world.arrivals.predictor is not None:
        features.append(Predictions(world, world.arrivals.predictor))
    links, replays = world.arrivals.links, setup.scheduler.replays_preemptions
    features.append(StatedRuns(world, enactment, links, replays))
    return tuple(features)
