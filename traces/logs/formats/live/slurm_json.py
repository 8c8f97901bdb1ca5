"""Slurm's live jobs as JSON: `squeue --json` and `scontrol show job --json` (Slurm 21.08 and later).

Schema: `job_info` of slurm.schedmd.com/rest_api.html. `jobs` is a list of objects; used are `job_id,
array_job_id, array_task_id, array_task_string, job_state, account, user_name, partition, qos, priority,
state_reason, submit_time, start_time, end_time, time_limit, tres_alloc_str, tres_req_str, tres_per_node,
node_count`. Times are seconds since 1970, limits minutes. A number may be an object `{set, infinite,
number}`, the state a list of a state and its flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.logs.cells import Moments
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import RecordsOfJobs, Row, json_entries, member, read_records, text_of
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
    return is_object and '"job_state"' in head.text and '"jobs"' in head.text


def _values(entry: Any, tenant: str, times: Moments) -> Iterator[Row]:
    if not isinstance(entry, dict):
        raise ValueError("is not a job: a job is a JSON object")
    tres = (text_of(entry, key) or "" for key in ("tres_alloc_str", "tres_req_str"))
    job = SlurmJob(
        job_id=_job_id(entry),
        state=_state(entry),
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
    return job.rows(tenant, times)


def _job_id(entry: Any) -> str:
    array, task = _number(entry, "array_job_id"), _number(entry, "array_task_id")
    tasks = text_of(entry, "array_task_string")
    if array not in ("", "0") and tasks:
        return f"{array}_[{tasks}]"
    if array not in ("", "0") and task:
        return f"{array}_{task}"
    job_id = text_of(entry, "job_id")
    if job_id is None:
        raise ValueError("states no job_id")
    return job_id


def _state(entry: Any) -> str:
    state = member(entry, "job_state")
    return str(state[0]) if isinstance(state, list) and state else text_of(entry, "job_state") or ""


def _number(entry: Any, key: str) -> str:
    """A number as text, "" if it is not set or has no limit."""
    value = member(entry, key)
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
