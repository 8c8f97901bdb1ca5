"""Waits of the jobs of a run by group: by tenant, user, account, partition, QOS, GPU type or size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

from clustersim.records import FINISHED, JobRecord
from itertime.errors import UnknownName
from traces import Job

__all__ = [
    "GROUPINGS",
    "WHOLE",
    "GroupWaits",
    "group_labels",
    "logged_waits_by_group",
    "size_label",
    "waits_by_group",
]

WHOLE = "all"
"""The grouping of all jobs in one group."""

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
    if grouping == WHOLE:
        return {job.job_id: "all jobs" for job in jobs}
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


def logged_waits_by_group(jobs: Iterable[Job], labels: Mapping[str, str]) -> dict[str, GroupWaits]:
    """The waits that a log states, from the eligibility of each job to its first start, by group; of jobs
    without a logged start nothing is known.
    """
    waits_s: dict[str, list[float]] = {}
    for job in jobs:
        if job.logged_start_s is not None and job.job_id in labels:
            eligible_s = max(job.submit_s, job.eligible_s or 0.0, job.begin_s or 0.0)
            waits_s.setdefault(labels[job.job_id], []).append(max(0.0, job.logged_start_s - eligible_s))
    return _means(waits_s)


def waits_by_group(records: Iterable[JobRecord], labels: Mapping[str, str]) -> dict[str, GroupWaits]:
    """The waits of finished jobs by group, that of most jobs first. Those without a label do not count."""
    waits_s: dict[str, list[float]] = {}
    for record in records:
        label = labels.get(record.job_id)
        if label is not None and record.state == FINISHED and record.wait_s is not None:
            waits_s.setdefault(label, []).append(record.wait_s)
    return _means(waits_s)


def _means(waits_s: Mapping[str, Sequence[float]]) -> dict[str, GroupWaits]:
    order = sorted(waits_s, key=lambda label: (-len(waits_s[label]), label))
    return {
        label: GroupWaits(len(waits_s[label]), fsum(waits_s[label]) / len(waits_s[label])) for label in order
    }
