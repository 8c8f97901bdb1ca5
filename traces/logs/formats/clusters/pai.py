"""Alibaba PAI's log of 2020 (Weng et al., NSDI 2022): a folder of tables without headers, joined.

| table | columns |
|---|---|
| jobs | `job_name, inst_id, user, status, start_time, end_time` |
| tasks | `job_name, task_name, inst_num, status`, times as above, `plan_cpu, plan_mem, plan_gpu, gpu_type` |
| instances | `job_name, task_name, inst_name, worker_name, inst_id, status`, times as above, `machine` |
| groups | `inst_id, user, gpu_type_spec, group, workload` |

The tables of jobs and tasks are needed, the others are used if they are there. Tables are known by their
headers, by their names (`pai_group_tag_table.csv`) or by the first row. Times are seconds since an unknown
date. A job's `start_time` is its submission. `plan_gpu` is hundredths of a GPU for each of the `inst_num`
instances of a task, empty for a task without GPUs; `plan_cpu` and `plan_mem` are hundredths of a core and
gigabytes of each. `gpu_type_spec` is the type that the job demands, empty if
it takes any.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import ceil
from typing import Any

from itertime.errors import TableError
from itertime.io import TextLayout
from traces.logs.cells import LogColumn, is_number, moment, text
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogFolder, LogSource
from traces.logs.tables import TableOfJobs, read_table
from traces.logs.units import StatedUnits
from traces.native import COLUMNS, number

__all__ = ["PAI"]

_TABLES: dict[str, tuple[str, ...]] = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
        "plan_gpu", "gpu_type",
    ),
    "instance": (
        "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time",
        "machine",
    ),
    "group": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}  # fmt: skip
_STATUSES = frozenset(("Terminated", "Failed", "Running", "Waiting", "Ready", "Interrupted", "Stopped"))
_HEADERS = ".header"  # the published headers, which state nothing that is not stated here
_ROUNDING = 1e-9  # of sums of hundredths of GPUs


def _kind(name: str, head: Head) -> str | None:
    """Which table of the log a file is, if any."""
    head_columns = head.columns
    if name.endswith(_HEADERS):
        return None
    for kind, columns in _TABLES.items():
        if head_columns == columns:
            return kind
        if len(head_columns) != len(columns):
            continue
        if f"pai_{kind}_" in name:
            return kind
        if kind == "group":
            continue
        start = columns.index("start_time")
        if head_columns[columns.index("status")] in _STATUSES and (
            not head_columns[start] or is_number(head_columns[start])
        ):
            return kind
    return None


def _matches(head: Head) -> bool:
    if head.files:
        return {"job", "task"} <= {_kind(name, file_head) for name, file_head in head.files.items()}
    return _kind("", head) in ("job", "task", "instance")


class _InstanceNeeds:
    """What the tasks of one job need and when they ran: those with GPUs."""

    __slots__ = ("cpus", "end_s", "hundredths", "memory_gb", "of_instances", "start_s", "tasks", "wrong")

    def __init__(self) -> None:
        self.hundredths = self.cpus = self.memory_gb = 0.0
        self.tasks: tuple[str, ...] = ()
        self.start_s: float | None = None
        self.end_s: float | None = None
        self.of_instances = False
        self.wrong = ""

    def ran(self, start_s: float | None, end_s: float | None) -> None:
        if start_s is None or end_s is None:
            return
        self.start_s = start_s if self.start_s is None else min(start_s, self.start_s)
        self.end_s = end_s if self.end_s is None else max(end_s, self.end_s)

    def ran_as_instance(self, start_s: float | None, end_s: float | None) -> None:
        """The times of instances count, not those of tasks."""
        if start_s is None or end_s is None:
            return
        if not self.of_instances:
            self.of_instances, self.start_s, self.end_s = True, None, None
        self.ran(start_s, end_s)


class _Reader:
    """Reads the tables of a folder other than that of jobs, then gives each job what they say of it."""

    def __init__(self, folder: LogFolder, options: ReadOptions):
        self.tables = _found(folder)
        self._host = options.host
        self._unit = StatedUnits.parse(options.time_unit).every or "s"
        self._needs: dict[str, _InstanceNeeds] = {}
        self._types: dict[str, str] = {}
        self.unreadable = 0
        for row in self._rows("task"):
            self._add_task(row)
        for row in self._rows("instance"):
            needs = self._needs.get(row[0])
            if needs is not None and row[1] in needs.tasks:
                needs.ran_as_instance(*self._times(row[6], row[7]))
        for row in self._rows("group"):
            if row[2].strip():
                self._types[row[0]] = sys.intern(row[2])

    def _rows(self, kind: str) -> Any:
        if kind not in self.tables:
            return
        source, columns = self.tables[kind], _TABLES[kind]
        with source.table(_layout(source, kind)) as table:
            for _, row in table.rows:
                if len(row) == len(columns):
                    yield row
                else:
                    self.unreadable += 1

    def _add_task(self, row: list[str]) -> None:
        if not row[8].strip():
            return
        needs = self._needs.setdefault(row[0], _InstanceNeeds())
        try:
            instance_gpus, instances = number(row[8]), number(row[2])
            if instance_gpus < 0 or instances < 0:
                raise ValueError("must not be negative")
        except ValueError as error:
            needs.wrong = f"plan_gpu or inst_num of a task {error}"
            return
        if instance_gpus * instances > 0:
            needs.hundredths += instance_gpus * instances
            if self._host:
                needs.cpus += _amount(row[6]) * instances / 100
                needs.memory_gb += _amount(row[7]) * instances
            needs.tasks = (*needs.tasks, sys.intern(row[1]))
            needs.ran(*self._times(row[4], row[5]))

    def _times(self, start: str, end: str) -> tuple[float | None, float | None]:
        try:
            return moment(start, self._unit), moment(end, self._unit)
        except ValueError:  # empty, for what did not start or had not ended, or no time
            return None, None

    def complete(self, values: dict[str, Any]) -> None:
        """Add to a job of the table of jobs what its tasks say. Raises ValueError if it ran on no GPUs."""
        needs = self._needs.get(values["job_id"])
        if needs is not None and needs.wrong:
            raise ValueError(needs.wrong)
        if needs is None or not needs.hundredths:
            raise ValueError("no task of the job has GPUs")
        if needs.start_s is None:
            raise ValueError("no task with GPUs states start and end: the job had not ended, or never ran")
        held = needs.hundredths / 100
        values["gpus"] = COLUMNS["gpus"](repr(ceil(held - _ROUNDING)))
        if abs(held - values["gpus"]) > _ROUNDING:
            values["part_of_gpu"], values["held_gpus"] = True, held
        values |= {"cpus": needs.cpus} if needs.cpus else {}
        values |= {"host_memory_gb": needs.memory_gb} if needs.memory_gb else {}
        values["start_s"], values["end_s"] = needs.start_s, needs.end_s
        if demanded := self._types.get(values.pop("inst_id", "")):
            values["gpu_type"] = text(demanded)


def _amount(cell: str) -> float:
    """An amount of a resource; 0 where the cell states none that can be used."""
    try:
        return max(0.0, number(cell))
    except ValueError:
        return 0.0


def _found(folder: LogFolder) -> dict[str, LogSource]:
    """Table -> the file that holds it. Raises TableError if two files hold the same one."""
    tables: dict[str, LogSource] = {}
    for name, head in (folder.head.files or {}).items():
        kind = _kind(name, head)
        if kind is None:
            continue
        if kind in tables:
            other_name = tables[kind].path.name
            raise TableError(f"{folder.path}: {other_name} and {name} both hold the {kind} table; keep one")
        tables[kind] = folder.member(name)
    if missing := [kind for kind in ("job", "task") if kind not in tables]:
        raise TableError(
            f"{folder.path}: holds no {missing[0]} table of Alibaba PAI: pai_{missing[0]}_table.csv"
        )
    return tables


def _layout(source: LogSource, kind: str) -> TextLayout:
    columns = _TABLES[kind]
    if source.head.columns == columns:
        return source.layout()
    return replace(source.layout(header=False), names=columns)


def _read(source: LogSource, options: ReadOptions) -> Log:
    if not isinstance(source, LogFolder):
        problem = "is one table of Alibaba PAI, whose jobs are joined from several"
        raise TableError(f"{source.path}:1: {problem}; give the folder that holds them")
    reader = _Reader(source, options)
    jobs = reader.tables["job"]
    by = "instances" if "instance" in reader.tables else "tasks"
    form = TableOfJobs(
        format="pai",
        cells={
            "job_id": LogColumn("job_name"),
            "submit_s": LogColumn("start_time", if_empty="the job was not submitted"),
            "inst_id": LogColumn("inst_id", text, optional=True),
            "tenant": LogColumn("user", optional=True),
            "user": LogColumn("user", optional=True),
            "state": LogColumn("status", optional=True),
        },
        assumptions=(
            f"tables of the folder that are used: {', '.join(sorted(reader.tables))}",
            "a job's start_time is its submission; its GPUs are the sum over tasks of inst_num x plan_gpu / "
            "100, rounded up",
            f"its run time is from the first start to the last end of the {by} of tasks with GPUs, on all of "
            "these GPUs",
            "every job is taken to want all of its logged run time, however it ended",
            "the tenant is the user"
            + ("; the GPU type is the one demanded (gpu_type_spec)" if "group" in reader.tables else ""),
        ),
        unit=("s", "the unit of Alibaba PAI's log"),
        derive=reader.complete,
        host=(
            {},
            "the cores are the sum over tasks with GPUs of inst_num x plan_cpu / 100, the host memory that "
            "of inst_num x plan_mem, in GB",
        ),
    )
    log = read_table(jobs, form, options, _layout(jobs, "job"))
    if not reader.unreadable:
        return log
    lost = f"{reader.unreadable:,} rows of the tables beside the jobs' have another number of cells"
    return replace(log, warnings=(*log.warnings, f"{lost}, and are left out"))


PAI = LogFormat("pai", "Alibaba PAI's tables of 2020, in a folder", _matches, _read)
