"""Rows of Slurm's exports as jobs: a row is a run of a job, or its wait, whatever command printed it.

Sources: sacct(1), squeue(1), "Job State Codes", slurm.schedmd.com.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traces.job import MAX_GPUS
from traces.logs.formats.runs import join_rows
from traces.logs.log import END_TOO_EARLY, START_TOO_EARLY, Log, LoggedJob, LogRows, logged_job
from traces.native import COLUMNS, MAX_SECONDS, MIN_SECONDS, PackedJobs, whole

from .submit_line import SubmitOptions, begin_of
from .tres import Request

__all__ = [
    "GOING",
    "PAIR",
    "WAITING",
    "SlurmRow",
    "SlurmRows",
    "array_of",
    "begin_moment",
    "count_of",
    "limit_of",
    "plain_text",
    "signed_of",
    "state_of",
    "tasks_of",
    "throttle_of",
]

_STATES = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING", "CD": "COMPLETED", "F": "FAILED",
    "CA": "CANCELLED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY",
    "CF": "CONFIGURING", "BF": "BOOT_FAIL", "DL": "DEADLINE", "ST": "STOPPED", "RQ": "REQUEUED",
}  # fmt: skip
"""Compact state of `squeue` -> state."""

PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9:/_]*)=(\S*)")
"""A pair of key and value as scontrol and jobcomp/filetxt print it."""

WAITING = frozenset(("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
GOING = frozenset(
    ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
)
_CANCELLED = ("CANCELLED", "DEADLINE")
_NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "N/A", "infinite", "NONE")
_NO_TEXT = ("", "(null)", "N/A", "None", "null", "n/a", "None assigned", "(none)", "Unknown")
_ARRAY = re.compile(r"(.*?)_?\[([\d,:-]+)(?:%(\d{1,9}))?\]", re.ASCII)
_TOO_MANY_DIGITS = 13  # of a number that a job states
_MOST_LATE = 0.2  # of the jobs: where more have ids out of order, ids are no numbers of submissions
_MOST_TASKS = 100_000  # of an array; Slurm's MaxArraySize is at most 4,000,001, by default 1,001


class SlurmRow(NamedTuple):
    """A run of a job, or its wait. Times are seconds on the log's clock, None where the row states none.

    `job_id` is the one that users see: `17_3` of a task, `17+1` of a component; `raw_id` the number behind
    it. `elapsed_s`: the run time, without `suspended_s`. `depends`: as the export states it.
    """

    line: int
    job_id: str
    state: str
    submit_s: float
    request: Request
    raw_id: str | None = None
    cluster: str | None = None
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    elapsed_s: float | None = None
    suspended_s: float | None = None
    limit_s: float | None = None
    tenant: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    partitions: str | None = None
    qos: str | None = None
    name: str | None = None
    reservation: str | None = None
    reason: str | None = None
    priority: int = 0
    nodes: int | None = None
    node_names: tuple[str, ...] = ()
    array_id: str | None = None
    array_limit: int | None = None
    begin_s: float | None = None
    nice: int | None = None
    depends: str = ""
    restarts: int = 0


class SlurmRows(LogRows):
    """Collects rows, in any order, and makes jobs of them when all are there."""

    restarted = 0
    """Jobs that say that they ran before, in rows that were added."""

    def __init__(self, path: Path, zone: tzinfo = UTC, cluster: str | None = None):
        super().__init__(path)
        self._zone, self._cluster = zone, cluster
        self._without_gpus: list[SlurmRow] = []
        self._step_gpus: dict[str, Request] = {}

    def add_step(self, job_id: str, request: Request | None) -> None:
        """Note a step of a job, which may state the GPUs that the row of the job lacks."""
        self.joined["steps"] += 1
        if request is not None and request.gpus:
            step_request = self._step_gpus.get(job_id)
            if step_request is None or step_request.gpus < request.gpus:
                self._step_gpus[job_id] = request

    def add_row(self, row: SlurmRow) -> None:
        """Add a row; one that states no GPUs waits for its steps."""
        if not row.request.gpus:
            self._without_gpus.append(row)
            return
        try:
            self.jobs.append(self._job(row))
        except ValueError as error:
            gpu_s = row.request.gpus * (row.elapsed_s or 0.0)
            self.drop(row.line, row.job_id, error.args[0], error.args[-1], gpu_s)
            return
        self.restarted += row.restarts > 0

    def finish(self, log: Log) -> Log:
        """`log` with the jobs. Raises TableError if no row is usable."""
        for row in self._without_gpus:
            request = self._step_gpus.get(row.raw_id or "") or self._step_gpus.get(row.job_id)
            if request is None:
                self.drop(row.line, row.job_id, "names no gres/gpu: a job without GPUs")
            else:
                self.add_row(row._replace(request=request))
        join_rows(self, self._zone, self._cluster)
        self._note_requeued()
        if cancelled := sum(cancel_s is not None for cancel_s in self.jobs.column("cancel_s")):
            self.notes.append(
                f"{cancelled:,} jobs were cancelled while they waited: they keep their place until then "
                "(cancel_s), and their time limit stands for the run time that they would have had"
            )
        return super().finish(log)

    def _note_requeued(self) -> None:
        """Say how many jobs ran before, of whose earlier runs there is no row."""
        requeued = max(self.restarted - sum(map(bool, self.jobs.column("runs"))), 0)
        late = _submitted_late(self.jobs)
        requeued = requeued or (late if late <= _MOST_LATE * len(self.jobs) else 0)
        if requeued:
            self.warnings.append(
                f"{requeued:,} jobs were requeued, and their runs before that are not in this export: "
                "their GPU time is missing, and their waits count from the last submission; sacct -D "
                "prints all runs"
            )

    def _job(self, row: SlurmRow) -> LoggedJob:
        """The job of a row. ValueError (reason, kind of reason) for a row that is none."""
        submit_s, start_s, end_s, duration_s = row.submit_s, row.start_s, row.end_s, row.elapsed_s
        if start_s is not None and not submit_s <= start_s <= MAX_SECONDS:
            self.leave_out(START_TOO_EARLY)
            start_s = None
        if row.state in WAITING:
            start_s = end_s = duration_s = None
        elif row.state in GOING:
            end_s, duration_s = None, duration_s or None
        elif duration_s is None and row.start_s is not None and end_s is not None:
            duration_s = end_s - row.start_s - (row.suspended_s or 0.0)
        has_ended = row.state not in WAITING and row.state not in GOING
        cancel_s = None
        if has_ended and (duration_s is None or duration_s < MIN_SECONDS):
            cancel_s, duration_s = _cancelled(row), row.limit_s
            start_s = end_s = None
        elif end_s is not None and end_s <= (submit_s if start_s is None else start_s):
            self.leave_out(END_TOO_EARLY)
            end_s = None
        if duration_s is not None and cancel_s is None and start_s is not None and end_s is not None:
            self.compare(duration_s, end_s - start_s - (row.suspended_s or 0.0))
        return _logged(row, start_s, end_s, duration_s, cancel_s)


def _cancelled(row: SlurmRow) -> float:
    """When a job that never ran was cancelled. ValueError if it was not, or says nothing of its run time."""
    if row.state not in _CANCELLED or row.end_s is None or row.end_s < row.submit_s:
        raise ValueError(f"ended without having run ({row.state or 'no state'})", "ended without having run")
    if row.limit_s is None:
        text = "was cancelled while it waited, and no time limit says how long it would have run"
        raise ValueError(text)
    return row.end_s


def _logged(
    row: SlurmRow,
    start_s: float | None,
    end_s: float | None,
    duration_s: float | None,
    cancel_s: float | None,
) -> LoggedJob:
    gpus, gpu_type, part, cpus, memory_gb, listed_nodes = row.request
    if gpus > MAX_GPUS:
        raise ValueError(f"gpus={gpus}: is above {MAX_GPUS:,}")
    nodes = row.nodes or listed_nodes
    if nodes is not None and nodes > gpus:
        nodes = None
    eligible_s = row.eligible_s
    if eligible_s is not None and (
        eligible_s < row.submit_s or (start_s is not None and eligible_s > start_s)
    ):
        eligible_s = None
    return logged_job(
        line=row.line,
        job_id=row.job_id,
        submit_s=row.submit_s,
        gpus=gpus,
        duration_s=duration_s,
        tenant=row.tenant or "default",
        state=row.state or None,
        part_of_gpu=part,
        priority=row.priority,
        estimate_s=row.limit_s,
        user=row.user,
        gpu_type=gpu_type,
        logged_start_s=start_s,
        partition=row.partition,
        qos=row.qos,
        logged_end_s=end_s,
        reason=row.reason if row.state in WAITING else None,
        cpus=cpus,
        host_memory_gb=memory_gb,
        node_names=row.node_names,
        begin_s=row.begin_s if row.begin_s is not None and row.begin_s > row.submit_s else None,
        eligible_s=eligible_s,
        cancel_s=cancel_s,
        time_limit_s=row.limit_s,
        account=row.account,
        partitions=row.partitions,
        nodes=nodes,
        gpus_per_node=None if nodes is None or gpus % nodes else gpus // nodes,
        depends=row.depends or None,
        name=row.name,
        array_id=row.array_id,
        array_limit=row.array_limit if row.array_id is not None else None,
        suspended_s=row.suspended_s or None,
        nice=row.nice or None,
        reservation=row.reservation,
        cluster=row.cluster,
        raw_id=row.raw_id,
    )


def _submitted_late(jobs: PackedJobs[LoggedJob]) -> int:
    """Jobs submitted later than one with a higher id: a cluster numbers jobs as they are submitted, and only
    a requeued job gets a later submission. 0 where ids say nothing, as those of tasks by their own number.
    """
    if any(jobs.column("runs")):
        return 0
    numbers, submits_s = array("d"), array("d")
    clusters = dict[str | None, int]()
    for cluster_name, array_id, job_id, submit_s in jobs.rows("cluster", "array_id", "job_id", "submit_s"):
        digits = (array_id or job_id).rpartition("/")[2]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 13):
            return 0
        cluster = clusters.setdefault(cluster_name, len(clusters))
        numbers.append(cluster * 1e13 + int(digits))
        submits_s.append(submit_s)
    ids, times_s = np.frombuffer(numbers), np.frombuffer(submits_s)
    order = np.argsort(ids, kind="stable")
    ids, times_s = ids[order], times_s[order]
    late = 0
    for cluster in clusters.values():
        of_cluster = (ids >= cluster * 1e13) & (ids < (cluster + 1) * 1e13)
        later_s = times_s[of_cluster]
        earliest_after_s = np.minimum.accumulate(later_s[::-1])[::-1]
        is_late = later_s[:-1] > earliest_after_s[1:] + 1.0  # stamps are whole seconds
        late += len(np.unique(ids[of_cluster][:-1][is_late]))
    return late


def state_of(text: str) -> str:
    """Parse a state, compact or not; `CANCELLED by 1000` becomes `CANCELLED`. ValueError if there is none."""
    words = text.split()
    if not words:
        raise ValueError("states no state")
    return _STATES.get(words[0], words[0].rstrip("+"))


def limit_of(text: str) -> float | None:
    """A limit or a run time in seconds, None if there is none; all ways of sbatch(1), such as `M`, `M:S`,
    `H:M:S` and `D-H`. ValueError for other text.

    >>> limit_of("10-13:27:06"), limit_of("14:30"), limit_of("90"), limit_of("UNLIMITED")
    (912426.0, 870.0, 5400.0, None)
    """
    if text in _NO_LIMIT:
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.partition(".")[0].split(":")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    try:
        if len(parts) > len(units):
            raise ValueError
        value = float(sum(whole(part) * unit for part, unit in zip(parts, units, strict=False)))
        value += 86400 * whole(days) if dash else 0
    except ValueError:
        raise ValueError("is no time limit such as 90, 1:30:00 or 2-12:00:00") from None
    return value


def plain_text(text: str) -> str | None:
    """Text of a cell; None for the words by which Slurm says that there is none."""
    return None if text in _NO_TEXT else str(COLUMNS["state"](text))


def count_of(text: str) -> int | None:
    """A whole number from 0; None for other text, and for one that no job states."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _TOO_MANY_DIGITS else None


def signed_of(text: str) -> int | None:
    """A whole number, perhaps below 0; None for other text."""
    count = count_of(text.removeprefix("-"))
    return -count if count and text.startswith("-") else count


def array_of(job_id: str) -> str | None:
    """The array of a task, by its id: 17 of `17_3`."""
    base, underline, task = job_id.partition("_")
    return base if underline and task.isascii() and task.isdigit() else None


def tasks_of(job_id: str) -> list[str]:
    """The ids of the tasks of an array, such as `17_[1-3,7:2%4]`; the id itself if it is of no array."""
    match = _ARRAY.fullmatch(job_id)
    if not match:
        if "[" in job_id:
            raise ValueError("is an array whose tasks are not listed; squeue -r lists them")
        return [job_id]
    return [f"{match[1]}_{task}" for task in _indices(match[2])]


def throttle_of(job_id: str) -> int | None:
    """The most tasks of an array that run at once, by the id of its pending tasks: 4 of `17_[3-20%4]`."""
    match = _ARRAY.fullmatch(job_id)
    return int(match[3]) or None if match and match[3] else None


def _indices(text: str) -> Iterator[int]:
    count = 0
    for piece in text.split(","):
        low, _, high_and_step = piece.partition("-")
        high, _, step = high_and_step.partition(":")
        indices = range(whole(low), whole(high or low) + 1, max(1, whole(step or "1")))
        count += max(0, (indices.stop - indices.start - 1) // indices.step + 1)
        if count > _MOST_TASKS:
            raise ValueError(f"is an array of more than {_MOST_TASKS:,} tasks")
        yield from indices
    if not count:
        raise ValueError("is an array without tasks")


def begin_moment(options: SubmitOptions, submit_s: float, zone: tzinfo) -> float | None:
    """The earliest start that a submission states, on the log's clock; None if it states none."""
    if not options.begin:
        return None
    when = begin_of(options.begin, datetime.fromtimestamp(submit_s, zone).replace(tzinfo=None))
    if when is None:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
