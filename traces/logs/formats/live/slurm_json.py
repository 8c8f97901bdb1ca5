"""Slurm's jobs as JSON (21.08 and later): `squeue --json`, `scontrol show job --json` and `sacct --json`.

Schema: `job_info` and, of sacct, `job` of slurm.schedmd.com/rest_api.html. `jobs` is a list of objects. Of a
live job are used `job_id,
array_job_id, array_task_id, array_task_string, job_state, account, user_name, partition, qos, priority,
state_reason, submit_time, start_time, end_time, time_limit, tres_alloc_str, tres_req_str, tres_per_node,
node_count`. Times are seconds since 1970, limits minutes. A number may be an object `{set, infinite,
number}`, the state a list of a state and its flags.

Of a job of sacct are used `job_id, account, user, partition, qos, priority`, `array` (`job_id, task_id,
task`), `state` (`current, reason`), `time` (`submission, start, end, limit`) and `tres` (`allocated,
requested`: lists of `{type, name, count}`, GPUs being of type gres and of name gpu or gpu:TYPE).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.logs.cells import Moments
from traces.logs.json_entries import json_entries
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, member, read_records, text_of
from traces.logs.source import Head, LogSource

from .slurm_jobs import ASSUMPTIONS, TENANTS, SlurmJob

__all__ = ["SLURM_JSON"]

_KEYS = (
    "job_id", "array_job_id", "array_task_id", "array_task_string", "job_state", "account", "user_name",
    "partition", "qos", "priority", "state_reason", "submit_time", "start_time", "end_time", "time_limit",
    "tres_alloc_str", "tres_req_str", "tres_per_node", "node_count",
)  # fmt: skip


def _matches(head: Head) -> bool:
    is_object = head.text.lstrip().startswith("{")
    is_live, is_accounting = ('"job_state"' in head.text, '"submission"' in head.text)
    return is_object and '"jobs"' in head.text and (is_live or is_accounting)


def _values(entry: Any, tenant: str, times: Moments) -> Iterator[Row]:
    if not isinstance(entry, dict):
        raise ValueError("is not a job: a job is a JSON object")
    job = _of_accounting(entry) if isinstance(entry.get("time"), dict) else _live(entry)
    return job.rows(tenant, times)


def _live(entry: Any) -> SlurmJob:
    tres = (text_of(entry, key) or "" for key in ("tres_alloc_str", "tres_req_str"))
    return SlurmJob(
        job_id=_job_id(entry),
        state=_state(entry, "job_state"),
        submit=_number(entry, "submit_time"),
        start=_number(entry, "start_time"),
        end=_number(entry, "end_time"),
        limit=_number(entry, "time_limit"),
        tres=next((text for text in tres if "gres/gpu" in text), ""),
        gres=text_of(entry, "tres_per_node") or "",
        nodes=_number(entry, "node_count"),
        account=text_of(entry, "account") or "",
        user=text_of(entry, "user_name") or "",
        partition=text_of(entry, "partition") or "",
        qos=text_of(entry, "qos") or "",
        priority=_number(entry, "priority"),
        reason=text_of(entry, "state_reason") or "",
    )


def _of_accounting(entry: Any) -> SlurmJob:
    return SlurmJob(
        job_id=_job_id(entry),
        state=_state(entry, "state", "current"),
        submit=_number(entry, "time", "submission"),
        start=_number(entry, "time", "start"),
        end=_number(entry, "time", "end"),
        limit=_number(entry, "time", "limit"),
        tres=_tres(entry, "allocated") or _tres(entry, "requested"),
        account=text_of(entry, "account") or "",
        user=text_of(entry, "user") or "",
        partition=text_of(entry, "partition") or "",
        qos=text_of(entry, "qos") or "",
        priority=_number(entry, "priority"),
        reason=text_of(entry, "state", "reason") or "",
    )


def _tres(entry: Any, key: str) -> str:
    """The GPUs in a list of trackable resources, written as Slurm does; "" if there are none."""
    listed = member(entry, "tres", key)
    gpus = [
        f"gres/{name}={_number(resource, 'count')}"
        for resource in (listed if isinstance(listed, list) else [])
        if member(resource, "type") == "gres"
        and str(name := member(resource, "name")).partition(":")[0] == "gpu"
    ]
    return ",".join(gpus)


def _job_id(entry: Any) -> str:
    array = _number(entry, "array_job_id") or _number(entry, "array", "job_id")
    task = _number(entry, "array_task_id") or _number(entry, "array", "task_id")
    tasks = text_of(entry, "array_task_string") or text_of(entry, "array", "task")
    if array not in ("", "0") and tasks:
        return f"{array}_[{tasks}]"
    if array not in ("", "0") and task:
        return f"{array}_{task}"
    job_id = text_of(entry, "job_id")
    if job_id is None:
        raise ValueError("states no job_id")
    return job_id


def _state(entry: Any, *path: str) -> str:
    state = member(entry, *path)
    return str(state[0]) if isinstance(state, list) and state else text_of(entry, *path) or ""


def _number(entry: Any, *path: str) -> str:
    """A number as text, "" if it is not set or has no limit."""
    value = member(entry, *path)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return "" if value is None or isinstance(value, bool | dict | list) else str(value)


_FORM = RecordsOfJobs(
    format="slurm-json",
    entries=lambda source: json_entries(source, "jobs"),
    values=_values,
    name=_job_id,
    columns=_KEYS,
    tenants=TENANTS,
    assumptions=ASSUMPTIONS,
    times=("submit_time, start_time, end_time in s since 1970; time_limit in min",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_records(source, _FORM, options)


SLURM_JSON = LogFormat(
    "slurm-json",
    "Slurm's live jobs, as squeue --json or scontrol show job --json prints them",
    _matches,
    _read,
)
