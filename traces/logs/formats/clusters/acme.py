"""Logs of Shanghai AI Laboratory's clusters for language models, Acme (Hu et al., NSDI 2024).

Seren: `job_id, user, node_num, gpu_num, cpu_num, type, state, submit_time, start_time, end_time, duration,
queue, gpu_time`. Kalos has in addition `mem_per_pod_GB, shared_mem_per_pod, fail_time, stop_time`. Dates
have an offset: `+08:00` in Seren, `+00:00` in Kalos. `type` is the kind of work: Eval, Pretrain, SFT, MLLM,
Debug or Other. Jobs with `gpu_num` 0 use CPUs only. `duration` and `gpu_time` of Kalos count from the
submission, so the run time is the time from start to end in both. A job of Kalos may state its end by
`fail_time` or `stop_time` alone.

Kalos as converted for simulators has jobs of `gpu_workers` GPUs that arrive at a number of seconds and do
iterations of a length in seconds. Lengths and counts are assumptions of the conversion; their products are
the run times of Kalos. The names of the other columns vary, so they are found by parts of them:

| what | the name of its column |
|---|---|
| submission | has `arriv` or `submi` |
| iterations | has `iter` or `step`, and no `time`, `dur`, `len` or `sec` |
| length of an iteration | has `iter` or `step`, and one of these or a unit at its end (`step_ms`) |
| run time, if there is no product | has `dur` or `run`, and neither `iter` nor `step` |
| name, if any | is `job_id`, `jobid`, `id`, `job`, `job_name` or `name` |
"""

from __future__ import annotations

import re
from collections.abc import Collection

from itertime.errors import TableError
from itertime.io import shown
from traces.logs.cells import LogColumn
from traces.logs.log import Log, ReadOptions
from traces.logs.log_format import LogFormat, has_columns
from traces.logs.source import Head, LogSource
from traces.logs.tables import TableOfJobs, read_table, table_format
from traces.logs.units import unit_of_name
from traces.native import number

__all__ = ["ACME", "KALOS_CONVERTED"]

_NEVER_RAN = "the job never ran"
_STEP, _LENGTH = re.compile("iter|step", re.IGNORECASE), re.compile("time|dur|len|sec", re.IGNORECASE)
_ARRIVAL, _RUN = re.compile("arriv|submi", re.IGNORECASE), re.compile("dur|run", re.IGNORECASE)
_NAMES = ("job_id", "jobid", "id", "job", "job_name", "name")

ACME = table_format(
    "Acme's trace_seren.csv and trace_kalos.csv, from Shanghai AI Laboratory",
    has_columns(
        ["job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time", "duration"]
    ),
    TableOfJobs(
        format="acme",
        cells={
            "job_id": LogColumn("job_id"),
            "gpus": LogColumn("gpu_num"),
            "submit_s": LogColumn("submit_time"),
            "start_s": LogColumn("start_time", if_empty=_NEVER_RAN),
            "end_s": LogColumn(
                "end_time", instead=("fail_time", "stop_time"), if_empty="the job had not ended"
            ),
            "stated_duration_s": LogColumn("duration", number, optional=True),
            "tenant": LogColumn("user", optional=True),
            "user": LogColumn("user", optional=True),
            "state": LogColumn("state", optional=True),
        },
        assumptions=(
            "the run time on gpu_num GPUs is end_time - start_time; duration is not read, as that of Kalos "
            "counts from the submission",
            "the end is fail_time or stop_time where end_time is empty",
            "every job is taken to want all of its logged run time, however it ended",
            "the tenant is the user; --tenant type makes tenants of the kinds of work",
        ),
        unit=("s", "the unit of Acme's logs"),
        host=(
            {"cpus": LogColumn("cpu_num", optional=True, empty=("0",))},
            "the cores are cpu_num, of the whole job",
        ),
    ),
)


def _read_converted(source: LogSource, options: ReadOptions) -> Log:
    columns = source.head.columns
    lengths = [
        name for name in columns if _STEP.search(name) and (_LENGTH.search(name) or unit_of_name(name))
    ]
    steps = [name for name in columns if _STEP.search(name) and name not in lengths]
    runs = [name for name in columns if _RUN.search(name) and not _STEP.search(name)]
    cells = {"submit_s": LogColumn(_one(source, "submission", [n for n in columns if _ARRIVAL.search(n)]))}
    if steps or lengths:
        cells["steps"] = LogColumn(_one(source, "number of iterations", steps))
        cells["step_s"] = LogColumn(_one(source, "length of an iteration", lengths))
        length = f"the run time is {cells['steps'].column} x {cells['step_s'].column}"
    else:
        cells["duration_s"] = LogColumn(_one(source, "run time", runs))
        length = f"the run time is {cells['duration_s'].column}"
    cells["gpus"] = LogColumn("gpu_workers")
    name = next((name for name in _NAMES if name in columns), None)
    if name is not None:
        cells["job_id"] = LogColumn(name)
    notes = (
        f"{length}, on gpu_workers GPUs, without queueing",
        "iterations and their lengths are assumptions of the conversion, and are left out",
        "the log names no tenants: all jobs belong to the tenant 'default'",
        *(() if name else ("jobs are named by the line of their row",)),
    )
    form = TableOfJobs("kalos-converted", cells, notes, unit=("s", "the unit of this conversion"))
    return read_table(source, form, options)


def _one(source: LogSource, meaning: str, columns: Collection[str]) -> str:
    if len(columns) == 1:
        return next(iter(columns))
    problem = f"is stated by {', '.join(map(shown, columns))}" if columns else "is stated by no column"
    remedy = "name the columns: --columns submit_s=COLUMN,gpus=gpu_workers,steps=COLUMN,step_s=COLUMN"
    raise TableError(f"{source.path}:1: the {meaning} {problem}; {remedy}")


def _is_converted(head: Head) -> bool:
    return "gpu_workers" in head.columns


KALOS_CONVERTED = LogFormat(
    "kalos-converted", "Acme's Kalos, as converted for simulators", _is_converted, _read_converted
)
