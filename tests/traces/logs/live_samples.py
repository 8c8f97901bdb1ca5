"""What live systems say of one job, made up: of ten minutes on a GPU."""

import json
from typing import Any

from tests.tables import TABLES

SQUEUE = (
    "JOBID|ACCOUNT|USER|PARTITION|QOS|STATE|SUBMIT_TIME|START_TIME|END_TIME|TIME_LIMIT|NODES|"
    "TRES_PER_NODE|PRIORITY|REASON\n"
)
AT = "2024-05-01T12:00:0"


def scontrol(**changes: str) -> str:
    """A record of `scontrol show job`; `changes` by key."""
    pairs = TABLES["a job of scontrol"]
    lines = [f"{key}={value}" for key, value in (pairs | changes).items()]
    return "\n   ".join(lines) + "\n\n"


def slurm_job(**changes: Any) -> dict[str, Any]:
    """A job of `squeue --json`."""
    return TABLES["a job of squeue --json"] | changes


def slurm_json(*jobs: Any) -> str:
    return json.dumps({"meta": {"slurm": {"version": "23"}}, "jobs": list(jobs), "errors": []}, indent=1)


def at(time: str) -> str:
    return f"2024-05-01T{time}Z"


def kube_list(*objects: Any) -> str:
    """As `kubectl get -o json` prints objects: keys in alphabetical order."""
    return json.dumps({"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {}}, indent=4)


def pod_spec(gpus: int | str | None, **more: Any) -> dict[str, Any]:
    resources = {} if gpus is None else {"requests": {"cpu": "8", "nvidia.com/gpu": gpus}}
    return {"containers": [{"name": "main", "resources": resources}], **more}


def kube(version: str, kind: str, name: str, spec: Any, status: Any, **metadata: Any) -> dict[str, Any]:
    about = {"creationTimestamp": at("12:00:00"), "name": name, "namespace": "team"} | metadata
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec, "status": status}


def when(kind: str, time: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": at(time), **more}


def workload(name: str, *conditions: dict[str, str], gpus: int | None = 1, **spec: Any) -> dict[str, Any]:
    """A workload of Kueue."""
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": pod_spec(gpus)}}]
    asked = {"queueName": "q", "priority": 5, "podSets": pod_sets} | spec
    return kube("kueue.x-k8s.io/v1beta1", "Workload", name, asked, {"conditions": list(conditions)})


def pod(
    name: str, phase: str, times: tuple[str | None, str | None], gpus: int | None = 1, **metadata: Any
) -> dict[str, Any]:
    """A pod that was scheduled and ended at two times, or has not been or not yet."""
    scheduled, ended = times
    status: dict[str, Any] = {"phase": phase, "conditions": [], "containerStatuses": []}
    if scheduled:
        status["conditions"] = [when("Initialized", "11:00:00"), when("PodScheduled", scheduled)]
    else:
        status["conditions"] = [when("PodScheduled", "12:00:00", "False", message="0/4 nodes are available")]
    if ended:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": at(ended), "exitCode": 0}}}]
    return kube("v1", "Pod", name, pod_spec(gpus), status, **metadata)
