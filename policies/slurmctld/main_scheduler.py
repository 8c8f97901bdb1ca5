"""The main scheduler: waiting jobs in order, until one finds no room.

Sources: sched_config; slurm.conf(5), `SchedulerType`, `default_queue_depth`, `partition_job_depth`,
`bf_min_age_reserve`, `bf_min_prio_reserve`, `assoc_limit_stop`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from .records import Entry, JobRecord
from .rules import Rules

__all__ = ["Starter", "queue_of", "reserves", "run_main"]


class Starter(Protocol):
    """What the two schedulers need of the controller."""

    rules: Rules

    def limit_reason(self, job: JobRecord, partition: str) -> str:
        """The limit that keeps a job from starting now, empty if none does. The job remembers it."""

    def usable_nodes(self, partition: str) -> int:
        """The nodes of the partition that are in service, reserved ones among them."""

    def start_now(self, job: JobRecord, partition: str, usable: int) -> bool:
        """Start a job on `usable` nodes, preempting others if it may. Returns whether it started."""


def queue_of(jobs: Iterable[JobRecord], rules: Rules) -> list[Entry]:
    """The waiting jobs in the order in which Slurm considers them: those of a reservation first, then by the
    tier of the partition, by priority, and by id. A job has an entry for each of its partitions.
    """
    tiers = {name: -partition.PriorityTier for name, partition in rules.partitions.items()}
    return [
        entry
        for _, entry in sorted(
            (
                (job.reservation is None, tiers[name], -job.priorities.get(name, 0), job.order),
                Entry(job, name),
            )
            for job in jobs
            for name in job.partitions
        )
    ]


def run_main(queue: Iterable[Entry], controller: Starter, now: float, full: bool) -> None:
    """Start what can start, in the order of the queue.

    A job for which the nodes are busy stops all later ones of its partition, and closes the nodes of the
    partition to those of the others. A job that a limit stops does neither, unless `assoc_limit_stop`.
    `full`: the whole queue, instead of its first `default_queue_depth` entries.
    """
    rules = controller.rules
    depth = None if full else int(rules.number("default_queue_depth"))
    most_in_partition = int(rules.number("partition_job_depth"))
    failed_partitions = set[str]()
    closed_nodes = tried = 0
    in_partition = Counter[str]()
    started_jobs = set[JobRecord]()
    for job, partition in queue:
        if len(failed_partitions) == len(rules.partitions):
            break
        if job in started_jobs:
            continue
        if partition in failed_partitions:
            job.reason = "Priority"
            continue
        if controller.limit_reason(job, partition):
            if rules.has("assoc_limit_stop"):
                failed_partitions.add(partition)
            continue
        in_partition[partition] += 1
        if most_in_partition and in_partition[partition] > most_in_partition:
            continue
        tried += 1
        if depth is not None and tried > depth:
            break
        usable = controller.usable_nodes(partition)
        if controller.start_now(job, partition, usable & ~closed_nodes):
            started_jobs.add(job)
            continue
        job.reason = "Resources"
        if job.reservation is None and reserves(job, partition, rules, now):
            failed_partitions.add(partition)
            closed_nodes |= rules.nodes_of[partition]


def reserves(job: JobRecord, partition: str, rules: Rules, now: float) -> bool:
    """Whether a job without room keeps nodes from later ones, by its age and its priority."""
    least_age_s = rules.number("bf_min_age_reserve")
    old_enough = not least_age_s or now - job.eligible_s >= least_age_s
    return old_enough and job.priorities.get(partition, 0) >= rules.number("bf_min_prio_reserve")
