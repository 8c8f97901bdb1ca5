"""Volcano's jobs and pod groups: `kubectl get vcjob -A -o json`, `kubectl get podgroups -A -o json`.

Schema: `Job` of batch.volcano.sh/v1alpha1 and `PodGroup` of scheduling.volcano.sh/v1beta1, volcano.sh/en/docs
(pages "VolcanoJob" and "PodGroup").

A job has `spec.queue`, `minAvailable` (pods that start together), `runningEstimate` (such as `1h30m`), and
`tasks`, each with `replicas` and a pod `template`; `status.state` has `phase` and `lastTransitionTime`,
`status.conditions` the time of each phase (`status`, `lastTransitionTime`).

A pod group has `spec.queue`, `minMember` and `minResources`, the resources of these pods; `status.phase` and
the condition `Scheduled`. It states no end. One that belongs to a job is dropped, as its job is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from traces.logs.cells import Moments
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, member, read_records, text_of
from traces.logs.source import Head, LogSource
from traces.native import COLUMNS, MIN_SECONDS, whole

from .kubernetes import (
    GPU_TYPE_LABEL,
    GpuResources,
    condition,
    is_first_object,
    items,
    items_of,
    name_of,
    time_of,
)

__all__ = ["VOLCANO"]

_ENDED = ("Completed", "Failed", "Terminated", "Aborted")
_GO_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def _matches(head: Head) -> bool:
    return is_first_object(head, "batch.volcano.sh", ["Job"]) or is_first_object(
        head, "scheduling.volcano.sh", ["PodGroup"]
    )


def _values(entry: Any, tenant: str, times: Moments, *, resources: GpuResources) -> Iterator[Row]:
    is_group = member(entry, "kind") == "PodGroup"
    job = items_of(entry, "PodGroup" if is_group else "Job")
    submit_s = time_of(times, job, "metadata", "creationTimestamp")
    if submit_s is None:
        raise ValueError("has no creationTimestamp")
    row = (_of_group if is_group else _of_job)(job, times, resources)
    COLUMNS["gpus"](str(row["gpus"]))
    names = {"queue": text_of(job, "spec", "queue"), "namespace": text_of(job, "metadata", "namespace")}
    yield {"job_id": name_of(job), "submit_s": submit_s, "tenant": names[tenant], **row}


def _of_job(job: Mapping[str, Any], times: Moments, resources: GpuResources) -> Row:
    pods, part, gpu_type = _pods(job, resources)
    fewest = member(job, "spec", "minAvailable")
    total = sum(gpus * count for gpus, count in pods)
    min_gpus = 0 if fewest is None else _least(pods, whole(str(fewest)))
    phase = text_of(job, "status", "state", "phase") or "Pending"
    start_s, end_s = _running_since(job, times), None
    if phase in _ENDED:
        end_s = time_of(times, job, "status", "state", "lastTransitionTime")
        ran_s = _go_span(job, "status", "runningDuration")
        if start_s is None and end_s is not None and ran_s:
            start_s = end_s - ran_s
        if start_s is None or end_s is None or end_s - start_s < MIN_SECONDS:
            raise ValueError("ended without having run")
    return {
        "gpus": total,
        "min_gpus": min_gpus if 0 < min_gpus < total else None,
        "gpu_type": gpu_type,
        "part_of_gpu": part,
        "duration_s": end_s - start_s if end_s is not None and start_s is not None else None,
        "logged_start_s": start_s,
        "logged_end_s": end_s,
        "estimate_s": _go_span(job, "spec", "runningEstimate"),
        "state": phase,
        "reason": None if start_s is not None else text_of(job, "status", "state", "message"),
    }


def _least(pods: list[tuple[int, int]], fewest: int) -> int:
    """The GPUs of the smallest `fewest` pods."""
    total = 0
    for gpus, count in pods:
        total += gpus * max(0, min(count, fewest))
        fewest -= count
    return total


def _pods(job: Mapping[str, Any], resources: GpuResources) -> tuple[list[tuple[int, int]], bool, str | None]:
    """(GPUs of a pod, pods), fewest GPUs first; whether slices are among them; their type if it is one."""
    pods, part, types = list[tuple[int, int]](), False, dict[str | None, None]()
    tasks = member(job, "spec", "tasks")
    for task in tasks if isinstance(tasks, list) else []:
        of_pod, sliced = resources.of_pod(member(task, "template", "spec"))
        replicas = member(task, "replicas")
        count = 1 if replicas is None else whole(str(replicas))
        if count < 0:
            raise ValueError("replicas: must not be negative")
        pods.append((of_pod, count))
        part = part or sliced
        if of_pod:
            types[text_of(task, "template", "spec", "nodeSelector", GPU_TYPE_LABEL)] = None
    if not any(gpus * count for gpus, count in pods):
        raise ValueError("asks for no GPU")
    return sorted(pods), part, next(iter(types)) if len(types) == 1 else None


def _running_since(job: Mapping[str, Any], times: Moments) -> float | None:
    """When the job first ran, if it has."""
    seen = member(job, "status", "conditions")
    for entry in seen if isinstance(seen, list) else []:
        if member(entry, "status") == "Running":
            return time_of(times, entry, "lastTransitionTime")
    running = member(job, "status", "state", "phase") == "Running"
    return time_of(times, job, "status", "state", "lastTransitionTime") if running else None


def _of_group(group: Mapping[str, Any], times: Moments, resources: GpuResources) -> Row:
    owners = member(group, "metadata", "ownerReferences")
    if isinstance(owners, list) and any(member(owner, "kind") == "Job" for owner in owners):
        raise ValueError("is the pod group of a job, which is listed itself")
    gpus, part = resources.held(member(group, "spec", "minResources"))
    if not gpus:
        raise ValueError("asks for no GPU")
    phase = text_of(group, "status", "phase") or "Pending"
    if phase == "Completed":
        raise ValueError("has ended, and a pod group does not say when")
    scheduled = condition(group, "Scheduled")
    has_start = phase == "Running" and scheduled.get("status") == "True"
    return {
        "gpus": gpus,
        "part_of_gpu": part,
        "duration_s": None,
        "logged_start_s": time_of(times, scheduled, "lastTransitionTime") if has_start else None,
        "state": phase,
        "reason": text_of(condition(group, "Unschedulable"), "message") if phase != "Running" else None,
    }


def _go_span(entry: Any, *path: str) -> float | None:
    """A span as Go prints it (`1h30m5s`), in seconds; None if there is none. ValueError if it is wrong."""
    value = text_of(entry, *path)
    match = _GO_SPAN.fullmatch(value) if value else None
    if value is None:
        return None
    if not match:
        raise ValueError(f"{path[-1]}: is no span such as 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return float(COLUMNS["duration_s"](repr((60 * hours + minutes) * 60 + seconds)))


_FORM = RecordsOfJobs(
    format="volcano",
    entries=items,
    values=partial(_values, resources=GpuResources()),
    name=name_of,
    columns=("metadata", "spec", "status"),
    tenants=("queue", "namespace"),
    assumptions=(
        "the submission is the creation, the start the first time in the phase Running, the end the last "
        "change of phase",
        "the GPUs are those of all pods of a job, the least those of the smallest minAvailable pods; of a "
        "pod group, minResources",
        "the estimate is runningEstimate; the priority, which a class names, is left out",
        "the run times of jobs that have not ended are not known",
    ),
    times=("creationTimestamp, lastTransitionTime: dates; runningEstimate: written out",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    form = replace(_FORM, values=partial(_values, resources=GpuResources(options.gpu_resources)))
    return read_records(source, form, options)


VOLCANO = LogFormat(
    "volcano", "Volcano's jobs and pod groups, as kubectl -o json prints them", _matches, _read
)
