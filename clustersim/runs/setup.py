"""What the settings of a run resolve to: files are read, and the policies are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from math import inf
from typing import Any

from clustersim.cluster import Cluster, load_cluster
from clustersim.engine import RunSetup
from clustersim.engine.fleet import Routing
from clustersim.failures import Failures, Maintenance, Reservation, Spot, reservations_of
from clustersim.overheads import Overheads
from clustersim.placement import placer
from clustersim.scheduler import Scheduler
from clustersim.scheduler.cluster_state import checked_quotas
from clustersim.speed import Interference, NodeSpeeds, Speed, StepTimes, Variability, speed_for
from itertime.errors import UserError
from itertime.spec import Models
from traces.estimates import Estimates

from .config import RunConfig
from .policies import make_policy

__all__ = ["setup_of", "spot_of"]


def setup_of(
    config: RunConfig,
    policy: str | type[Scheduler] | None = None,
    cluster: Cluster | None = None,
    models: Models | None = None,
) -> RunSetup:
    """What settings resolve to: files are read, and the policy is made.

    `policy` and `cluster`, if given, replace those that `config` names. `models`: those that the jobs may
    name. UserError for everything that keeps a run from beginning, PolicyError if the policy cannot be made.
    """
    with redirect_stdout(sys.stderr):
        if cluster is None:
            cluster = load_cluster(config.cluster, config.system, config.network)
        scheduler = make_policy(config.policy if policy is None else policy, config.params)
        planner = scheduler.planner if config.planner is None else config.planner
        made = _of_settings(config, cluster, planner, scheduler.estimates)
        speeds = partial(
            speed_for, planner=planner, table=config.table, memory_headroom=config.memory_headroom,
            models=models,
        )  # fmt: skip
        pools = {pool.gpu_type: range(pool.first, pool.first + pool.nodes) for pool in cluster.pools}
        reserved = reservations_of(config.reservations, cluster.sizes, pools)
        nodes = _node_speeds(config, cluster)
        parts: tuple[RunSetup, ...] = ()
        if config.routing is not None:
            schedulers = _schedulers_of(Routing.of(config.routing), config, policy, cluster)
            parts = _parts(made, cluster, schedulers, speeds, reserved, nodes)
        return made(
            cluster=cluster, scheduler=scheduler, speed=speeds(cluster), reservations=reserved, nodes=nodes,
            parts=parts,
        )  # fmt: skip


def _of_settings(
    config: RunConfig, cluster: Cluster, planner: str, own: Mapping[str, Any] | None
) -> Callable[..., RunSetup]:
    """The setup of a run, or of one cluster of its fleet, as far as settings alone decide it. `own`: the
    `estimates` of its policy, for a run that states none.
    """
    charged, estimates = config.overheads, own if config.estimates is None else config.estimates
    return partial(
        RunSetup,
        planner=planner,
        overheads=Overheads.none() if charged is None else Overheads.of(charged, cluster.gpus),
        placement=placer(config.placement),
        type_slowdown=inf if config.type_slowdown is None else config.type_slowdown,
        quotas=checked_quotas(config.quotas, cluster.gpus),
        failures=None if config.failures is None else Failures.of(config.failures),
        maintenance=Maintenance.of(config.calendar, cluster.nodes),
        spot=spot_of(config, cluster),
        sharing=None if config.sharing is None else Interference.of(config.sharing),
        services_preempt=config.services_preempt,
        estimates=None if estimates is None else Estimates.of(estimates),
        decision_interval_s=config.decision_interval_s or 0.0,
        step_times=None if config.step_time is None else StepTimes.of(config.step_time),
        until_s=config.until_s,
        price_usd_per_gpu_h=config.price_usd_per_gpu_h,
        seed=config.seed,
    )


def _node_speeds(config: RunConfig, cluster: Cluster) -> NodeSpeeds | None:
    """How unequal the nodes of a run are; None if it does not say."""
    if config.variability is None:
        return None
    return NodeSpeeds(Variability.of(config.variability), cluster, config.seed)


def _parts(
    made: Callable[..., RunSetup], cluster: Cluster, schedulers: list[Scheduler],
    speeds: Callable[[Cluster], Speed], reserved: tuple[Reservation, ...], nodes: NodeSpeeds | None,
) -> tuple[RunSetup, ...]:  # fmt: skip
    """The setup of each cluster of a fleet, with the reservations and speeds of its own nodes."""
    priced = cluster.prices(0.0) is not None
    return tuple(
        made(
            cluster=part.cluster,
            priced=priced,
            scheduler=own,
            speed=speeds(part.cluster),
            nodes=None if nodes is None else nodes.within(part.first, part.cluster.nodes),
            reservations=tuple(
                inside for one in reserved if (inside := one.within(part.first, part.cluster.nodes))
            ),
        )
        for part, own in zip(cluster.parts, schedulers, strict=True)
    )


def spot_of(config: RunConfig, cluster: Cluster) -> Spot | None:
    """The spot nodes of a run; None without any. UserError for wrong parameters."""
    return None if config.spot is None else Spot.of(config.spot, cluster.nodes, cluster.spot_nodes)


def _schedulers_of(
    routing: Routing, config: RunConfig, policy: str | type[Scheduler] | None, cluster: Cluster
) -> list[Scheduler]:
    """The policy of each cluster of a fleet: that of the run, or the one that the routing names for it."""
    names = [part.name for part in cluster.parts]
    routing.check(names)
    shared = config.overheads is not None and Overheads.of(config.overheads).storage_shared
    for name, present in (("quotas", bool(config.quotas)), ("overheads.storage_shared", shared)):
        if present:
            raise UserError(f"{name}: holds for one cluster; leave it out, or the routing")
    usual = config.policy if policy is None else policy
    return [
        make_policy(routing.policies[name], dict(routing.params.get(name, {})))
        if name in routing.policies
        else make_policy(usual, config.params)
        for name in names
    ]
