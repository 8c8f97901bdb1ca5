"""Recorded runs of a real Slurm, as `record` writes them: the site, the jobs, and what the controller's log
says of each step.

A folder holds jobs.csv (as to be submitted), submitted.csv (job ids, and when sbatch returned),
sacct-duplicates.txt (every run of every job), slurm.conf and config.txt (scontrol show config), workload.json
(commands of sacctmgr and scontrol), reservation.txt, and slurmctld.log.gz.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from clustersim.sites import (
    FOLLOWED_OPTIONS,
    Association,
    Partition,
    Qos,
    Settings,
    SiteNode,
    SiteReservation,
    SlurmSite,
)

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
    return RecordedRun(folder, epoch_s, began_s - epoch_s, _site(folder, jobs, epoch_s), jobs)


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
            began_s + float(submitted[array_id]["after_s"]) - 0.01,
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


def _site(folder: Path, jobs: tuple[RecordedJob, ...], epoch_s: float) -> SlurmSite:
    workload = json.loads((folder / "workload.json").read_text())
    nodes = tuple(SiteNode(f"n{number:02d}", GPUS_PER_NODE, "a100", 32) for number in range(1, 17))
    users = sorted({(job.account, job.user) for job in jobs})
    limits: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    qos = _qos_and_limits(workload["sacctmgr"], limits)
    accounts = [
        Association(name, "root", Share=share, limits=limits["account", name])
        for name, share in workload["accounts"].items()
    ]
    members = [Association(account, user=user, limits=limits["user", user]) for account, user in users]
    return SlurmSite(
        workload["name"],
        nodes,
        dict(_partitions(workload["partitions"])),
        qos,
        (Association("root"), *accounts, *members),
        tuple(_reservations(folder, epoch_s + (workload["actions"] or [[0]])[0][0])),
        _settings(folder),
    )


def _qos_and_limits(commands: list[str], limits: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Qos]:
    qos: dict[str, dict[str, Any]] = {"normal": {}}
    for command in commands:
        if match := re.match(r"(?:add qos (\w+)|modify qos (\w+) set) (.*)", command):
            entry = qos.setdefault(match[1] or match[2], {})
            for key, value in re.findall(r"(\w+)=(\S+)", match[3]):
                if key == "MaxTRESPerUser":
                    name, _, amount = value.partition("=")
                    entry["limits"] = {key: {name: float(amount)}}
                else:
                    entry[key] = int(value) if key == "Priority" else tuple(value.split(","))
        elif match := re.match(r"modify (account|user) (\w+) set (\w+)=(\S+)", command):
            name, _, amount = match[4].rpartition("=")
            limits[match[1], match[2]][match[3]] = {name: float(amount)} if name else int(amount)
    return {name: Qos(**values) for name, values in qos.items()}


def _partitions(lines: list[str]) -> Iterator[tuple[str, Partition]]:
    for line in lines:
        values = dict(re.findall(r"(\w+)=(\S+)", line))
        yield (
            values["PartitionName"],
            Partition(
                tuple(f"n{number + 1:02d}" for number in nodes_of_text(values["Nodes"])),
                PriorityTier=int(values.get("PriorityTier", 1)),
                PriorityJobFactor=int(values.get("PriorityJobFactor", 1)),
                Default=values.get("Default") == "YES",
                MaxTime=60.0 * int(values["MaxTime"]),
            ),
        )


def _reservations(folder: Path, known_s: float) -> Iterator[SiteReservation]:
    path = folder / "reservation.txt"
    if path.exists():
        values = dict(re.findall(r"(\w+)=(\S+)", path.read_text()))
        yield SiteReservation(
            values["ReservationName"],
            seconds(values["StartTime"]),
            seconds(values["EndTime"]),
            tuple(f"n{number + 1:02d}" for number in nodes_of_text(values["Nodes"])),
            Flags=tuple(values["Flags"].split(",")),
            known=known_s,
        )


def _settings(folder: Path) -> Settings:
    """The settings of config.txt that the runs vary."""
    config = dict(re.findall(r"(?m)^(\w+)\s*= (.*?)\s*$", (folder / "config.txt").read_text()))
    parameters: dict[str, Any] = {}
    for word in config["SchedulerParameters"].split(","):
        key, _, value = word.partition("=")
        if key in FOLLOWED_OPTIONS:
            parameters[key] = int(value) if value else True
    weights = {
        f"PriorityWeight{key}": int(config[f"PriorityWeight{name}"])
        for key, name in (
            ("Age", "Age"),
            ("Fairshare", "FairShare"),
            ("JobSize", "JobSize"),
            ("Partition", "Partition"),
            ("QOS", "QOS"),
        )
        if f"PriorityWeight{name}" in config
    }
    times = {
        key: _clock(config[key])
        for key in ("PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod")
        if key in config
    }
    return Settings(
        SchedulerType=config["SchedulerType"],
        SchedulerParameters=parameters,
        PriorityType=config["PriorityType"],
        PreemptType=config["PreemptType"],
        PreemptMode=config["PreemptMode"],
        AccountingStorageEnforce=tuple(config["AccountingStorageEnforce"].split(",")),
        KillWait=float(config["KillWait"].split()[0]),
        **weights,
        **times,
    )


def _clock(text: str) -> float:
    """Seconds of `[days-]hours:minutes:seconds`."""
    days, _, clock = text.rpartition("-")
    hours, minutes, remainder_s = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60.0 + remainder_s
