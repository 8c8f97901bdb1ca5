"""Slurm's accounting, as `sacct -a -X --parsable2` prints it (sacct(1), section "Job Accounting Fields").

Required columns: `JobIDRaw, Account, Submit, ElapsedRaw, AllocTRES, State`. Used where they are there:
`User`, `Start`, `End`, `TimelimitRaw` (minutes) or `Timelimit`, `Priority`, `Partition`, `QOS`, `ReqTRES`,
`NodeList`.
Dates have no offset; `Start` of a job that never started is `Unknown`, a limit may be `UNLIMITED` or
`Partition_Limit`.
"""

from __future__ import annotations

import re

from itertime.errors import TableError
from traces.logs.cells import LogColumn
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.tables import Cells, TableOfJobs, read_table
from traces.native import COLUMNS, whole

from .host_lists import host_list

__all__ = ["COMMAND", "SLURM", "cpus_of", "gpu_type_of", "gpus_of", "has_slices", "memory_gb_of"]

COMMAND = "sacct -a -X --parsable2 --format=JobIDRaw,Account,Submit,ElapsedRaw,AllocTRES,State"
"""The command that prints the expected log."""

_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([^,]*)")
_CPUS = re.compile(r"(?:^|,)cpu=([0-9]+)", re.ASCII)
_MEMORY = re.compile(r"(?:^|,)mem=([0-9]+(?:\.[0-9]+)?)([KMGTP]?)", re.ASCII)
_SLICE = re.compile(r"\dg\.\d+gb", re.ASCII | re.IGNORECASE)
_NEVER = ("Unknown", "None")
_NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID")


def gpus_of(text: str) -> int:
    """GPUs in a list of trackable resources: `gres/gpu`, or the sum over GPU types if only those are stated.

    >>> gpus_of("billing=64,cpu=64,gres/gpu:a100=6,gres/gpu:h100=2,node=1")
    8
    """
    matches = _GPUS.findall(text)
    if not matches:
        raise ValueError("names no gres/gpu: a job without GPUs")
    total = [count for gpu_type, count in matches if not gpu_type]
    return int(COLUMNS["gpus"](total[0] if total else str(sum(whole(count) for _, count in matches))))


def cpus_of(text: str) -> float | None:
    """The cores in a list of trackable resources; None if it names none.

    >>> cpus_of("billing=64,cpu=64,gres/gpu=8,mem=512G,node=1")
    64.0
    """
    match = _CPUS.search(text)
    return float(COLUMNS["cpus"](match[1])) if match and match[1] != "0" else None


def memory_gb_of(text: str) -> float | None:
    """The memory in a list of trackable resources, in GB of 1e9 bytes; None if it names none. Slurm's units
    are powers of 1024, and M where none is stated.

    >>> memory_gb_of("cpu=64,mem=512G,node=1"), memory_gb_of("cpu=1,mem=1000M")
    (549.755813888, 1.048576)
    """
    match = _MEMORY.search(text)
    if not match or not float(match[1]):
        return None
    gb = float(match[1]) * 1024 ** ("KMGTP".index(match[2] or "M") + 1) / 1e9
    return float(COLUMNS["host_memory_gb"](repr(gb)))


def gpu_type_of(text: str) -> str | None:
    """The GPU type in a list of trackable resources, if there is exactly one and it is no MIG slice.

    >>> gpu_type_of("cpu=64,gres/gpu=8,gres/gpu:a100=8,node=1")
    'a100'
    """
    types = [gpu_type[1:] for gpu_type, _ in _GPUS.findall(text) if gpu_type]
    return types[0] if len(types) == 1 and not _SLICE.search(types[0]) else None


def has_slices(text: str) -> bool:
    """Whether a list of trackable resources includes MIG slices, which are named like `1g.5gb`."""
    return any(_SLICE.search(gpu_type) for gpu_type, _ in _GPUS.findall(text))


def _job_id(text: str) -> str:
    """Parse the id of a job; the GPUs of a step (`17.batch`, `17.0`) are already counted with its job."""
    if "." in text:
        raise ValueError("is a step of a job; sacct -X leaves steps out")
    return str(COLUMNS["job_id"](text))


def _state(text: str) -> str:
    """Parse a state; `CANCELLED by 1000` becomes `CANCELLED`."""
    return str(COLUMNS["state"](text.split()[0]))


_CELLS: Cells = {
    "job_id": LogColumn("JobIDRaw", _job_id),
    "submit_s": LogColumn("Submit"),
    "duration_s": LogColumn("ElapsedRaw", unit="s"),
    "gpus": LogColumn("AllocTRES", gpus_of, instead="ReqTRES"),
    "part_of_gpu": LogColumn("AllocTRES", has_slices, instead="ReqTRES"),
    "gpu_type": LogColumn("AllocTRES", gpu_type_of, instead="ReqTRES", optional=True),
    "tenant": LogColumn("Account", optional=True),
    "state": LogColumn("State", _state, optional=True),
}
_FURTHER = (
    ("user", LogColumn("User", optional=True)),
    ("logged_start_s", LogColumn("Start", optional=True, empty=_NEVER)),
    ("logged_end_s", LogColumn("End", optional=True, empty=_NEVER)),
    ("estimate_s", LogColumn("TimelimitRaw", unit="min", optional=True, empty=_NO_LIMIT)),
    ("estimate_s", LogColumn("Timelimit", unit="min", optional=True, empty=_NO_LIMIT)),
    ("priority", LogColumn("Priority", optional=True)),
    ("partition", LogColumn("Partition", optional=True)),
    ("qos", LogColumn("QOS", optional=True)),
    ("node_names", LogColumn("NodeList", host_list, optional=True, empty=(*_NEVER, "None assigned"))),
)
_HOST = (
    {
        "cpus": LogColumn("AllocTRES", cpus_of, instead="ReqTRES", optional=True),
        "host_memory_gb": LogColumn("AllocTRES", memory_gb_of, instead="ReqTRES", optional=True),
    },
    "the cores and the host memory are cpu and mem of the trackable resources, of the whole job",
)
_ASSUMPTIONS = (
    "ElapsedRaw is the run time on the GPUs of AllocTRES; of a requeued job that of its last run",
    "every job is taken to want all of its logged run time, however it ended, and no more than it had so far "
    "where it was still running",
    "the tenant is the account, the priority Slurm's, the estimate the time limit; --tenant Partition or "
    "--tenant QOS makes tenants of these",
)


def _matches(head: Head) -> bool:
    """Whether a header is one of `sacct`, even if columns or `--parsable2` were missing."""
    header = "|".join(head.columns)
    return any(name in header for name in ("JobIDRaw", "ElapsedRaw", "AllocTRES", "ReqTRES"))


def _read(source: LogSource, options: ReadOptions) -> Log:
    columns = source.head.columns
    missing = [cell.column for cell in _CELLS.values() if cell.column not in columns]
    if missing or source.separator != "|":
        problem = (
            f"missing column {', '.join(dict.fromkeys(missing))}" if missing else "is not separated by |"
        )
        raise TableError(f"{source.path}:1: {problem}; print the log with {COMMAND}")
    cells = dict(_CELLS)
    for field, cell in _FURTHER:
        if cell.column in columns:
            cells.setdefault(field, cell)
    form = TableOfJobs("slurm", cells, _ASSUMPTIONS, unit=("s", "the unit of Slurm's accounting"), host=_HOST)
    return read_table(source, form, options)


SLURM = LogFormat("slurm", "Slurm's accounting, as sacct prints it", _matches, _read)
