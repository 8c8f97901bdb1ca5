"""A job as the controller sees it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

__all__ = ["UNLIMITED_S", "Entry", "JobRecord", "Placement", "Shape", "nodes_in", "resources_of"]

UNLIMITED_S = 365 * 86400.0
"""The time for which a job without a limit is planned: a year, as in Slurm."""

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs, by node."""


class Shape(NamedTuple):
    """What a job asks for on the nodes of a pool, a set of nodes as a bit mask: `nodes` nodes with `gpus`
    GPUs each, of which the last has only `last_gpus`.
    """

    pool: int
    nodes: int
    gpus: int
    last_gpus: int

    @property
    def all_gpus(self) -> int:
        return self.gpus * (self.nodes - 1) + self.last_gpus


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job of the controller: what it asks for, and its state. Times are seconds on the trace's clock.

    | field | |
    |---|---|
    | `key` | what the caller knows the job by |
    | `order` | its id; of a task of an array the id of the array, then the number of the task |
    | `shapes` | what it asks for, one shape for each pool of equal GPUs, the first choice first |
    | `submit_s`, `eligible_s` | when it was submitted, and eligible for the last time |
    | `limit_s` | its time limit; `UNLIMITED_S` if neither it nor its partition states one |
    | `partitions`, `account`, `user`, `qos` | where it may run, whose it is, and its QOS |
    | `cpus`, `memory_gb` | cores and memory on all nodes together; 0 where it states none |
    | `nice`, `array` | what lowers its priority; the array of which it is a task |
    | `reservation`, `gpu_type` | those that it names; of several types of GPUs the first choice |
    | `priorities` | by partition, while it waits |
    | `reason` | why it waits, by Slurm's name |
    | `over_limit` | whether that is a limit of an association or a QOS |
    | `requeued` | whether it was preempted and is not eligible again yet |
    | `planned_s` | when the last cycle of backfill plans to start it; None without a plan |
    | `partition`, `start_s`, `placement`, `mask` | where it runs, and since when; `mask` has a bit a node |
    | `limit_end_s` | when its time limit ends |
    | `completing` | whether it is being stopped, by its limit or for another job, and still holds its nodes |
    | `doomed_s` | when its grace time ends, after which it is preempted; infinite if it is not |
    | `preempts_until_s` | until when it waits for jobs that it preempts to be gone |
    """

    key: Hashable
    order: tuple[int, ...]
    shapes: tuple[Shape, ...]
    submit_s: float = 0.0
    eligible_s: float = 0.0
    limit_s: float = UNLIMITED_S
    partitions: tuple[str, ...] = ("",)
    account: str = ""
    user: str = ""
    qos: str = "normal"
    cpus: float = 0.0
    memory_gb: float = 0.0
    nice: int = 0
    array: str | None = None
    reservation: str | None = None
    gpu_type: str = ""
    priorities: dict[str, int] = field(default_factory=dict)
    reason: str = "None"
    over_limit: bool = False
    requeued: bool = False
    planned_s: float | None = None
    partition: str = ""
    start_s: float = -inf
    limit_end_s: float = inf
    placement: Placement = ()
    mask: int = 0
    completing: bool = False
    doomed_s: float = inf
    preempts_until_s: float = -inf

    @property
    def nodes(self) -> int:
        return self.shapes[0].nodes

    @property
    def gpus(self) -> int:
        return self.shapes[0].all_gpus

    def begin(self, partition: str, placement: Placement, start_s: float) -> None:
        """The job runs from now on. Its limit counts from the whole second of its start, as Slurm's clock."""
        self.partition, self.placement, self.start_s = partition, placement, start_s
        self.limit_end_s = start_s // 1.0 + self.limit_s
        self.mask = sum(1 << node for node, _ in placement)
        self.reason, self.planned_s = "None", None
        self.completing, self.doomed_s = False, inf


def resources_of(job: JobRecord) -> dict[str, float]:
    """The trackable resources that a job asks for. A job that states no cores gets one a node."""
    resources = {
        "cpu": job.cpus or job.nodes,
        "node": job.nodes,
        "gres/gpu": job.gpus,
        "mem": job.memory_gb,
    }
    if job.gpu_type:
        resources[f"gres/gpu:{job.gpu_type}"] = job.gpus
    return resources


class Entry(NamedTuple):
    """A waiting job in one of its partitions: a job has an entry in the queue for each."""

    job: JobRecord
    partition: str


def nodes_in(mask: int) -> list[int]:
    """The nodes of a bit mask, ascending.

    >>> nodes_in(0b1011)
    [0, 1, 3]
    """
    nodes = []
    while mask:
        low = mask & -mask
        nodes.append(low.bit_length() - 1)
        mask ^= low
    return nodes
