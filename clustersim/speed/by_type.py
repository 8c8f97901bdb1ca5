"""The speeds on a cluster of several GPU types, and those of a run by its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from clustersim.cluster import Cluster, Pool
from itertime.costs import MEMORY_HEADROOM
from itertime.errors import UserError
from itertime.io import shown
from itertime.planning import Planner, default_cache, make_planner, planner_name
from itertime.spec import SHIPPED_SYSTEMS, Models, System, load_system, profile_of
from traces.job import Job

from .curve import CannotRun, Curve, Offer
from .speed import Speed, SpeedOnOneType, kind_of
from .throughput_table import Throughputs, throughputs_by_type

__all__ = ["SpeedByType", "node_changes", "speed_for"]


class SpeedByType:
    """Speeds on a cluster of several GPU types, each with the speeds of its own nodes."""

    def __init__(self, by_type: Mapping[str, SpeedOnOneType], pools: Sequence[Pool] = ()):
        """`pools`: those of the cluster; they say by which names a job may ask for a type."""
        self.by_type = dict(by_type)
        self._asked: dict[str, list[str]] = {name: [name] for name in self.by_type}
        for pool in pools:
            for name in dict.fromkeys(pool.names[1:]):
                if pool.gpu_type != name:
                    self._asked.setdefault(name, []).append(pool.gpu_type)
        speeds = self.by_type.values()
        self.tabled_models = frozenset[str]().union(*(speed.tabled_models for speed in speeds))
        self._offers: dict[object, tuple[Offer, ...]] = {}

    def offers(self, job: Job) -> tuple[Offer, ...]:
        """The offers of all types: fewest requested GPUs first, then fastest there, then in the order of the
        cluster's groups. A job that asks for a GPU type has the offer of that type alone.

        CannotRun, with every type's reason, if none can run the job.
        """
        key: object = (job.gpu_type, kind_of(job))
        if job.cpus is not None or job.host_memory_gb is not None:
            key = (key, *(speed.most_gpus(job) for speed in self.by_type.values()))
        if job.nodes is not None:
            key = key, job.nodes, job.gpus_per_node
        offers = self._offers.get(key)
        if offers is None:
            offers = self._offers[key] = self._find_offers(job)
        return offers

    def _find_offers(self, job: Job) -> tuple[Offer, ...]:
        offers: list[Offer] = []
        reasons = []
        for name in self._types_for(job):
            try:
                offers += self.by_type[name].offers(job)
            except CannotRun as reason:
                reasons.append(f"{name}: {reason}")
        if not offers:
            raise CannotRun("; ".join(reasons))
        return tuple(sorted(offers, key=lambda offer: (offer.requested, offer.curve.work_s(offer.requested))))

    def _types_for(self, job: Job) -> tuple[str, ...]:
        """The GPU types that the job may run on. CannotRun if it asks for a type that is not there."""
        if job.gpu_type is None:
            return tuple(self.by_type)
        if job.gpu_type not in self._asked:
            raise CannotRun(
                f"asks for GPU type {shown(job.gpu_type)}, the cluster has {', '.join(self.by_type)}"
            )
        return tuple(self._asked[job.gpu_type])

    def system_of(self, gpu_type: str) -> System | None:
        """The system of the nodes of a GPU type; None for a type without a profile."""
        return self.by_type[gpu_type].system

    def planner_of(self, gpu_type: str) -> Planner | None:
        """The planner on the nodes of a GPU type; None for a type without a profile."""
        return self.by_type[gpu_type].planner

    def curve(self, job: Job) -> Curve:
        """The curve of `job` on its best GPU type. CannotRun as in `offers`."""
        return self.offers(job)[0].curve

    def curve_on(self, job: Job, gpu_type: str) -> Curve:
        """The curve of `job` on one GPU type. CannotRun if that type cannot run it, or the job asks for
        another.
        """
        if gpu_type not in self._types_for(job):
            raise CannotRun(f"asks for GPU type {shown(job.gpu_type)}, not {gpu_type}")
        return self.by_type[gpu_type].curve(job)


def speed_for(
    cluster: Cluster,
    planner: str,
    table: str | Path | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
    models: Models | None = None,
) -> Speed:
    """The speeds of a run: a planner by name on the systems of the cluster, and a throughput table if there
    is one. Plans leave `memory_headroom`, a share of a GPU's memory, free. `models`: those that jobs may name
    (None: shipped ones and any file). UserError for unknown names.
    """
    tables: Mapping[str, Throughputs] = {}
    if table:
        tables = throughputs_by_type(table, tuple(dict.fromkeys(pool.chip for pool in cluster.pools)))
    by_type = {}
    for pool in cluster.pools:
        nodes = cluster.of_pool(pool) if cluster.groups else cluster
        by_type[pool.gpu_type] = _speed_on(
            pool, nodes, planner, memory_headroom, tables.get(pool.chip), models
        )
    return SpeedByType(by_type, cluster.pools) if len(by_type) > 1 else by_type[cluster.gpu_types[0]]


def _speed_on(
    pool: Pool,
    cluster: Cluster,
    planner: str,
    memory_headroom: float,
    table: Throughputs | None,
    models: Models | None,
) -> SpeedOnOneType:
    """The speeds on the nodes of one GPU type, which `cluster` has alone."""
    system = None
    if pool.system is not None:
        system = _shipped_nodes(pool) if pool.system in SHIPPED_SYSTEMS else _system_of_nodes(pool)
    planner = planner_name(planner)
    make = None
    if system is not None:
        make = partial(make_planner, planner, system, cache=default_cache, memory_headroom=memory_headroom)
    return SpeedOnOneType(cluster, make, table, pool.gpu_type, models, pool.stretches, system)


def _system_of_nodes(pool: Pool) -> System:
    """The system of the nodes of a pool that has one, whose profile can be used. Nodes with fewer GPUs than
    those of the system have the same part of its NICs.
    """
    system = load_system(pool.system or "")
    if pool.gpus_per_node > system.gpus_per_node:
        raise UserError(
            f"cluster n{pool.nodes}g{pool.gpus_per_node}: nodes of system {system.name} have "
            f"{system.gpus_per_node} GPUs; use a shape that ends in g{system.gpus_per_node}"
        )
    system = system.with_gpus(pool.gpus_per_node)
    if pool.nic_bytes_per_s is not None:
        system = replace(system, nic_bytes_per_s=pool.nic_bytes_per_s)
    profile_of(system)  # raises for a profile that cannot be used
    return system


_shipped_nodes = lru_cache(maxsize=64)(_system_of_nodes)
"""The same for shipped systems, kept for later runs."""


def node_changes(pool: Pool) -> dict[str, float]:
    """What the nodes of a pool that has a system have, and it states otherwise: a part of its GPUs and NICs,
    or other NICs, by the system's keys. Raises UserError where the nodes cannot be planned for.
    """
    system, nodes = load_system(pool.system or ""), _system_of_nodes(pool)
    values = {name: getattr(nodes, name) for name in ("gpus_per_node", "nic_bytes_per_s", "nics_per_node")}
    return {name: value for name, value in values.items() if value != getattr(system, name)}
