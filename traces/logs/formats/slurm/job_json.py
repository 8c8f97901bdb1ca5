"""Slurm's jobs as JSON (21.08 and later): `squeue --json`, `scontrol show job --json` and `sacct --json`.

Schema: `job_info` and, of sacct, `job` of slurm.schedmd.com/rest_api.html. `jobs` is a list of objects. Of a
live job are used `job_id, array_job_id, array_task_id, array_task_string, array_max_tasks, het_job_id,
het_job_offset, job_state, account, user_name, partition, qos, priority, nice, state_reason, dependency, name,
cluster, nodes, submit_time, eligible_time, start_time, end_time, time_limit, tres_alloc_str, tres_req_str,
tres_per_job, tres_per_node, tres_per_task, tres_per_socket, gres_detail, node_count, tasks, resv_name,
restart_cnt`. Times are seconds since 1970, limits minutes. A number may be an object `{set, infinite,
number}`, the state a list of a state and its flags.

Of a job of sacct are used `job_id, account, user, partition, qos, priority, name, cluster, nodes,
allocation_nodes, submit_line`, `array` (`job_id, task_id, task, limits`), `het`, `state` (`current, reason`),
`time` (`submission, eligible, start, end, elapsed, suspended, limit`), `reservation` and `tres` (`allocated,
requested`: lists of `{type, name, count}`, GPUs being of type gres and of name gpu or gpu:TYPE). A job has an
object for each run.
"""

from __future__ import annotations

from typing import Any

from traces.logs.json_entries import json_entries
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.records import member, text_of
from traces.logs.source import Head, LogSource

from .stated import SlurmExport, StatedJob, read_export

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


def _job(entry: Any) -> StatedJob:
    if not isinstance(entry, dict):
        raise ValueError("is not a job: a job is a JSON object")
    return _of_accounting(entry) if isinstance(entry.get("time"), dict) else _live(entry)


def _live(entry: Any) -> StatedJob:
    tres = (text_of(entry, key) or "" for key in ("tres_alloc_str", "tres_req_str"))
    details = member(entry, "gres_detail")
    units = {unit: text_of(entry, f"tres_per_{unit}") or "" for unit in ("job", "node", "task", "socket")}
    return StatedJob(
        job_id=_job_id(entry),
        raw_id=_raw_id(entry),
        state=_state(entry, "job_state"),
        submit=_number(entry, "submit_time"),
        eligible=_number(entry, "eligible_time"),
        start=_number(entry, "start_time"),
        end=_number(entry, "end_time"),
        limit=_number(entry, "time_limit"),
        tres=next((text for text in tres if "gres/" in text), ""),
        gres={"detail": ",".join(map(str, details)) if isinstance(details, list) else "", **units},
        nodes=_number(entry, "node_count"),
        tasks=_number(entry, "tasks"),
        node_names=text_of(entry, "nodes") or "",
        account=text_of(entry, "account") or "",
        user=text_of(entry, "user_name") or "",
        partition=text_of(entry, "partition") or "",
        qos=text_of(entry, "qos") or "",
        priority=_number(entry, "priority"),
        reason=text_of(entry, "state_reason") or "",
        name=text_of(entry, "name") or "",
        cluster=text_of(entry, "cluster") or "",
        array_limit=_number(entry, "array_max_tasks"),
        depends=text_of(entry, "dependency") or "",
        nice=_number(entry, "nice"),
        reservation=text_of(entry, "resv_name") or "",
        restarts=_number(entry, "restart_cnt"),
    )


def _of_accounting(entry: Any) -> StatedJob:
    elapsed_s = _number(entry, "time", "elapsed")
    nodes = text_of(entry, "nodes") or ""
    return StatedJob(
        job_id=_job_id(entry),
        raw_id=_raw_id(entry),
        state=_state(entry, "state", "current"),
        submit=_number(entry, "time", "submission"),
        eligible=_number(entry, "time", "eligible"),
        start=_number(entry, "time", "start"),
        end=_number(entry, "time", "end"),
        limit=_number(entry, "time", "limit"),
        elapsed=f"0:{elapsed_s}" if elapsed_s.isdigit() else "",
        suspended=_number(entry, "time", "suspended"),
        tres=_tres(entry, "allocated") or _tres(entry, "requested"),
        nodes=_number(entry, "allocation_nodes"),
        node_names=nodes,
        account=text_of(entry, "account") or "",
        user=text_of(entry, "user") or "",
        partition=text_of(entry, "partition") or "",
        qos=text_of(entry, "qos") or "",
        priority=_number(entry, "priority"),
        reason=_state(entry, "state", "reason"),
        name=text_of(entry, "name") or "",
        cluster=text_of(entry, "cluster") or "",
        array_limit=_number(entry, "array", "limits", "max", "running", "tasks"),
        submit_line=text_of(entry, "submit_line") or "",
        reservation=_reservation(entry),
        restarts=_number(entry, "restart_cnt"),
    )


def _tres(entry: Any, key: str) -> str:
    """The resources in a list, written as Slurm does; "" if there are no generic ones among them."""
    listed = member(entry, "tres", key)
    resources = listed if isinstance(listed, list) else []
    texts = [
        f"{_label(resource)}={_number(resource, 'count')}{'M' if member(resource, 'type') == 'mem' else ''}"
        for resource in resources
        if _number(resource, "count").isdigit()
    ]
    return ",".join(texts) if any(text.startswith("gres/") for text in texts) else ""


def _label(resource: Any) -> str:
    kind, name = member(resource, "type"), member(resource, "name")
    return f"{kind}/{name}" if name else str(kind)


def _reservation(entry: Any) -> str:
    name = member(entry, "reservation", "name")
    return name if isinstance(name, str) else ""


def _raw_id(entry: Any) -> str:
    """The number of a task or a component; "" where it is the id."""
    number = text_of(entry, "job_id") or ""
    return "" if number == _job_id(entry) else number


def _job_id(entry: Any) -> str:
    """The id that users see."""
    array = _number(entry, "array_job_id") or _number(entry, "array", "job_id")
    task = _number(entry, "array_task_id") or _number(entry, "array", "task_id")
    tasks = text_of(entry, "array_task_string") or text_of(entry, "array", "task")
    if array not in ("", "0") and tasks:
        return f"{array}_[{tasks}]"
    if array not in ("", "0") and task:
        return f"{array}_{task}"
    component = _number(entry, "het_job_id") or _number(entry, "het", "job_id")
    if component not in ("", "0"):
        offset = _number(entry, "het_job_offset") or _number(entry, "het", "job_offset")
        return f"{component}+{offset or 0}"
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


_FORM = SlurmExport(
    format="slurm-json",
    entries=lambda source: json_entries(source, "jobs"),
    job=_job,
    name=_job_id,
    columns=_KEYS,
    times=("submit_time, eligible_time, start_time, end_time in s since 1970; time_limit in min",),
)


def _read(source: LogSource, options: ReadOptions) -> Log:
    return read_export(source, _FORM, options)


SLURM_JSON = LogFormat(
    "slurm-json",
    "Slurm's jobs, as squeue --json, scontrol show job --json or sacct --json prints them",
    _matches,
    _read,
)
