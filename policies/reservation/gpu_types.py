"""The GPU types of a cluster as reservations see them: rooms of like nodes, and what a GPU of each is worth.

On a cluster of one type there is one room, and its type is called "": nothing asks for a type there.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import NamedTuple

from clustersim.scheduler import Cluster, JobView

__all__ = ["Room", "Share", "Values", "held_on", "rooms_of"]


class Room(NamedTuple):
    """The nodes `first` to `first + nodes - 1`, all of one GPU type."""

    first: int
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class Share(NamedTuple):
    """The GPUs that a job is to have now, all of one type."""

    gpus: int
    gpu_type: str = ""


def rooms_of(cluster: Cluster) -> dict[str, Room]:
    """The rooms by GPU type, in the order of the cluster's groups."""
    if not cluster.mixed:
        return {"": Room(0, cluster.nodes, cluster.gpus_per_node)}
    return {pool.gpu_type: Room(pool.first, pool.nodes, pool.gpus_per_node) for pool in cluster.pools}


def held_on(job: JobView, gpu_type: str) -> int:
    """The GPUs of a type that a job holds now."""
    return job.gpus if not gpu_type or job.gpu_type == gpu_type else 0


class Values:
    """What a GPU of each type is worth, relative to the best one: the geometric mean, over the jobs
    submitted so far, of a job's speed per GPU on the type over that on its fastest type.

    With it GPU time on different types adds up. A job takes the least worth of GPU time on the type that
    suits it best in comparison with the other jobs. A single type is worth 1.

    >>> values = Values(["a100", "h100"])
    >>> values.note({"a100": 1.0, "h100": 4.0})
    >>> values.note({"a100": 2.0, "h100": 2.0})
    >>> print(values.of)
    {'a100': 0.5, 'h100': 1.0}
    """

    def __init__(self, types: Mapping[str, object] | list[str]):
        self.of = dict.fromkeys(types, 1.0)
        self._logs = dict.fromkeys(types, 0.0)
        self._jobs = dict.fromkeys(types, 0)

    def note(self, speeds: Mapping[str, float]) -> None:
        """Count a job with these speeds per GPU (iterations/s) on the types that can run it."""
        if len(self.of) == 1:
            return
        best = max(speeds.values())
        for name, speed in speeds.items():
            self._logs[name] += log(speed / best)
            self._jobs[name] += 1
            self.of[name] = exp(self._logs[name] / self._jobs[name])
