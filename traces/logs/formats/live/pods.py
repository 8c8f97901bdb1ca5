"""Pods of Kubernetes: `kubectl get pods -A -o json`.

Schema: "Pod v1" of kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1. GPUs are requests
of `nvidia.com/gpu`, `amd.com/gpu` or MIG slices. A pod holds them from its condition `PodScheduled` (else
`status.startTime`) to the last `finishedAt` of its containers. `phase` is Pending, Running, Succeeded, Failed
or Unknown.

Pods of one controller are one job, as those of a PyTorchJob or of a Job that retries; only pods of services
(ReplicaSet, StatefulSet, DaemonSet) and those without controller are jobs by themselves. Kubernetes deletes
the pods of old jobs, so such a log has the live ones and the last that ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from traces.logs.cells import Moments
from traces.logs.log import Log, OnNode, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, member, read_records, text_of
from traces.logs.source import Head, LogSource
from traces.native import COLUMNS

from .kubernetes import (
    GPU_TYPE_LABEL,
    condition,
    gpus_of_pod,
    is_first_object,
    items,
    items_of,
    name_of,
    time_of,
)

__all__ = ["PODS"]

_SERVICES = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node")
_ENDED = ("Succeeded", "Failed")
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def _matches(head: Head) -> bool:
    return is_first_object(head, "v1", ["Pod"])


def _jobs(source: LogSource) -> Iterator[tuple[int, list[Any]]]:
    """The pods of each job, in order of their first pods, with the line of that."""
    jobs: dict[object, tuple[int, list[Any]]] = {}
    for line, pod in items(source):
        owner = _owner(pod)
        key = (member(pod, "metadata", "namespace"), *owner) if owner else line
        try:
            jobs.setdefault(key, (line, []))[1].append(pod)
        except TypeError:  # a name that is a list
            jobs[line] = line, [pod]
    yield from jobs.values()


def _owner(pod: Any) -> tuple[Any, Any] | None:
    """Kind and name of the controller whose pods are one job, if there is one."""
    owners = member(pod, "metadata", "ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        if member(owner, "controller") is True and member(owner, "kind") not in _SERVICES:
            return member(owner, "kind"), member(owner, "name")
    return None


def _name(pods: list[Any]) -> str:
    owner, name = _owner(pods[0]), name_of(pods[0])
    return f"{name.partition('/')[0]}/{owner[0]}/{owner[1]}" if owner else name


@dataclass(frozen=True)
class _Pod:
    """What a pod says, times in seconds; `end_s` None for one that has not ended."""

    created_s: float
    gpus: int
    part: bool
    phase: str
    start_s: float | None
    end_s: float | None
    spec: Any


def _values(pods: list[Any], tenant: str, times: Moments) -> Iterator[Row]:
    read = [pod for entry in pods if (pod := _pod(items_of(entry, "Pod"), times)).gpus]
    if not read:
        raise ValueError("asks for no GPU")
    live = [pod for pod in read if pod.phase not in _ENDED]
    ran = [(pod.start_s, pod.end_s, pod.gpus) for pod in read if pod.start_s is not None]
    starts = [start_s for start_s, _, _ in ran]
    if live:
        gpus, duration_s, end_s = sum(pod.gpus for pod in live), None, None
        state = "Running" if any(pod.start_s is not None for pod in live) else "Pending"
    else:
        spans = [(s, e, n) for s, e, n in ran if e is not None and e > s]
        if not spans:
            raise ValueError("ended, and states no run time")
        gpus = _most_at_once(spans)
        duration_s = sum((e - s) * n for s, e, n in spans) / gpus
        end_s = max(e for _, e, _ in spans)
        state = max((pod.end_s or 0.0, pod.phase) for pod in read)[1]
    spec, first = read[-1].spec, pods[0]
    limit, priority = member(spec, "activeDeadlineSeconds"), member(spec, "priority")
    owners = {
        "namespace": text_of(first, "metadata", "namespace"),
        "queue": text_of(first, "metadata", "labels", _QUEUE_LABEL),
    }
    held = [(member(pod.spec, "nodeName"), pod.start_s, pod.end_s, pod.gpus) for pod in read]
    yield {
        "job_id": _name(pods),
        "submit_s": min(pod.created_s for pod in read),
        "gpus": COLUMNS["gpus"](str(gpus)),
        "gpu_type": text_of(spec, "nodeSelector", GPU_TYPE_LABEL),
        "part_of_gpu": any(pod.part for pod in read),
        "duration_s": duration_s,
        "logged_start_s": min(starts) if starts and state != "Pending" else None,
        "logged_end_s": end_s,
        "estimate_s": None if limit is None else COLUMNS["estimate_s"](str(limit)),
        "priority": None if priority is None else COLUMNS["priority"](str(priority)),
        "tenant": owners[tenant],
        "state": state,
        "reason": text_of(condition(pods[-1], "PodScheduled"), "message") if state == "Pending" else None,
        "on_nodes": tuple(
            OnNode(node, start_s, end_s, gpus)
            for node, start_s, end_s, gpus in held
            if isinstance(node, str)
            and node
            and start_s is not None
            and end_s is not None
            and end_s > start_s
        ),
    }


def _pod(pod: Any, times: Moments) -> _Pod:
    created_s = time_of(times, pod, "metadata", "creationTimestamp")
    if created_s is None:
        raise ValueError("has no creationTimestamp")
    spec = member(pod, "spec")
    gpus, part = gpus_of_pod(spec)
    phase = text_of(pod, "status", "phase") or "Pending"
    scheduled = condition(pod, "PodScheduled")
    start_s = time_of(times, pod, "status", "startTime")
    if scheduled.get("status") == "True":
        start_s = time_of(times, scheduled, "lastTransitionTime") or start_s
    return _Pod(created_s, gpus, part, phase, start_s, _end_s(pod, times) if phase in _ENDED else None, spec)


def _end_s(pod: Any, times: Moments) -> float | None:
    """The last end of a container, None if none is stated."""
    statuses = member(pod, "status", "containerStatuses")
    ends = [
        time_of(times, one, "state", "terminated", "finishedAt")
        for one in (statuses if isinstance(statuses, list) else [])
    ]
    return max((end for end in ends if end is not None), default=None)


def _most_at_once(spans: list[tuple[float, float, int]]) -> int:
    """The most GPUs that (start, end, GPUs) hold at one time."""
    changes = sorted([(end, -gpus) for _, end, gpus in spans] + [(start, gpus) for start, _, gpus in spans])
    held, most = 0, 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


_FORM = RecordsOfJobs(
    format="kubernetes-pods",
    entries=_jobs,
    values=_values,
    name=_name,
    columns=("metadata", "spec", "status"),
    tenants=("namespace", "queue"),
    assumptions=(
        "the pods of one controller are one job; pods of services and those without controller are jobs each",
        "a job has the most GPUs that its pods held at once; its run time is their GPU-seconds over these",
        "a pod holds its GPUs from its condition PodScheduled to the last end of its containers",
        "the submission is the creation, the estimate activeDeadlineSeconds",
        "the run times of jobs with pods that have not ended are not known",
    ),
    times=("creationTimestamp, lastTransitionTime, finishedAt: dates; activeDeadlineSeconds in s",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_records(source, _FORM, options)


PODS = LogFormat("kubernetes-pods", "pods of Kubernetes, as kubectl -o json prints them", _matches, _read)
