"""What might bring the start of a job forward: fewer GPUs, a shorter time limit, another pool."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.report.numbers import duration
from traces.logs.log import LoggedJob

from .scene import Scene

__all__ = ["RequestChange", "changes_of"]

_HALVINGS = 3
_LIMITS = (2, 4)  # parts of the stated limit
_LEAST_LIMIT_S = 600.0
_MOST_POOLS = 5


@dataclass(frozen=True)
class RequestChange:
    """A job as it might be, in the pool where it would wait."""

    label: str
    job: LoggedJob
    pool: str


def changes_of(scene: Scene, job: LoggedJob, pool: str) -> list[RequestChange]:
    """The changes that are tried, in this order.

    - whole nodes, where the job asks for a part of one beside whole ones;
    - half of the GPUs, a quarter, an eighth, as far as these are whole numbers;
    - half of the time limit and a quarter, of at least ten minutes;
    - the other pools that are large enough, unless a pool belongs to a tenant; those with most GPUs first;
    - the other partitions of a site, in its order, that take the job and have as many GPUs.
    """
    size = scene.pools[pool].cluster.gpus_per_node
    counts = [job.gpus // size * size] if job.gpus > size > 1 and job.gpus % size else []
    counts += [job.gpus >> k for k in range(1, _HALVINGS + 1) if job.gpus % (1 << k) == 0]
    changes = [RequestChange(_gpus(count), _with_gpus(job, count), pool) for count in dict.fromkeys(counts)]
    if (limit_s := scene.run_times.limit_s(job)) is not None:
        for part in _LIMITS:
            if limit_s / part >= _LEAST_LIMIT_S:
                shorter = replace(job, estimate_s=limit_s / part)
                changes.append(RequestChange(f"limit {duration(limit_s / part)}", shorter, pool))
    if scene.division in ("partition", "gpu_type", "qos"):
        other_pools = [
            other_pool
            for other_pool in scene.pools.values()
            if other_pool.name != pool and other_pool.cluster.gpus >= job.gpus
        ]
        for other_pool in sorted(
            other_pools, key=lambda other_pool: (-other_pool.cluster.gpus, other_pool.name)
        )[:_MOST_POOLS]:
            moved = _moved(job, scene.division, other_pool.name)
            changes.append(
                RequestChange(f"{scene.division.replace('_', ' ')} {other_pool.name}", moved, other_pool.name)
            )
    if scene.running.site is not None:
        changes += [
            RequestChange(f"partition {name}", replace(job, partition=name, partitions=None), pool)
            for name in scene.running.site.partitions_for(job)[:_MOST_POOLS]
        ]
    return changes


def _with_gpus(job: LoggedJob, gpus: int) -> LoggedJob:
    """The job with other GPUs, on as many of each node as before if these are whole nodes."""
    nodes, lone_gpus = divmod(gpus, job.gpus_per_node or gpus)
    shape = (nodes, job.gpus_per_node) if job.gpus_per_node and not lone_gpus else (None, None)
    return replace(job, gpus=gpus, nodes=shape[0], gpus_per_node=shape[1])


def _moved(job: LoggedJob, division: str, name: str) -> LoggedJob:
    if division == "partition":
        return replace(job, partition=name)
    return replace(job, gpu_type=name) if division == "gpu_type" else replace(job, qos=name)


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
