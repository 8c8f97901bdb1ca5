"""Jobs as Slurm's live commands state them: states, GPU requests, task arrays, limits.

Sources: squeue(1), scontrol(1) and "Generic Resource (GRES) Scheduling", slurm.schedmd.com.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from itertime.io import shown
from traces.logs.cells import Moments
from traces.logs.records import Row
from traces.native import COLUMNS, MIN_SECONDS, whole

from .sacct import gpu_type_of, gpus_of, has_slices

__all__ = ["ASSUMPTIONS", "TENANTS", "SlurmJob", "gpus_per_node"]

TENANTS = ("account", "user", "partition", "qos")

ASSUMPTIONS = (
    "the GPUs are those allocated, or requested before the start: of gres/gpu in the trackable resources, "
    "else those of a node times the nodes",
    "the estimate is the time limit; a pending job has no start, whatever Slurm expects",
    "each task of a pending array is a job",
    "a job that is not pending and has ended ran from its start to its end; the run times of the others are "
    "not known",
)

_STATES = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING", "CD": "COMPLETED", "F": "FAILED",
    "CA": "CANCELLED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY",
    "CF": "CONFIGURING", "BF": "BOOT_FAIL", "DL": "DEADLINE", "ST": "STOPPED", "RQ": "REQUEUED",
}  # fmt: skip
"""Compact state of `squeue` -> state (squeue(1), "Job State Codes")."""

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_GOING = (
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
)
_NO_TIME = ("", "Unknown", "None", "N/A", "(null)", "0", "NONE")
_NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "N/A", "infinite")
_NO_TEXT = ("", "(null)", "N/A", "None", "null")
_GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:=,()\d][^:=,()]*))?(?:[:=](\d+))?(?:\(.*\))?", re.ASCII)
_ARRAY = re.compile(r"(.*?)_?\[([\d,:-]+)(?:%\d+)?\]", re.ASCII)
_MOST_TASKS = 100_000  # of an array; Slurm's MaxArraySize is at most 4,000,001, by default 1,001


@dataclass(frozen=True)
class SlurmJob:
    """What a command states of a job, as text, "" where it states nothing. `limit` is written as Slurm does
    (`1-00:00:00`, or minutes), `tres` a list of trackable resources, `gres` the GPUs of a node.
    """

    job_id: str
    state: str
    submit: str
    start: str = ""
    end: str = ""
    limit: str = ""
    tres: str = ""
    gres: str = ""
    nodes: str = ""
    account: str = ""
    user: str = ""
    partition: str = ""
    qos: str = ""
    priority: str = ""
    reason: str = ""

    def rows(self, tenant: str, times: Moments) -> Iterator[Row]:
        """The jobs: one, or those of a pending array. Raises ValueError (reason, kind) if there is none."""
        state = _state(self.state)
        gpus, gpu_type, part = self._gpus()
        submit_s = _time("submission", self.submit, times)
        if submit_s is None:
            raise ValueError("states no time of submission")
        start_s = None if state in _WAITING else _time("start", self.start, times)
        ended = state not in _WAITING + _GOING
        end_s = _time("end", self.end, times) if ended else None
        if ended and (start_s is None or end_s is None or end_s - start_s < MIN_SECONDS):
            raise ValueError("ended without having run")
        names = {name: _text(getattr(self, name)) for name in TENANTS}
        row = {
            "submit_s": submit_s,
            "gpus": gpus,
            "gpu_type": gpu_type,
            "part_of_gpu": part,
            "duration_s": end_s - start_s if ended and start_s is not None and end_s is not None else None,
            "logged_start_s": start_s,
            "logged_end_s": end_s,
            "estimate_s": _limit(self.limit),
            "tenant": names[tenant],
            "user": names["user"],
            "partition": names["partition"],
            "qos": names["qos"],
            "state": state,
            "reason": _text(self.reason.strip("()")) if state in _WAITING else None,
            "priority": COLUMNS["priority"](self.priority) if self.priority.isdigit() else None,
        }
        for job_id in _tasks(self.job_id):
            yield {"job_id": job_id, **row}

    def _gpus(self) -> tuple[int, str | None, bool]:
        if "gres/gpu" in self.tres:
            return gpus_of(self.tres), gpu_type_of(self.tres), has_slices(self.tres)
        count, gpu_type = gpus_per_node(self.gres)
        if not count:
            raise ValueError("names no GPU: a job without GPUs")
        nodes = whole(self.nodes.partition("-")[0] or "1")
        part = gpu_type is not None and has_slices(f"gres/gpu:{gpu_type}=1")
        return gpus_of(f"gres/gpu={count * nodes}"), None if part else gpu_type, part


def gpus_per_node(text: str) -> tuple[int, str | None]:
    """The GPUs in a request by node, and their type if there is exactly one.

    >>> gpus_per_node("gres:gpu:a100:8"), gpus_per_node("gres/gpu=2,gres/shard=4"), gpus_per_node("N/A")
    ((8, 'a100'), (2, None), (0, None))
    """
    matches = [match for part in text.split(",") if (match := _GRES.fullmatch(part.strip()))]
    types = {match[1] for match in matches}
    kind = types.pop() if len(types) == 1 else None
    return sum(whole(match[2] or "1") for match in matches), kind


def _state(text: str) -> str:
    """Parse a state, compact or not; `CANCELLED by 1000` becomes `CANCELLED`."""
    words = text.split()
    if not words:
        raise ValueError("states no state")
    return _STATES.get(words[0], words[0].rstrip("+"))


def _time(name: str, text: str, times: Moments) -> float | None:
    if text in _NO_TIME:
        return None
    try:
        return times(text)
    except ValueError as error:
        raise ValueError(f"{name} {shown(text)}: {error}", f"{name}: {error}") from None


def _limit(text: str) -> float | None:
    """A limit in seconds, None if there is none; all ways of sbatch(1), such as `M`, `H:M:S` and `D-H`."""
    if text in _NO_LIMIT:
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    try:
        if len(parts) > len(units):
            raise ValueError("is no limit such as 1-00:00:00")
        total = sum(whole(part) * unit for part, unit in zip(parts, units, strict=False))
        return float(COLUMNS["estimate_s"](str(total + 86_400 * (whole(days) if dash else 0))))
    except ValueError as error:
        raise ValueError(f"time limit {shown(text)}: {error}", f"time limit: {error}") from None


def _text(text: str) -> str | None:
    return None if text in _NO_TEXT else text


def _tasks(job_id: str) -> list[str]:
    """The ids of the tasks of an array, such as `17_[1-3,7:2%4]`; the id itself if it is of no array."""
    match = _ARRAY.fullmatch(job_id)
    if not match:
        if "[" in job_id:
            raise ValueError("is an array whose tasks are not listed; squeue -r lists them")
        return [job_id]
    tasks = list[int]()
    for part in match[2].split(","):
        low, _, high_and_step = part.partition("-")
        high, _, step = high_and_step.partition(":")
        indices = range(whole(low), whole(high or low) + 1, max(1, whole(step or "1")))
        if (indices.stop - indices.start) // indices.step > _MOST_TASKS - len(tasks):
            raise ValueError(f"is an array of more than {_MOST_TASKS:,} tasks")
        tasks += indices
    if not tasks:
        raise ValueError("is an array without tasks")
    return [f"{match[1]}_{task}" for task in tasks]
