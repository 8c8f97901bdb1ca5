"""Waits of the jobs of a run by group: by tenant, user, account, partition, QOS, GPU type or size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from typing import NamedTuple

from clustersim.records import FINISHED, JobRecord
from itertime.errors import UnknownName
from traces import Job

__all__ = ["GROUPINGS", "GroupWaits", "group_labels", "size_label", "waits_by_group"]

GROUPINGS = ("tenant", "user", "account", "partition", "qos", "gpu_type", "size")
"""What can tell groups of jobs apart: a field of the trace, or the size of the request."""

_NOT_STATED = "(not stated)"


class GroupWaits(NamedTuple):
    """The finished jobs of a group, and their mean wait in seconds."""

    jobs: int
    mean_s: float


def group_labels(jobs: Iterable[Job], grouping: str) -> dict[str, str]:
    """The group of each job by its id. UnknownName for a grouping that does not exist.

    Sizes are powers of two that hold the request, as ranges: 1, 2, 3-4, 5-8.
    """
    if grouping not in GROUPINGS:
        raise UnknownName("grouping", grouping, GROUPINGS)
    if grouping == "size":
        return {job.job_id: size_label(job.gpus or 0) for job in jobs}
    fallback = "tenant" if grouping == "account" else grouping  # a trace states either, if they are the same
    return {job.job_id: getattr(job, grouping) or getattr(job, fallback) or _NOT_STATED for job in jobs}


def size_label(gpus: int) -> str:
    """The power of two that holds a number of GPUs, as a range: 1, 2, 3-4, 5-8, ..."""
    top = 1 << (gpus - 1).bit_length()
    return f"{top // 2 + 1}-{top}" if top > 2 else str(top)


def waits_by_group(records: Iterable[JobRecord], labels: Mapping[str, str]) -> dict[str, GroupWaits]:
    """The waits of finished jobs by group, that of most jobs first. Those without a label do not count."""
    waits_s: dict[str, list[float]] = {}
    for record in records:
        label = labels.get(record.job_id)
        if label is not None and record.state == FINISHED and record.wait_s is not None:
            waits_s.setdefault(label, []).append(record.wait_s)
    order = sorted(waits_s, key=lambda label: (-len(waits_s[label]), label))
    return {
        label: GroupWaits(len(waits_s[label]), fsum(waits_s[label]) / len(waits_s[label])) for label in order
    }
