"""The setup of a run, made of its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from clustersim.cluster import Cluster
from clustersim.engine import RunSetup
from clustersim.engine.fleet import Routing
from clustersim.errors import UnsuitedPolicy
from clustersim.overheads import Overheads
from clustersim.scheduler import Scheduler
from clustersim.speed import Speed, speed_for
from itertime.errors import UnknownName, UserError
from itertime.planning import PLANNERS
from itertime.spec import Models, Price, price_of

from .config import SETTINGS, RunConfig, values_of
from .policies import make_policy
from .sites import params_with_site

__all__ = ["is_of_nodes", "setup_of"]

_OF_GROUPS = "as the cluster file and its systems say"
_STATED = "price_usd_per_gpu_h"


def setup_of(
    config: RunConfig,
    policy: str | type[Scheduler] | None = None,
    cluster: Cluster | None = None,
    models: Models | None = None,
) -> RunSetup:
    """What settings resolve to: files are read, and the policy is made.

    `policy` and `cluster`, if given, replace those that `config` names. `models`: those that the jobs may
    name. UserError for everything that keeps a run from beginning (UnsuitedPolicy if another policy might
    run), PolicyError if the policy cannot be made.
    """
    with redirect_stdout(sys.stderr):
        if cluster is None:
            cluster = config.stated_cluster()
        policy_of_run = config.policy if policy is None else policy
        scheduler = make_policy(policy_of_run, params_with_site(policy_of_run, config.params, config.site))
        resolved = _resolved(values_of(config, scheduler), cluster)
        if config.planner is None and resolved["planner"] not in PLANNERS:
            unknown = UnknownName("planner", resolved["planner"], PLANNERS)
            raise UnsuitedPolicy(f"policy {config.policy}: {unknown}")
        speed_on = partial(
            speed_for,
            planner=resolved["planner"],
            table=config.table,
            memory_headroom=config.memory_headroom,
            models=models,
        )
        speed = speed_on(cluster)
        resolved["price"] = _price(config.price_usd_per_gpu_h, cluster, speed)
        if config.routing is not None:
            schedulers = _schedulers_of(Routing.of(config.routing), config, policy, cluster)
            resolved["parts"] = _parts(resolved, cluster, schedulers, speed_on)
        return RunSetup(cluster=cluster, scheduler=scheduler, speed=speed, **resolved)


def _price(user_usd: float | None, cluster: Cluster, speed: Speed) -> Price:
    """The price of a GPU-hour, on GPU types for which the cluster states none."""
    system = None if cluster.groups else speed.system_of(cluster.gpu_types[0])
    price = price_of(system, user_usd, _STATED)
    return price._replace(origin=_OF_GROUPS) if cluster.states_prices else price


def is_of_nodes(origin: object) -> bool:
    """Whether the origin of a price in a manifest is the system of equal nodes, or the default for them."""
    return isinstance(origin, str) and origin not in (_OF_GROUPS, price_of(None, 1.0, _STATED).origin)


def _resolved(values: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """The fields of `RunSetup` that follow from settings and cluster alone."""
    resolved: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        value = values[name]
        if setting.field and value is not None and value != []:
            if setting.resolve is not None:
                value = setting.resolve(value, cluster, values["seed"])
            elif setting.kind is not None:
                value = setting.kind.of(value)
            resolved[setting.field] = value
    if "overheads" not in resolved:
        resolved["overheads"] = Overheads.none()  # null charges nothing; the default of `RunSetup` charges
    return resolved


def _parts(
    resolved: Mapping[str, Any],
    cluster: Cluster,
    schedulers: list[Scheduler],
    speed_on: Callable[[Cluster], Speed],
) -> tuple[RunSetup, ...]:
    """The setup of each cluster of a fleet, with the reservations and speeds of its own nodes. `resolved`:
    the fields of the setup of the fleet that follow from settings.
    """
    setups = []
    for part, scheduler in zip(cluster.members, schedulers, strict=True):
        node_speeds, reservations = resolved.get("node_speeds"), resolved.get("reservations", ())
        of_part = [entry.within(part.first, part.cluster.nodes) for entry in reservations]
        changes: dict[str, Any] = {
            "priced": cluster.states_prices,
            "node_speeds": None
            if node_speeds is None
            else node_speeds.within(part.first, part.cluster.nodes),
            "reservations": tuple(reservation for reservation in of_part if reservation),
        }
        speed = speed_on(part.cluster)
        setups.append(
            RunSetup(cluster=part.cluster, scheduler=scheduler, speed=speed, **{**resolved, **changes})
        )
    return tuple(setups)


def _schedulers_of(
    routing: Routing, config: RunConfig, policy: str | type[Scheduler] | None, cluster: Cluster
) -> list[Scheduler]:
    """The policy of each cluster of a fleet: that of the run, or the one that the routing names for it."""
    clusters = [part.name for part in cluster.members]
    routing.check(clusters)
    storage_shared = config.overheads is not None and Overheads.of(config.overheads).storage_shared
    for setting, present in (("quotas", bool(config.quotas)), ("overheads.storage_shared", storage_shared)):
        if present:
            raise UserError(f"{setting}: holds for one cluster; leave it out, or the routing")
    of_run = config.policy if policy is None else policy
    return [
        make_policy(routing.policies[name], dict(routing.params.get(name, {})))
        if name in routing.policies
        else make_policy(of_run, config.params)
        for name in clusters
    ]
