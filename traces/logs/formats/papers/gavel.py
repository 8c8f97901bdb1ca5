"""Traces of Gavel and of Shockwave, which extends Gavel: lines of tab-separated cells without a header.

Gavel (Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel, scheduler/traces) has 7 columns: job
type, command, name of the steps' flag, whether it needs data, steps, arrival, scale factor; some files add
priority and SLO. Its later files have 10: job type, command, working folder, name of the steps' flag, whether
it needs data, steps, scale factor, priority, SLO, arrival. The scale factor is the number of GPUs; arrivals
are in seconds. A job type is a model with the batch of a GPU, as in `ResNet-18 (batch size 32)`; A3C and
CycleGAN name none. A priority is the weight of a job. A step is a batch of one GPU: n GPUs do n at once. No
run times: these are steps over the throughput of the type, `scheduler/simulation_throughputs.json` of Gavel.

Shockwave (Zheng et al., NSDI 2023; github.com/uw-mad-dash/shockwave, scheduler/traces) has 12: job type,
command, working folder, name of the steps' flag, whether it needs data, steps, scale factor, mode (`static`,
`accordion`, `gns`), priority, SLO, duration, arrival. The batch of a job changes in the last two modes; the
log does not say when, so no phases (`traces.phases`) are filled in.
Within a file, steps over duration depend on the type and the scale factor alone: the duration is that of the
first batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from itertime.io import TextLayout
from traces.logs.cells import LogColumn, is_number
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat
from traces.logs.source import Head, LogSource
from traces.logs.tables import TableOfJobs, read_table
from traces.native import COLUMNS

__all__ = ["GAVEL", "SHOCKWAVE"]

_TYPE = re.compile(r"(.+?) \(batch size (\d+)\)", re.ASCII)
_BASE = ("job_type", "command", "steps_flag", "needs_data", "steps", "arrival", "scale_factor")
_LATER = ("job_type", "command", "folder", "steps_flag", "needs_data", "steps", "scale_factor")
_GAVEL: Mapping[int, tuple[str, ...]] = {
    7: _BASE,
    8: (*_BASE, "priority"),
    9: (*_BASE, "priority", "slo"),
    10: (*_LATER, "priority", "slo", "arrival"),
}
_SHOCKWAVE: Mapping[int, tuple[str, ...]] = {12: (*_LATER, "mode", "priority", "slo", "duration", "arrival")}
_NUMBERS = ("steps", "arrival", "scale_factor", "duration")


def _model(cell: str) -> str:
    match = _TYPE.fullmatch(cell)
    return str(COLUMNS["model"](match[1] if match else cell))


def _batch(cell: str) -> int:
    """The batch in a job type; 1 for a type that names none."""
    match = _TYPE.fullmatch(cell)
    return int(COLUMNS["global_batch"](match[2] if match else "1"))


def _names(head: Head, layouts: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of the columns, none if the log is of no such layout."""
    first_line = next((line for line in head.lines if line.strip() and not line.startswith("#")), "")
    cells = first_line.split("\t")
    names = layouts.get(len(cells), ())
    fits = all(is_number(cell) for name, cell in zip(names, cells, strict=False) if name in _NUMBERS)
    return names if fits else ()


_CELLS = {
    "submit_s": LogColumn("arrival"),
    "gpus": LogColumn("scale_factor"),
    "model": LogColumn("job_type", _model),
    "global_batch": LogColumn("job_type", _batch),
    "iterations": LogColumn("steps"),
    "weight": LogColumn("priority", optional=True),
}
_ASSUMPTIONS = (
    "the scale factor is the number of GPUs, a step an iteration with the batch of one GPU",
    "types that name no batch have the batch 1",
    "priorities are weights here; SLOs are left out",
    "jobs are named by the line of their row",
    "the log names no tenants: all jobs belong to the tenant 'default'",
)


def _unstated(values: dict[str, Any]) -> None:
    values["duration_s"] = None


def _read_gavel(source: LogSource, options: ReadOptions) -> Log:
    form = TableOfJobs(
        "gavel", _CELLS, _ASSUMPTIONS, unit=("s", "the unit of Gavel's traces"), derive=_unstated
    )
    return read_table(source, form, options, _layout(source.head, _GAVEL))


def _read_shockwave(source: LogSource, options: ReadOptions) -> Log:
    cells = {**_CELLS, "duration_s": LogColumn("duration")}
    notes = (
        *_ASSUMPTIONS,
        "duration is the run time on these GPUs with the first batch, without queueing: the changes of the "
        "batch in the modes accordion and gns are left out, and model and steps with them",
    )
    form = TableOfJobs(
        "shockwave", cells, notes, unit=("s", "the unit of Shockwave's traces"), only_run_times=True
    )
    return read_table(source, form, options, _layout(source.head, _SHOCKWAVE))


def _layout(head: Head, layouts: Mapping[int, tuple[str, ...]]) -> TextLayout:
    names = _names(head, layouts) or next(iter(layouts.values()))
    return TextLayout(delimiter="\t", comments="#", header=False, names=names)


GAVEL = LogFormat("gavel", "Gavel's traces", lambda head: bool(_names(head, _GAVEL)), _read_gavel)

SHOCKWAVE = LogFormat(
    "shockwave", "Shockwave's traces", lambda head: bool(_names(head, _SHOCKWAVE)), _read_shockwave
)
