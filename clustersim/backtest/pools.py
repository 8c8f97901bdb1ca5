"""The parts of a site whose jobs do not compete for GPUs with those of other parts, and what each has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

from clustersim.cluster import Cluster
from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces import Job

from .logged import LoggedRun, Rows
from .use import Reduced, in_use, peak, reduced

__all__ = ["DIVISIONS", "SiteFacts", "SitePool", "pools_of"]

DIVISIONS = ("auto", "none", "tenant", "partition", "qos", "gpu_type")
"""What can tell the pools of a site apart: nothing, or a field of its jobs."""

_EXCLUSIVE = ("helios", "fleetsim")  # formats of sites where a tenant is a virtual cluster with its own nodes
_MOST_POOLS = 1000
_LARGEST_NODE = 8  # GPUs; that of the default system, which bounds inferred clusters
_USUAL_SIZE = 8  # GPUs of a node
_LEAST_JOBS = 5  # of a tenant, for its peak to be a limit
_NOT_STATED = "(not stated)"


@dataclass(frozen=True)
class SitePool:
    """Jobs that compete for the GPUs of one cluster.

    `rows`: places of its jobs in the log. `cluster`: by the log, unless `stated` by the user. `largest`:
    its largest request. `reduced`: when it had less. `quotas`: GPUs by tenant. `limits`: the most GPUs that a
    tenant of some jobs held at once.
    """

    name: str
    rows: Rows
    cluster: Cluster
    stated: bool
    largest: int
    reduced: tuple[Reduced, ...]
    quotas: Mapping[str, int]
    limits: Mapping[str, int] = field(default_factory=dict)

    def scaled(self, factor: float) -> Cluster:
        """The cluster with its capacity times `factor`, in whole nodes that hold the largest request; as it
        is if the user stated it.
        """
        if self.stated or factor == 1:
            return self.cluster
        size = self.cluster.gpus_per_node
        return Cluster(max(ceil(self.cluster.nodes * factor), ceil(self.largest / size)), size)

    def calendar(self, cluster: Cluster) -> list[dict[str, Any]]:
        """The reduced capacity as changes of nodes, of which policies learn nothing in advance: the last ones
        are taken out.
        """
        entries = []
        for part in self.reduced:
            nodes = (cluster.gpus - part.gpus) // cluster.gpus_per_node
            if nodes > 0:
                out = f"{cluster.nodes - nodes}-{cluster.nodes - 1}"
                entry = {"at_s": part.from_s, "maintenance": out, "for_s": part.until_s - part.from_s}
                entries.append({**entry, "announced": False})
        return entries


@dataclass(frozen=True)
class SiteFacts:
    """What the user says of the site: how to divide it, the clusters of pools by name ("" for the only pool),
    the size of nodes (None: inferred), and whether times of reduced capacity are looked for.
    """

    division: str = "auto"
    clusters: Mapping[str, Cluster] | None = None
    gpus_per_node: int | None = None
    look_for_reduced: bool = True

    def __post_init__(self) -> None:
        if self.division not in DIVISIONS:
            raise UnknownName("division into pools", self.division, DIVISIONS)
        if self.gpus_per_node is not None and not 1 <= self.gpus_per_node <= _LARGEST_NODE:
            raise UserError(f"--gpus-per-node {self.gpus_per_node}: must be between 1 and {_LARGEST_NODE}")


def pools_of(
    log: LoggedRun, site_facts: SiteFacts, known_jobs: int | None = None
) -> tuple[list[SitePool], list[str]]:
    """The pools of the site, the largest in jobs first, and the assumptions made.

    Only the first `known_jobs` jobs (all, if None) may show what a pool has. UserError if the user states a
    cluster of a pool that does not exist, or one cluster for several pools.
    """
    clusters = dict(site_facts.clusters or {})
    division = _division(log, site_facts, clusters)
    names = _names(log.jobs, division)
    order = sorted(set(names), key=lambda name: (-names.count(name), name))
    if len(order) > _MOST_POOLS:
        raise UserError(f"--pools {division}: makes {len(order):,} pools, more than {_MOST_POOLS:,}")
    _check(clusters, order, division)
    known_jobs = len(log.jobs) if known_jobs is None else known_jobs
    labels = np.array(names, dtype=object)
    pools = [
        _pool(log, name, np.flatnonzero(labels == name), site_facts, clusters, known_jobs) for name in order
    ]
    if site_facts.gpus_per_node is not None and all(pool.stated for pool in pools):
        raise UserError(
            f"--gpus-per-node {site_facts.gpus_per_node}: --cluster states the nodes; leave one out"
        )
    return pools, [
        *_said_of(division, order, log),
        *(line for pool in pools for line in _said(pool, site_facts, log)),
    ]


def _division(log: LoggedRun, site_facts: SiteFacts, clusters: Mapping[str, Cluster]) -> str:
    if site_facts.division != "auto":
        return site_facts.division
    if "" in clusters:
        return "none"
    if log.account["format"] in _EXCLUSIVE:
        return "tenant"
    if len({job.gpu_type for job in log.jobs}) > 1 and all(job.gpu_type for job in log.jobs):
        return "gpu_type"
    return "none"


def _names(jobs: Sequence[Job], division: str) -> list[str]:
    if division == "none":
        return ["all"] * len(jobs)
    return [getattr(job, division) or _NOT_STATED for job in jobs]


def _check(clusters: Mapping[str, Cluster], names: list[str], division: str) -> None:
    if "" in clusters and len(names) > 1:
        problem = f"--cluster {shown(clusters[''].shape)}: is one cluster for {len(names)} pools ({division})"
        raise UserError(f"{problem}; give --cluster {shown(names[0])}=SHAPE for each, or --pools none")
    for name in clusters:
        if name and name not in names:
            raise UnknownName("pool", name, names)


def _pool(
    log: LoggedRun,
    name: str,
    rows: Rows,
    site_facts: SiteFacts,
    clusters: Mapping[str, Cluster],
    known_jobs: int,
) -> SitePool:
    seen, largest = rows[rows < known_jobs], int(log.gpus[rows].max())
    cluster = clusters.get(name, clusters.get(""))
    is_stated = cluster is not None
    if cluster is None:
        peak_gpus = peak(*log.runs_of(seen))
        gpus = max(peak_gpus, largest)
        size = site_facts.gpus_per_node or _node_size(log, rows)
        cluster = Cluster(ceil(gpus / size), size)
    reduced_spans: list[Reduced] = []
    if site_facts.look_for_reduced and not cluster.mixed and cluster.node_sizes == 1:
        until_s = inf if known_jobs >= len(log.jobs) else float(log.submit_s[known_jobs])
        columns = (log.eligible_s[seen], log.start_s[seen], log.run_s[seen], log.gpus[seen])
        reduced_spans = reduced(*columns, cluster.gpus, until_s)
    return SitePool(
        name,
        rows,
        cluster,
        is_stated,
        largest,
        tuple(reduced_spans),
        _quotas(log, seen, cluster),
        _limits(log, rows, known_jobs),
    )


def _node_size(log: LoggedRun, rows: Rows) -> int:
    """8 if some request is of at least 8 GPUs, and all larger ones are multiples of 8; else 1. In any case
    what a job asks for on one node.
    """
    requests = log.gpus[rows]
    odd = (requests[requests > _USUAL_SIZE] % _USUAL_SIZE).any()
    size = _USUAL_SIZE if requests.max() >= _USUAL_SIZE and not odd else 1
    return max([size, *(log.jobs[row].gpus_per_node or 1 for row in rows.tolist())])


def _quotas(log: LoggedRun, seen: Rows, cluster: Cluster) -> dict[str, int]:
    """The peak of each tenant, in proportion of the capacity."""
    tenants = np.array([log.jobs[i].tenant for i in seen], dtype=object)
    peaks = {}
    for tenant in sorted(set(tenants)):
        tenant_rows = seen[tenants == tenant]
        peaks[tenant] = peak(*log.runs_of(tenant_rows))
    total = sum(peaks.values())
    if len(peaks) < 2 or not total:
        return {}
    return {tenant: cluster.gpus * peak_gpus // total for tenant, peak_gpus in peaks.items()}


def _said_of(division: str, names: list[str], log: LoggedRun) -> list[str]:
    if division == "none":
        return ["all jobs compete for one pool of GPUs"]
    reason = ""
    if log.account["format"] in _EXCLUSIVE and division == "tenant":
        reason = ": a virtual cluster is an exclusive set of nodes (Hu et al., SC 2021)"
    return [f"{len(names)} pools by {division}, whose jobs do not compete{reason}"]


def _limits(log: LoggedRun, rows: Rows, known_jobs: int) -> dict[str, int]:
    """The peak of each tenant with at least `_LEAST_JOBS` known starts, at least its own largest request."""
    tenants = np.array([log.jobs[i].tenant for i in rows], dtype=object)
    limits = {}
    for tenant in sorted(set(tenants)):
        tenant_rows = rows[tenants == tenant]
        seen = tenant_rows[(tenant_rows < known_jobs) & ~np.isnan(log.start_s[tenant_rows])]
        if len(seen) >= _LEAST_JOBS:
            peak_gpus = peak(*log.runs_of(seen))
            limits[tenant] = max(peak_gpus, int(log.gpus[tenant_rows].max()))
    return limits


def _exceeded(pool: SitePool, log: LoggedRun) -> Iterator[str]:
    """How often, and by how much, the log uses more than the stated cluster has."""
    moments, gpus_in_use = in_use(*log.runs_of(pool.rows))
    lasted = np.diff(moments, append=moments[-1:])
    above = gpus_in_use > pool.cluster.gpus
    if above.any():
        hours, share = (
            lasted[above].sum() / 3600,
            lasted[above].sum() / max(1e-9, lasted[gpus_in_use > 0].sum()),
        )
        problem = f"the log has up to {int(gpus_in_use.max()):,} GPUs in use at once"
        times = f"{hours:,.1f} h, {100 * share:.1f} % of the time in use"
        yield f"WARNING: {problem}, more than there are for {times}"


def _said(pool: SitePool, site_facts: SiteFacts, log: LoggedRun) -> list[str]:
    where = "" if pool.name == "all" else f"pool {shown(pool.name)}: "
    if pool.stated:
        sentences = [f"{where}{pool.cluster.gpus:,} GPUs ({pool.cluster.shape}), as stated"]
        sentences += [f"{where}{line}" for line in _exceeded(pool, log)]
    else:
        nodes = "in nodes of 1, so nothing is fragmented"
        if site_facts.gpus_per_node is not None:
            nodes = f"in nodes of {site_facts.gpus_per_node}, as stated"
        elif pool.cluster.gpus_per_node > 1:
            nodes = f"in nodes of {_USUAL_SIZE}, of which all larger requests are multiples"
        rule = "the most in use at once for a minute in all, at least the largest request"
        sentences = [f"{where}{pool.cluster.gpus:,} GPUs, {rule}; {nodes}"]
    if pool.reduced:
        hours = sum(part.until_s - part.from_s for part in pool.reduced) / 3600
        observation = "jobs waited that would have fitted beside what was in use"
        sentences.append(
            f"{where}less capacity in {len(pool.reduced)} times, {hours:,.0f} h in all: {observation}"
        )
    return sentences
