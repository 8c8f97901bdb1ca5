"""Philly's job log, `cluster_job_log` (Jeon et al., USENIX ATC 2019): a JSON list of jobs with attempts.

`{status, vc, jobid, user, submitted_time, attempts: [{start_time, end_time, detail: [{ip, gpus: [...]}]}]}`.
Dates have no offset; a time may be null or "None". The GPUs of an attempt are those of its detail together.
A job that was preempted or failed has several attempts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from itertime.errors import TableError, UnknownName
from itertime.io import shown
from traces.logs.cells import MixedColumnError, Moments, of_dates, text, time_zone
from traces.logs.json_entries import json_entries
from traces.logs.log import Log, LogRows, OnNode, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.units import StatedUnits
from traces.native import COLUMNS

__all__ = ["PHILLY"]

_TENANTS = ("vc", "user")
_ASSUMPTIONS = (
    "the GPUs of a job are those of its last attempt with start, end and GPUs; its run time is the "
    "GPU-seconds of all such attempts, divided by these GPUs",
    "the waits between attempts are no run time",
    "every job is taken to want all of its logged run time, however it ended",
)


def _matches(head: Head) -> bool:
    return head.text.lstrip().startswith("[") and '"attempts"' in head.text and '"jobid"' in head.text


def _read(source: LogSource, options: ReadOptions) -> Log:
    tenant = options.tenant or _TENANTS[0]
    if tenant not in _TENANTS:
        raise UnknownName("tenant of a Philly log", tenant, _TENANTS)
    zone = time_zone(options.time_zone)
    times = Moments(StatedUnits.parse(options.time_unit).every or "s", zone)
    rows = LogRows(source.path)
    for line, entry in json_entries(source):
        try:
            rows.add(line, _values(entry, tenant, times))
        except ValueError as error:
            job_id = entry.get("jobid") if isinstance(entry, dict) else None
            rows.drop(line, job_id if isinstance(job_id, str) else "", error.args[0], error.args[-1])
        except MixedColumnError as error:
            raise TableError(f"{source.path}:{line}: {error}") from None
    return rows.finish(
        Log(
            format="philly",
            columns=("jobid", "submitted_time", "attempts", "status", "user", tenant),
            states_deadlines=False,
            assumptions=(*_ASSUMPTIONS, f"the tenant is {tenant}", *of_dates([times], options.time_zone)),
            times=("submitted_time, start_time, end_time: dates",),
        )
    )


def _values(entry: Any, tenant: str, times: Moments) -> dict[str, Any]:
    """What `LogRows.add` takes. Raises ValueError (reason, kind of reason) for an entry without a job."""
    if not isinstance(entry, dict):
        raise ValueError("is not a job: a job is a JSON object")
    attempts = entry.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        raise ValueError("has no attempt: the job never ran")
    ran = [span for attempt in attempts if (span := _attempt(attempt, times))]
    if not ran:
        raise ValueError("no attempt states start, end and GPUs")
    submit_s = _time(entry.get("submitted_time"), "submitted_time", times)
    if submit_s is None:
        raise ValueError("submitted_time is empty")
    gpus = ran[-1].gpus
    gpu_seconds = sum((run.end_s - run.start_s) * run.gpus for run in ran)
    values = {
        "job_id": _text(entry, "jobid"),
        "submit_s": submit_s,
        "gpus": COLUMNS["gpus"](str(gpus)),
        "duration_s": gpu_seconds / gpus,
        "logged_start_s": min(run.start_s for run in ran),
        "logged_end_s": max(run.end_s for run in ran),
        "spans": tuple(OnNode(ip, run.start_s, run.end_s, n) for run in ran for ip, n in run.nodes),
        "tenant": _text(entry, tenant),
        "user": _text(entry, "user"),
        "state": _text(entry, "status"),
    }
    return {name: value for name, value in values.items() if value is not None}


class _LoggedAttempt(NamedTuple):
    """An attempt to run a job; `nodes`: machines by address, and GPUs of each."""

    start_s: float
    end_s: float
    gpus: int
    nodes: tuple[tuple[str, int], ...]


def _attempt(attempt: Any, times: Moments) -> _LoggedAttempt | None:
    """An attempt that states start, end and GPUs, else None."""
    if not isinstance(attempt, dict):
        return None
    start_s = _time(attempt.get("start_time"), "start_time", times)
    end_s = _time(attempt.get("end_time"), "end_time", times)
    detail = attempt.get("detail")
    nodes = [node for node in detail if isinstance(node, dict)] if isinstance(detail, list) else []
    held = [(node.get("ip"), len(gpus)) for node in nodes if isinstance(gpus := node.get("gpus"), list)]
    total = sum(count for _, count in held)
    if start_s is None or end_s is None or end_s <= start_s or not total:
        return None
    node_gpus = tuple((ip, count) for ip, count in held if isinstance(ip, str) and ip and count)
    return _LoggedAttempt(start_s, end_s, total, node_gpus)


def _time(value: Any, name: str, times: Moments) -> float | None:
    if value is None or value in ("", "None"):
        return None
    try:
        return times(str(value))
    except ValueError as error:
        raise ValueError(f"{name}={shown(value)}: {error}", f"{name}: {error}") from None


def _text(entry: dict[str, Any], name: str) -> str | None:
    value = entry.get(name)
    if value is None or value == "":
        return None
    try:
        return text(str(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


PHILLY = LogFormat("philly", "Philly's cluster_job_log (JSON), from Microsoft", _matches, _read)
