"""Recorded runs of a real Slurm, as `record` writes them: the site, the jobs, and what the controller's log
says of each step.

A folder holds jobs.csv (as to be submitted), submitted.csv (job ids, and when sbatch returned),
sacct-duplicates.txt (every run of every job), the site as `clustersim.sites.exports` reads it (config.txt,
nodes.txt, partitions.txt, qos.txt, assoc.txt, reservation.txt), workload.json (when reservations were made),
and slurmctld.log.gz.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from clustersim.sites import SlurmSite
from clustersim.sites.exports import SlurmFiles, read_slurm

__all__ = [
    "LogLine",
    "LoggedRun",
    "RecordedJob",
    "RecordedRun",
    "fair_share_factors",
    "limit_reasons",
    "log_lines",
    "nodes_of_text",
    "read_run",
]

ENDED = {"COMPLETED", "TIMEOUT", "FAILED"}
GPUS_PER_NODE = 8
SUBMISSION_S = 0.01
"""From the moment at which the controller has a job to that at which sbatch returns. With 0 to 0.01 s, at
least 927 of the 931 jobs of the recorded runs have the whole second of sacct's Submit; with 0.05 s, 888.
"""


class LoggedRun(NamedTuple):
    """A run of a job: when it began and ended on the clock of `RecordedRun`, how, and where."""

    start_s: float
    end_s: float
    state: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class RecordedJob:
    """A job as it was submitted, and its runs."""

    job_id: str
    order: tuple[int, ...]
    name: str
    submit_s: float
    nodes: int
    gpus_per_node: int
    limit_s: float
    run_s: float
    user: str
    account: str
    partition: str
    qos: str
    array: str | None
    array_limit: int
    depends: str
    runs: tuple[LoggedRun, ...]


@dataclass(frozen=True)
class RecordedRun:
    """A run. `epoch_s`: when its clock shows 0, in seconds since 1970. `began_s`: when it began, on that."""

    folder: Path
    epoch_s: float
    began_s: float
    site: SlurmSite
    jobs: tuple[RecordedJob, ...]


class LogLine(NamedTuple):
    """A line of slurmctld.log: seconds since 1970, and the message."""

    time_s: float
    message: str


def read_run(folder: Path) -> RecordedRun:
    """The site and the jobs of a recorded run."""
    began_s = json.loads((folder / "notes.json").read_text())["t0_epoch"]
    epoch_s = began_s // 1.0
    jobs = tuple(_jobs(folder, epoch_s, began_s - epoch_s))
    return RecordedRun(folder, epoch_s, began_s - epoch_s, _site(folder, epoch_s), jobs)


def log_lines(folder: Path) -> Iterator[LogLine]:
    with gzip.open(folder / "slurmctld.log.gz", "rt") as lines:
        for line in lines:
            stamp, separator, message = line.rstrip("\n").partition("] ")
            if separator and stamp.startswith("["):
                yield LogLine(seconds(stamp[1:]), message)


def limit_reasons(sample: Path) -> dict[str, str]:
    """The waiting jobs of a sample of squeue that a limit keeps waiting, with Slurm's name of the limit."""
    rows = csv.DictReader((sample / "squeue.txt").open(), delimiter="|")
    return {row["JOBID"]: row["REASON"] for row in rows if re.match(r"(Assoc|QOS)(Max|Grp)", row["REASON"])}


def fair_share_factors(sample: Path) -> dict[tuple[str, str], float]:
    """The FairShare of users in a sample of sshare, by (account, user)."""
    rows = csv.DictReader((sample / "sshare.txt").open(), delimiter="|")
    return {(row["Account"].strip(), row["User"]): float(row["FairShare"]) for row in rows if row["User"]}


def seconds(stamp: str) -> float:
    """Seconds since 1970 of a time in UTC."""
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()


def nodes_of_text(text: str) -> tuple[int, ...]:
    """The numbers, from 0, of `n01`, `n[01-04,07]` or `ALL`, of 16 nodes."""
    if text == "ALL":
        return tuple(range(16))
    listed = text[2:-1] if "[" in text else text[1:]
    numbers: list[int] = []
    for span in listed.split(","):
        lowest, _, highest = span.partition("-")
        numbers += range(int(lowest) - 1, int(highest or lowest))
    return tuple(numbers)


def _jobs(folder: Path, epoch_s: float, began_s: float) -> Iterator[RecordedJob]:
    """`began_s`: when the first job was due, on the clock that shows 0 at `epoch_s`."""
    submitted = {row["job_id"]: row for row in csv.DictReader((folder / "submitted.csv").open())}
    requests = {row["name"]: row for row in csv.DictReader((folder / "jobs.csv").open())}
    rows = defaultdict(list)
    for row in csv.DictReader((folder / "sacct-duplicates.txt").open(), delimiter="|"):
        rows[row["JobID"]].append(row)
    for job_id, attempts in rows.items():
        request = requests[attempts[-1]["JobName"]]
        array_id, _, task = job_id.partition("_")
        gpus = int(request["gpus"])
        runs = tuple(
            LoggedRun(
                seconds(row["Start"]) - epoch_s,
                seconds(row["End"]) - epoch_s,
                row["State"].split()[0],
                nodes_of_text(row["NodeList"]),
            )
            for row in attempts
            if row["Start"] not in ("Unknown", "None") and row["NodeList"] != "None assigned"
        )
        ended = any(run.state in ENDED for run in runs)
        run_s = float(attempts[-1]["ElapsedRaw"]) if ended else float(request["sleep_s"])
        yield RecordedJob(
            job_id,
            (int(array_id), int(task) if task.isdigit() else 0),
            request["name"],
            began_s + float(submitted[array_id]["after_s"]) - SUBMISSION_S,
            max(1, gpus // GPUS_PER_NODE),
            min(gpus, GPUS_PER_NODE),
            60.0 * int(request["limit_min"]),
            run_s or 0.5,
            request["user"],
            request["account"],
            request["partition"],
            request["qos"],
            array_id if request["array"] else None,
            int(request["array"].partition("%")[2] or 0) if request["array"] else 0,
            request["depend"],
            runs,
        )


def _site(folder: Path, epoch_s: float) -> SlurmSite:
    """The site, from what its commands printed; a reservation counts from the command that made it on."""
    qos, assoc, reservations = (
        next((folder / name for name in names if (folder / name).exists()), None)
        for names in (
            ("qos.txt", "sacctmgr-qos.txt"),
            ("assoc.txt", "sacctmgr-assoc.txt"),
            ("reservation.txt",),
        )
    )
    config, nodes, partitions = (folder / f"{name}.txt" for name in ("config", "nodes", "partitions"))
    site, _ = read_slurm(SlurmFiles(config, nodes, partitions, qos, assoc, reservations))
    actions = json.loads((folder / "workload.json").read_text())["actions"] or [[0.0]]
    known_s = epoch_s + actions[0][0]
    return replace(site, reservations=tuple(replace(rule, known=known_s) for rule in site.reservations))
