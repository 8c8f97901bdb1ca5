"""What the logs of Muri's testbed say of executions: the time of starts, and how much slower jobs ran.

Trace and logs are described in the README of the shared data; times are those of the logs.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy import stats

from itertime.errors import UserError

INTERVAL_S = 360.0
"""The testbed decides every six minutes."""

FAST_FORWARD = 60
"""The seconds of the logs in one second of the testbed."""


@dataclass(frozen=True)
class MuriJob:
    """A row of the testbed's trace. `work_s`: iterations x seconds of one; `duration_s`: as stated."""

    job_id: str
    submit_s: float
    gpus: int
    model: str
    work_s: float
    duration_s: float


@dataclass(frozen=True)
class Measured:
    """What the testbed measured. `executed_s`: seconds with GPUs; `starts`: how often the job got some."""

    start_s: float
    end_s: float
    executed_s: float
    starts: int


def read_trace(folder: Path) -> dict[str, MuriJob]:
    """The jobs by id; the file counts milliseconds."""
    return {
        row["job_id"]: MuriJob(
            row["job_id"], float(row["submit_time"]) / 1000, int(row["num_gpu"]), row["model_name"],
            float(row["iterations"]) * float(row["iteration_time"]) / 1000, float(row["duration"]) / 1000,
        )
        for row in _rows(folder / "cluster_trace.csv")
    }  # fmt: skip


def read_log(path: Path) -> dict[str, Measured]:
    """The measured jobs by id."""
    return {
        row["job_id"]: Measured(
            float(row["start_time"]), float(row["end_time"]),
            float(row["real_executed_time"]), int(float(row["job_counter"])),
        )
        for row in _rows(path)
    }  # fmt: skip


def _rows(path: Path) -> Iterable[dict[str, str]]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


# What executions show


@dataclass(frozen=True)
class Executions:
    """`start_s`: the median of execution - work over jobs that started once and work for at most an interval
    of decisions. `slowdown`: the GPU-seconds of all executions without their starts, over those of the work.
    """

    start_s: float
    slowdown: float

    @classmethod
    def of(cls, jobs: Mapping[str, MuriJob], logs: Sequence[Mapping[str, Measured]]) -> Executions:
        """The constants of some logs together."""
        pairs = [(jobs[name], done) for log in logs for name, done in log.items()]
        short = [(job, done) for job, done in pairs if done.starts == 1 and job.work_s <= INTERVAL_S]
        start_s = median(done.executed_s - job.work_s for job, done in short)
        spent = sum(job.gpus * (done.executed_s - done.starts * start_s) for job, done in pairs)
        return cls(start_s, spent / sum(job.gpus * job.work_s for job, _ in pairs))


def without(
    jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]], policy: str
) -> Executions:
    """The constants by which the log of a policy is judged: those of the others."""
    return Executions.of(jobs, [log for name, log in logs.items() if name != policy])


def duration_of(job: MuriJob) -> float:
    return job.duration_s


def work_of(job: MuriJob) -> float:
    return job.work_s


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def executions_table(jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]]) -> str:
    """What executions take, by log."""
    rows = []
    for policy, log in logs.items():
        found = Executions.of(jobs, [log])
        gpu_s = sum(jobs[name].gpus * done.executed_s for name, done in log.items())
        over = [gpu_s / sum(j.gpus * of(j) for j in jobs.values()) - 1 for of in (duration_of, work_of)]
        middle = median(done.executed_s / jobs[name].duration_s for name, done in log.items()) - 1
        rows.append((
            policy, f"{100 * middle:+.1f} %", *(f"{100 * part:+.1f} %" for part in over),
            f"{found.start_s:.1f}", f"{found.slowdown:.4f}",
        ))  # fmt: skip
    head = (
        "log",
        "over `duration`, median",
        "over `duration`, GPU-seconds",
        "over work, GPU-seconds",
        "start, s",
        "slowdown",
    )
    return table(head, rows)


def models_table(jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]]) -> str:
    """Starts and slowdown by model."""
    rows = []
    for model in sorted({job.model for job in jobs.values()}):
        cells = [model]
        for log in logs.values():
            found = Executions.of(jobs, [{name: d for name, d in log.items() if jobs[name].model == model}])
            cells += [f"{found.start_s:.0f}", f"{found.slowdown:.3f}"]
        rows.append(cells)
    return table(("model", *(f"{p}: {what}" for p in logs for what in ("start, s", "slowdown"))), rows)


def dependence(jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]]) -> dict[str, float]:
    """What the slowdown of jobs that work for 10 minutes and more goes with: correlations over these jobs. A
    kind is a model on a number of GPUs; its mean is taken off for `again`.
    """
    chosen = [name for name, job in jobs.items() if job.work_s > 600]
    slow, rest = [], []
    for log in logs.values():
        starts_s = {
            model: Executions.of(jobs, [{n: d for n, d in log.items() if jobs[n].model == model}]).start_s
            for model in {job.model for job in jobs.values()}
        }
        of = np.array([
            (log[n].executed_s - log[n].starts * starts_s[jobs[n].model]) / jobs[n].work_s for n in chosen
        ])  # fmt: skip
        kinds = [(jobs[n].model, jobs[n].gpus) for n in chosen]
        means = {
            kind: np.mean([f for f, k in zip(of, kinds, strict=True) if k == kind]) for kind in set(kinds)
        }
        slow.append(of)
        rest.append(of - np.array([means[kind] for kind in kinds]))
    log = next(iter(logs.values()))
    rate = [log[n].starts / jobs[n].work_s for n in chosen]
    return {
        "gpus": _correlation([jobs[n].gpus for n in chosen], slow[0]),
        "starts": _correlation(rate, slow[0]),
        "kind": 100 * (1 - float(np.var(rest[0]) / np.var(slow[0]))),
        "again": _correlation(rest[0], rest[1]),
    }


def _correlation(one: Sequence[float] | np.ndarray, other: np.ndarray) -> float:
    return float(stats.spearmanr(one, other).statistic)
