"""Slurm's accounting, as `sacct -a -X --parsable2` prints it (sacct(1), section "Job Accounting Fields")."""

from __future__ import annotations

import re
from pathlib import Path

from itertime.errors import TableError
from traces.native import COLUMNS, whole

from .log import Fields, Log, Moments, column, moment
from .log import read_log as _read

__all__ = ["COMMAND", "matches", "read_log"]

COMMAND = "sacct -a -X --parsable2 --format=JobIDRaw,Account,Submit,ElapsedRaw,AllocTRES,State"
"""The command that prints the expected log; further columns are ignored."""

_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([^,]*)")
_SLICE = re.compile(r"\dg\.\d+gb", re.ASCII | re.IGNORECASE)


def gpus_of(text: str) -> int:
    """GPUs in a list of trackable resources: `gres/gpu`, or the sum over GPU types if only those are stated.

    >>> gpus_of("billing=64,cpu=64,gres/gpu:a100=6,gres/gpu:h100=2,node=1")
    8
    """
    found = _GPUS.findall(text)
    if not found:
        raise ValueError("names no gres/gpu: a job without GPUs")
    total = [count for gpu_type, count in found if not gpu_type]
    return int(COLUMNS["gpus"](total[0] if total else str(sum(whole(count) for _, count in found))))


def _has_slices(text: str) -> bool:
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


_FIELDS: Fields = {
    "job_id": ("JobIDRaw", _job_id),
    "submit_s": ("Submit", moment),
    "duration_s": column("ElapsedRaw", "duration_s"),
    "gpus": ("AllocTRES", gpus_of),
    "part_of_gpu": ("AllocTRES", _has_slices),
    "tenant": column("Account", "tenant"),
    "state": ("State", _state),
}
_ASSUMPTIONS = (
    "ElapsedRaw is the run time on the GPUs of AllocTRES; of a requeued job that of its last run",
    "times of day are taken as UTC: where clocks change twice a year, an hour is off for half of it",
    "every job is taken to want all of its logged run time, however it ended, and no more than it had so far "
    "where it was still running",
    "the tenant is the account",
)


def matches(columns: list[str]) -> bool:
    """Whether a header, read as CSV, is one of `sacct`, even if columns or `--parsable2` were missing."""
    header = "|".join(columns)
    return any(name in header for name in ("JobIDRaw", "ElapsedRaw", "AllocTRES", "ReqTRES"))


def read_log(path: str | Path) -> Log:
    """Read the output of `COMMAND`. Raises TableError if it has no usable row."""

    def fields_of(columns: list[str]) -> Fields:
        missing = [name for name, _ in _FIELDS.values() if name not in columns]
        if missing:
            raise TableError(f"{path}:1: missing column {', '.join(missing)}; print the log with {COMMAND}")
        return {**_FIELDS, "submit_s": ("Submit", Moments())}

    return _read(path, "slurm", fields_of, _ASSUMPTIONS, optional=("tenant", "state"), delimiter="|")
