"""Kueue's workloads: `kubectl get workloads -A -o json`.

Schema: `Workload` of kueue.sigs.k8s.io/docs/reference/kueue.v1beta1. `spec` holds `queueName`, `priority`,
`active`, `maximumExecutionTimeSeconds` and `podSets` (`count`, `minCount`, `template`). `status` holds the
conditions `QuotaReserved`, `Admitted`, `Evicted`, `Finished`, each with `lastTransitionTime`, and `admission`
(`clusterQueue`, `podSetAssignments` with `flavors` and `resourceUsage` of all pods of a set).

A workload that was evicted (`Evicted`) waits again from the time of `Requeued`. It keeps its place by its
creation, but after `PodsReadyTimeout` it goes by its eviction (the strategy `Eviction` of
`requeuingStrategy`, which is the default). Its runs before that are known where
`accumulatedPastExecutionTimeSeconds` is stated. One that has finished keeps the condition `Admitted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from traces.attempts import Attempt
from traces.logs.cells import Moments
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, member, read_records, text_of
from traces.logs.source import Head, LogSource
from traces.native import COLUMNS, whole

from .kubernetes import (
    GpuResources,
    conditions,
    is_first_object,
    items,
    items_of,
    name_of,
    time_of,
)

__all__ = ["KUEUE"]

_States = dict[Any, Mapping[str, Any]]


def _matches(head: Head) -> bool:
    return is_first_object(head, "kueue.x-k8s.io", ["Workload"])


def _values(entry: Any, tenant: str, times: Moments, *, resources: GpuResources) -> Iterator[Row]:
    work = items_of(entry, "Workload")
    submit_s = time_of(times, work, "metadata", "creationTimestamp")
    if submit_s is None:
        raise ValueError("has no creationTimestamp")
    gpus, min_gpus, part = _requested(work, resources)
    held, gpu_type = _admitted(work, resources)
    states = conditions(work)
    again = _queued_again(work, states, times)
    start_s = _since(states, times, "Admitted") or _since(states, times, "QuotaReserved")
    end_s = _since(states, times, "Finished")
    if end_s is not None and (start_s is None or end_s <= start_s):
        raise ValueError("finished without having been admitted")
    cluster_queue = text_of(work, "status", "admission", "clusterQueue")
    owners = {
        "queueName": text_of(work, "spec", "queueName"),
        "clusterQueue": cluster_queue,
        "namespace": text_of(work, "metadata", "namespace"),
    }
    limit = member(work, "spec", "maximumExecutionTimeSeconds")
    priority = member(work, "spec", "priority")
    yield {
        "job_id": name_of(work),
        "submit_s": again.since_s if again.at_the_end else submit_s,
        "eligible_s": again.since_s,
        "attempts": again.runs,
        "gpus": COLUMNS["gpus"](str(held or gpus)),
        "min_gpus": min_gpus,
        "gpu_type": gpu_type,
        "part_of_gpu": part,
        "duration_s": None if end_s is None or start_s is None else end_s - start_s,
        "logged_start_s": start_s,
        "logged_end_s": end_s,
        "estimate_s": None if limit is None else COLUMNS["estimate_s"](str(limit)),
        "priority": None if priority is None else COLUMNS["priority"](str(priority)),
        "tenant": owners[tenant],
        "partition": cluster_queue,
        "state": _state(work, states, start_s, end_s),
        "reason": None if start_s is not None else text_of(states.get("QuotaReserved"), "message"),
    }


class _QueuedAgain(NamedTuple):
    """A workload that was evicted waits from `since_s` on, None for any other; `at_the_end` of its queue, or
    in its old place. `runs`: what it did before and since, where the workload says how long it ran.
    """

    since_s: float | None = None
    at_the_end: bool = False
    runs: tuple[Attempt, ...] = ()


def _queued_again(work: Mapping[str, Any], states: _States, times: Moments) -> _QueuedAgain:
    evicted, requeued = states.get("Evicted", {}), states.get("Requeued", {})
    evicted_s = time_of(times, evicted, "lastTransitionTime") if evicted else None
    since_s = (time_of(times, requeued, "lastTransitionTime") if requeued else None) or evicted_s
    start_s, end_s = _since(states, times, "Admitted"), _since(states, times, "Finished")
    if since_s is None or evicted_s is None or (start_s is not None and start_s < evicted_s):
        return _QueuedAgain()
    reason = text_of(evicted, "reason") or "Evicted"
    ran_s = member(work, "status", "accumulatedPastExexcutionTimeSeconds")
    if ran_s is None:
        ran_s = member(work, "status", "accumulatedPastExecutionTimeSeconds")
    runs: tuple[Attempt, ...] = ()
    if isinstance(ran_s, int) and ran_s > 0 and start_s is not None and end_s is not None:
        word = "PREEMPTED" if reason == "Preempted" else "REQUEUED"
        runs = (Attempt(evicted_s - ran_s, evicted_s, word), Attempt(start_s, end_s, "COMPLETED"))
    return _QueuedAgain(since_s, start_s is None and reason == "PodsReadyTimeout", runs)


def _since(states: _States, times: Moments, kind: str) -> float | None:
    """When a condition became true; None if it is not."""
    state = states.get(kind)
    return time_of(times, state, "lastTransitionTime") if member(state, "status") == "True" else None


def _state(work: Mapping[str, Any], states: _States, start_s: float | None, end_s: float | None) -> str:
    if end_s is not None:
        return text_of(states.get("Finished"), "reason") or "Finished"
    if start_s is not None:
        return "Admitted"
    return "Inactive" if member(work, "spec", "active") is False else "Pending"


def _requested(work: Mapping[str, Any], resources: GpuResources) -> tuple[int, int | None, bool]:
    """GPUs of all pods, the least number if some may be left out, and whether slices are among them."""
    total, min_gpus, part = 0, 0, False
    pod_sets = member(work, "spec", "podSets")
    for pods in pod_sets if isinstance(pod_sets, list) else []:
        of_pod, sliced = resources.of_pod(member(pods, "template", "spec"))
        count = _count(pods, "count", 1)
        total += of_pod * count
        min_gpus += of_pod * min(count, _count(pods, "minCount", count))
        part = part or sliced
    if total < 1:
        raise ValueError("asks for no GPU")
    return total, min_gpus if 0 < min_gpus < total else None, part


def _count(pods: Any, name: str, unstated: int) -> int:
    number = member(pods, name)
    count = unstated if number is None else whole(str(number))
    if count < 0:
        raise ValueError(f"{name}: must not be negative")
    return count


def _admitted(work: Mapping[str, Any], resources: GpuResources) -> tuple[int, str | None]:
    """GPUs that were assigned, 0 if none were, and their flavor if there is exactly one."""
    assigned = member(work, "status", "admission", "podSetAssignments")
    total, flavors = 0, dict[str, None]()
    for pods in assigned if isinstance(assigned, list) else []:
        total += resources.held(member(pods, "resourceUsage"))[0]
        pod_flavors = member(pods, "flavors")
        for resource, flavor in pod_flavors.items() if isinstance(pod_flavors, dict) else ():
            if resources.is_gpu(resource):
                flavors[str(flavor)] = None
    return total, next(iter(flavors)) if len(flavors) == 1 else None


_FORM = RecordsOfJobs(
    format="kueue",
    entries=items,
    values=partial(_values, resources=GpuResources()),
    name=name_of,
    columns=("metadata", "spec", "status"),
    tenants=("queueName", "clusterQueue", "namespace"),
    assumptions=(
        "the submission is the creation, the start the time of the condition Admitted, the end that of "
        "Finished; of a workload that was evicted and admitted again, the last admission, and it waits from "
        "its eviction",
        "the GPUs are those assigned, or before the admission those that all pods request",
        "the estimate is maximumExecutionTimeSeconds, the partition the cluster queue, the GPU type the "
        "flavor",
        "the run times of workloads that have not finished are not known",
    ),
    times=("creationTimestamp, lastTransitionTime: dates; maximumExecutionTimeSeconds in s",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    form = replace(_FORM, values=partial(_values, resources=GpuResources(options.gpu_resources)))
    return read_records(source, form, options)


KUEUE = LogFormat("kueue", "Kueue's workloads, as kubectl -o json prints them", _matches, _read)
