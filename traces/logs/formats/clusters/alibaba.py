"""Logs of Alibaba's clusters that are one table: pods of 2023, and inference services of 2025.

openb (Weng et al., USENIX ATC 2023), pods on nodes of several GPU models: `name, cpu_milli, memory_mib,
num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time, scheduled_time`. Times are seconds
since the log's start; an empty time did not happen. `gpu_milli` is the share of each GPU in thousandths,
`gpu_spec` the models that the pod may have, separated by `|`. Pods with `num_gpu` 0 use CPUs only. The
gpushare and gpuspec variants have other shares of pods with a part of a GPU or a demand for a model. The
multigpu variants state no times: they are lists of pods to pack, not logs.

DLRM, instances of services that recommend (`cluster-trace-gpu-v2025`): `instance_sn, role, app_name,
cpu_request, ..., gpu_request, ..., max_instance_per_node, creation_time, scheduled_time, deletion_time`.
Times are seconds since the log's start. An empty creation lies before the log, an empty deletion after it.
Instances of role `CN` have no GPUs, those of role `HN` have one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from itertime.errors import TableError
from traces.logs.cells import LogColumn, moment, text
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat, has_columns
from traces.logs.source import LogSource
from traces.logs.tables import TableOfJobs, read_table
from traces.logs.units import StatedUnits
from traces.native import COLUMNS, number

__all__ = ["DLRM", "OPENB"]

_WHOLE_GPU = 1000  # of `gpu_milli`
_MIB = 1 << 20  # bytes
_TIMES = ("creation_time", "scheduled_time", "deletion_time")


def _share(values: dict[str, Any]) -> None:
    """The part of the GPUs that a pod holds, and the model that it demands, if there is only one."""
    milli, models = values.pop("gpu_milli"), values.pop("gpu_spec", "")
    if 0 < milli < _WHOLE_GPU:
        values["part_of_gpu"] = True
        values["held_gpus"] = values["gpus"] * milli / _WHOLE_GPU
    if models and "|" not in models:
        values["gpu_type"] = models


def _thousandths(cell: str) -> float:
    return float(COLUMNS["cpus"](repr(number(cell) / 1000)))


def _gb_of_mib(cell: str) -> float:
    return float(COLUMNS["host_memory_gb"](repr(number(cell) * _MIB / 1e9)))


_OPENB = TableOfJobs(
    format="openb",
    cells={
        "job_id": LogColumn("name"),
        "gpus": LogColumn("num_gpu"),
        "gpu_milli": LogColumn("gpu_milli", number),
        "gpu_spec": LogColumn("gpu_spec", text, optional=True),
        "submit_s": LogColumn("creation_time"),
        "start_s": LogColumn("scheduled_time", if_empty="the pod was never scheduled"),
        "end_s": LogColumn("deletion_time", if_empty="the pod was not deleted"),
        "state": LogColumn("pod_phase", optional=True),
        "qos": LogColumn("qos", optional=True),
    },
    assumptions=(
        "the run time on num_gpu GPUs is deletion_time - scheduled_time, whatever the phase",
        "a demand for one of several GPU models (gpu_spec with |) is left out",
        "every pod is taken to want all of its logged run time",
        "the log names no tenants: all jobs belong to the tenant 'default'",
    ),
    unit=("s", "the unit of openb"),
    derive=_share,
    host=(
        {
            "cpus": LogColumn("cpu_milli", _thousandths, optional=True, empty=("0",)),
            "host_memory_gb": LogColumn("memory_mib", _gb_of_mib, optional=True, empty=("0",)),
        },
        "the cores are cpu_milli / 1000, the host memory is memory_mib, of the pod",
    ),
)


def _read_pods(source: LogSource, options: ReadOptions) -> Log:
    columns = source.head.columns
    if columns and not set(_TIMES) & set(columns):
        problem = "states no times: a list of pods to pack, not a log of jobs"
        raise TableError(f"{source.path}:1: {problem}; openb's lists with creation_time are logs")
    return read_table(source, _OPENB, options)


def _last_s(source: LogSource, unit: str) -> float:
    """The last time that the log states."""
    last_s = 0.0
    with source.table() as table:
        places = [index for index, name in enumerate(table.columns) if name in _TIMES]
        for _, row in table.rows:
            for index in places:
                try:
                    last_s = max(last_s, moment(row[index], unit))
                except (ValueError, IndexError):
                    continue  # says the reading of the row
    return last_s


def _read_instances(source: LogSource, options: ReadOptions) -> Log:
    last_s = _last_s(source, StatedUnits.parse(options.time_unit).every or "s")
    cut = Counter[str]()

    def within_the_log(values: dict[str, Any]) -> None:
        older, lasting = "submit_s" not in values, "end_s" not in values
        if not older and "start_s" not in values:
            raise ValueError("scheduled_time is empty: the instance was never scheduled")
        values.setdefault("submit_s", 0.0)
        values.setdefault("start_s", values["submit_s"])
        values.setdefault("end_s", last_s)
        if options.services:
            values["service"] = values.get("tenant") or "service"
        if values["end_s"] > values["start_s"]:
            cut["older"] += older
            cut["lasting"] += lasting

    form = TableOfJobs(
        format="dlrm",
        cells={
            "job_id": LogColumn("instance_sn"),
            "gpus": LogColumn("gpu_request"),
            "tenant": LogColumn("app_name", optional=True),
            "partition": LogColumn("role", optional=True),
            "submit_s": LogColumn("creation_time", optional=True),
            "start_s": LogColumn("scheduled_time", optional=True),
            "end_s": LogColumn("deletion_time", optional=True),
        },
        assumptions=(
            "an instance is a job on gpu_request GPUs; its run time is deletion_time - scheduled_time",
            "the tenant is the service (app_name), the partition the role",
        ),
        unit=("s", "the unit of this log"),
        derive=within_the_log,
    )
    log = read_table(source, form, options)
    saw = "the run times of these are what the log saw"
    notes = {
        "older": f"instances are older than the log and count from its start, 0 s: {saw}",
        "lasting": f"instances outlast the log and count to its last time, {last_s:.15g} s: {saw}",
    }
    notes_used = [f"{cut[name]:,} {note}" for name, note in notes.items() if cut[name]]
    return replace(log, assumptions=(*log.assumptions, *notes_used), warnings=(*log.warnings, *notes_used))


OPENB = LogFormat(
    "openb",
    "Alibaba's pods of 2023 (openb)",
    has_columns(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]),
    _read_pods,
)

DLRM = LogFormat(
    "dlrm",
    "Alibaba's instances of recommendation services of 2025 (DLRM)",
    has_columns(["instance_sn", "role", "app_name", "gpu_request", *_TIMES]),
    _read_instances,
)
