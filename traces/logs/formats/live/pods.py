"""Pods of Kubernetes: `kubectl get pods -A -o json`.

Schema: "Pod v1" of kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1. GPUs are requests
of accelerators by their device plugins' names (`kubernetes`), claims of devices that are GPUs by their names,
or a part of one by Run:ai's annotation `gpu-fraction`. A pod holds them from its condition `PodScheduled`
(else `status.startTime`) to the last `finishedAt` of its containers. `phase` is Pending, Running, Succeeded,
Failed or Unknown.

Pods of one controller are one job, as those of a PyTorchJob or of a Job that retries; only pods of services
(ReplicaSet, StatefulSet, DaemonSet) and those without controller are jobs by themselves. Kubernetes deletes
the pods of old jobs, so such a log has the live ones and the last that ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from traces.logs.cells import MixedColumnError, Moments
from traces.logs.log import Log, OnNode, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import Entries, RecordsOfJobs, Row, member, read_records, text_of
from traces.logs.source import Head, LogSource
from traces.native import COLUMNS

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

__all__ = ["PODS"]

_SERVICES = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node")
_ENDED = ("Succeeded", "Failed")
_SHARE_ANNOTATION = "gpu-fraction"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def _matches(head: Head) -> bool:
    return is_first_object(head, "v1", ["Pod"])


class _Pod(NamedTuple):
    """What is needed of a pod, times in seconds. `end_s` None for one that has not ended. `error`: why it
    cannot be read; the other members then say nothing.
    """

    namespace: str | None
    owner: tuple[str, str] | None
    name: str
    created_s: float = 0.0
    gpus: int = 0
    part: bool = False
    phase: str = ""
    start_s: float | None = None
    end_s: float | None = None
    limit: str | None = None
    priority: str | None = None
    gpu_type: str | None = None
    queue: str | None = None
    waits_for: str | None = None
    node: str | None = None
    share: float | None = None
    error: Exception | None = None


def _jobs(pods: Entries, times: Moments, *, resources: GpuResources) -> Iterator[tuple[int, list[_Pod]]]:
    """The pods of each job, in order of their first pods, with the line of that."""
    jobs: dict[object, tuple[int, list[_Pod]]] = {}
    for place, (line, entry) in enumerate(pods):
        pod = _pod(entry, times, resources)
        key: object = (pod.namespace, *pod.owner) if pod.owner else place  # several may be on one line
        jobs.setdefault(key, (line, []))[1].append(pod)
    for key in list(jobs):
        yield jobs.pop(key)


def _owner(pod: Any) -> tuple[str, str] | None:
    """Kind and name of the controller whose pods are one job, if there is one."""
    owners = member(pod, "metadata", "ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        kind, name = member(owner, "kind"), member(owner, "name")
        if member(owner, "controller") is True and kind not in _SERVICES:
            return (sys.intern(kind), name) if isinstance(kind, str) and isinstance(name, str) else None
    return None


def _name(pods: list[_Pod]) -> str:
    first_pod = pods[0]
    return (
        f"{first_pod.namespace or 'default'}/{'/'.join(first_pod.owner)}"
        if first_pod.owner
        else first_pod.name
    )


def _values(pods: list[_Pod], tenant: str, times: Moments) -> Iterator[Row]:
    for pod in pods:
        if pod.error is not None:
            raise pod.error
    gpu_pods = [pod for pod in pods if pod.gpus]
    if not gpu_pods:
        raise ValueError("asks for no GPU")
    live = [pod for pod in gpu_pods if pod.phase not in _ENDED]
    ran = [(pod.start_s, pod.end_s, pod.gpus) for pod in gpu_pods if pod.start_s is not None]
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
        state = max((pod.end_s or 0.0, pod.phase) for pod in gpu_pods)[1]
    first_pod, last_pod = pods[0], gpu_pods[-1]
    yield {
        "job_id": _name(pods),
        "submit_s": min(pod.created_s for pod in gpu_pods),
        "gpus": COLUMNS["gpus"](str(gpus)),
        "gpu_type": last_pod.gpu_type,
        "part_of_gpu": any(pod.part for pod in gpu_pods),
        "held_gpus": gpu_pods[0].share if len(gpu_pods) == 1 else None,
        "duration_s": duration_s,
        "logged_start_s": min(starts) if starts and state != "Pending" else None,
        "logged_end_s": end_s,
        "estimate_s": None if last_pod.limit is None else COLUMNS["estimate_s"](last_pod.limit),
        "priority": None if last_pod.priority is None else COLUMNS["priority"](last_pod.priority),
        "tenant": first_pod.namespace if tenant == "namespace" else first_pod.queue,
        "state": state,
        "reason": pods[-1].waits_for if state == "Pending" else None,
        "spans": tuple(_on_nodes(gpu_pods)),
    }


def _on_nodes(pods: list[_Pod]) -> Iterator[OnNode]:
    for pod in pods:
        if pod.node and pod.start_s is not None and pod.end_s is not None and pod.end_s > pod.start_s:
            yield OnNode(pod.node, pod.start_s, pod.end_s, pod.gpus)


def _pod(entry: Any, times: Moments, resources: GpuResources) -> _Pod:
    """What is needed of an entry, or why it is no pod."""
    namespace, owner, name = None, None, ""
    try:
        namespace = _interned(text_of(entry, "metadata", "namespace"))
        owner, name = _owner(entry), name_of(entry)
        items_of(entry, "Pod")
        created_s = time_of(times, entry, "metadata", "creationTimestamp")
        if created_s is None:
            raise ValueError("has no creationTimestamp")
        spec = member(entry, "spec")
        gpus, part = resources.of_pod(spec)
        share = None if gpus else _share(entry)
        if share is not None:
            gpus, part = 1, True
        phase = text_of(entry, "status", "phase") or "Pending"
        scheduled = condition(entry, "PodScheduled")
        start_s = time_of(times, entry, "status", "startTime")
        if scheduled.get("status") == "True":
            start_s = time_of(times, scheduled, "lastTransitionTime") or start_s
        limit, priority = member(spec, "activeDeadlineSeconds"), member(spec, "priority")
        return _Pod(
            namespace, owner, name, created_s, gpus, part, sys.intern(phase), start_s, share=share,
            end_s=_end_s(entry, times) if phase in _ENDED else None,
            limit=None if limit is None else str(limit),
            priority=None if priority is None else sys.intern(str(priority)),
            gpu_type=_interned(text_of(spec, "nodeSelector", GPU_TYPE_LABEL)),
            queue=_interned(text_of(entry, "metadata", "labels", _QUEUE_LABEL)),
            node=sys.intern(node) if isinstance(node := member(spec, "nodeName"), str) else None,
            waits_for=None if phase in _ENDED else _interned(text_of(scheduled, "message")),
        )  # fmt: skip
    except (ValueError, MixedColumnError) as error:
        return _Pod(namespace, owner, name, error=error)


def _share(pod: Any) -> float | None:
    """The part of a GPU that Run:ai's annotation `gpu-fraction` states; None if it states none."""
    text = text_of(pod, "metadata", "annotations", _SHARE_ANNOTATION)
    try:
        share = float(text or 0)
    except ValueError:
        return None
    return share if 0 < share < 1 else None


def _interned(text: str | None) -> str | None:
    """The text, equal texts as one object: a log of many pods has few of them."""
    return None if text is None else sys.intern(text)


def _end_s(pod: Any, times: Moments) -> float | None:
    """The last end of a container, None if none is stated."""
    statuses = member(pod, "status", "containerStatuses")
    ends = [
        time_of(times, status, "state", "terminated", "finishedAt")
        for status in (statuses if isinstance(statuses, list) else [])
    ]
    return max((end for end in ends if end is not None), default=None)


def _most_at_once(spans: list[tuple[float, float, int]]) -> int:
    """The most GPUs that (start, end, GPUs) hold at one time."""
    changes = sorted([(end, -gpus) for _, end, gpus in spans] + [(start, gpus) for start, _, gpus in spans])
    held, peak = 0, 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


_FORM = RecordsOfJobs(
    format="kubernetes-pods",
    entries=items,
    gather=partial(_jobs, resources=GpuResources()),
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
    form = replace(_FORM, gather=partial(_jobs, resources=GpuResources(options.gpu_resources)))
    return read_records(source, form, options)


PODS = LogFormat("kubernetes-pods", "pods of Kubernetes, as kubectl -o json prints them", _matches, _read)
