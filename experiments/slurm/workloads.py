"""The workloads of the study: what is submitted to a real Slurm, and how that Slurm is configured.

A workload is drawn from its name, a number and nothing else. Jobs are gangs of 1 to 32 GPUs that sleep for
3 to 70 seconds (log-normal, with a median of 24); one second stands for a minute of a training. Limits are
whole minutes, as Slurm knows no shorter ones, so that most are 1 to 30 times too long. Submissions are a
Poisson process whose jobs would keep all GPUs busy for `load` times its length. All of it is an assumption.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, repeat
from math import ceil, log
from pathlib import Path
from zlib import crc32

import numpy as np

from itertime.io import write_text

from .tables import csv_of

__all__ = ["GPUS_PER_NODE", "KINDS", "Request", "Workload", "drawn", "write_workload"]

GPUS_PER_NODE = 8
CPUS_PER_NODE = 32
SIZES = (1, 2, 4, 8, 16, 32)
SIZE_SHARES = (0.30, 0.17, 0.17, 0.20, 0.10, 0.06)
LIMIT_FACTORS = (1.15, 2.0, 3.0, 6.0, 0.0)  # of the run time; 0 stands for the most that is allowed
LIMIT_SHARES = (0.35, 0.25, 0.15, 0.10, 0.15)
MOST_MINUTES = 10
ACCOUNTS = ("vision", "language", "speech")
USERS = 6


@dataclass(frozen=True)
class Request:
    """A job as it is submitted at `at_s`, seconds from the start. `array`: as in --array; `depend`: a kind of
    dependency and the name of an earlier request, as in afterok:j003.
    """

    name: str
    at_s: float
    gpus: int
    sleep_s: int
    limit_min: int
    user: str
    account: str
    partition: str = "gpu"
    qos: str = "normal"
    array: str = ""
    depend: str = ""


@dataclass(frozen=True)
class Workload:
    """Requests in order of submission, and the Slurm that they meet.

    | field | |
    |---|---|
    | `conf`, `partitions` | lines of slurm.conf |
    | `accounts` | the shares of accounts |
    | `sacctmgr` | further commands of sacctmgr |
    | `actions` | commands, by the second at which they are given |
    """

    name: str
    nodes: int
    conf: tuple[str, ...]
    partitions: tuple[str, ...]
    accounts: Mapping[str, int]
    sacctmgr: tuple[str, ...]
    actions: tuple[tuple[float, str], ...]
    requests: tuple[Request, ...] = field(repr=False)


Rng = np.random.Generator
Requests = Sequence[Request]


@dataclass(frozen=True)
class Kind:
    """What distinguishes workloads. `about` is its line of the page; `alter` changes the drawn requests."""

    about: str
    conf: tuple[str, ...]
    load: float = 1.2
    nodes: int = 16
    window_s: float = 100.0
    shares: tuple[int, ...] = (1, 1, 1)
    partitions: tuple[str, ...] = ("PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 State=UP",)
    sacctmgr: tuple[str, ...] = ()
    actions: tuple[tuple[float, str], ...] = ()
    alter: Callable[[Rng, Requests], Requests] = lambda _, requests: requests


def drawn(kind: str, number: int) -> Workload:
    """The workload of a kind and a number: the same one at every call."""
    settings = KINDS[kind]
    rng = np.random.default_rng([crc32(kind.encode()), number])
    requests = settings.alter(rng, tuple(_requests(rng, settings)))
    return Workload(
        f"{kind}-{number}",
        settings.nodes,
        settings.conf,
        settings.partitions,
        dict(zip(ACCOUNTS, settings.shares, strict=True)),
        settings.sacctmgr,
        settings.actions,
        tuple(sorted(requests, key=lambda request: request.at_s)),
    )


def write_workload(workload: Workload, folder: Path) -> None:
    """jobs.csv with a row for each request, and workload.json with the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = asdict(workload)
    rows = entries.pop("requests")
    write_text(folder / "workload.json", json.dumps(entries, indent=1) + "\n")
    write_text(folder / "jobs.csv", csv_of(rows))


def _requests(rng: Rng, kind: Kind) -> Iterator[Request]:
    """Requests until their work fills the GPUs for `load` times the length of the window."""
    work = kind.load * kind.nodes * GPUS_PER_NODE * kind.window_s
    shapes = [(int(rng.choice(SIZES, p=SIZE_SHARES)), _sleep_s(rng)) for _ in repeat(None, int(work // 30))]
    works = accumulate(gpus * sleep_s for gpus, sleep_s in shapes)
    count = next(number for number, total in enumerate(works, 1) if total >= work)
    times = np.sort(rng.uniform(0.0, kind.window_s, count))
    for number, ((gpus, sleep_s), at_s) in enumerate(zip(shapes, times, strict=False), 1):
        user = min(USERS - 1, int(rng.exponential(1.8)))
        account = ACCOUNTS[user % len(ACCOUNTS)]
        limit_min, sleeps_s = _limit(rng, sleep_s)
        yield Request(
            f"j{number:03d}", round(float(at_s), 2), gpus, sleeps_s, limit_min, f"user{user + 1}", account
        )


def _sleep_s(rng: Rng) -> int:
    return int(min(70, max(3, round(rng.lognormal(log(24), 0.75)))))


def _limit(rng: Rng, sleep_s: int) -> tuple[int, int]:
    """The limit in minutes, and the run time in seconds: a few jobs of a minute's limit outlive it."""
    factor = float(rng.choice(LIMIT_FACTORS, p=LIMIT_SHARES))
    limit_min = min(MOST_MINUTES, max(1, ceil(sleep_s * factor / 60))) if factor else MOST_MINUTES
    outlives = rng.random() < 0.03 and limit_min == 1
    return limit_min, 80 if outlives else sleep_s


# What kinds do to requests


def _in_tiers(rng: Rng, requests: Requests) -> Requests:
    """15 % of the jobs are urgent, and a fifth of the small ones have nodes of their own."""

    def partition(request: Request, draw: float) -> str:
        if draw < 0.15:
            return "urgent"
        return "small" if draw < 0.35 and request.gpus <= GPUS_PER_NODE else "gpu"

    return [replace(r, partition=partition(r, float(rng.random()))) for r in requests]


def _with_qos(rng: Rng, requests: Requests) -> Requests:
    return [replace(r, qos=str(rng.choice(("low", "normal", "high"), p=(0.5, 0.35, 0.15)))) for r in requests]


def _some_high(rng: Rng, requests: Requests) -> Requests:
    return [replace(r, qos="high" if rng.random() < 0.2 else "normal") for r in requests]


def _with_arrays_and_dependencies(rng: Rng, requests: Requests) -> Requests:
    """Five arrays, of which most may run few tasks at once; 15 % of the other jobs wait for earlier ones."""
    altered = list(requests)
    for number in range(5):
        template = altered[int(rng.integers(5, len(requests) - 12))]
        throttle = int(rng.choice((2, 3, 20)))
        altered.append(
            replace(
                template,
                name=f"a{number}",
                array=f"0-{rng.integers(4, 9)}%{throttle}",
                gpus=int(rng.choice((1, 2, 4, 8))),
                sleep_s=int(rng.integers(8, 25)),
                limit_min=1,
            )
        )
    altered.sort(key=lambda request: request.at_s)
    for place, request in enumerate(altered):
        if place > 10 and rng.random() < 0.15 and not request.array:
            dependency = altered[place - int(rng.integers(1, 10))]
            how = str(rng.choice(("afterok", "afterany", "after")))
            altered[place] = replace(request, depend=f"{how}:{dependency.name}")
    return altered


# Kinds

_BACKFILL = (
    "SchedulerType=sched/backfill",
    "SchedulerParameters=bf_interval=1,bf_resolution=1,bf_max_job_test=1000,bf_continue,"
    "batch_sched_delay=0,sched_interval=2",
)
_BASIC = ("PriorityType=priority/basic",)
_MULTIFACTOR = (
    "PriorityType=priority/multifactor",
    "PriorityCalcPeriod=00:01:00",
    "PriorityMaxAge=00:05:00",
    "PriorityDecayHalfLife=00:02:00",
)
_FAIR = ("PriorityWeightAge=1000", "PriorityWeightFairshare=10000")

KINDS: Mapping[str, Kind] = {
    "fifo": Kind(
        "in order of submission",
        ("SchedulerType=sched/builtin", "SchedulerParameters=batch_sched_delay=0,sched_interval=2", *_BASIC),
        load=1.0,
    ),
    "backfill": Kind("backfilling, in order of submission", (*_BACKFILL, *_BASIC)),
    "agesize": Kind(
        "priority by age (1000) and size (2000)",
        (*_BACKFILL, *_MULTIFACTOR, "PriorityWeightAge=1000", "PriorityWeightJobSize=2000"),
    ),
    "fairshare": Kind(
        "priority by age (1000) and Fair Tree (10000), shares 1:2:5",
        (*_BACKFILL, *_MULTIFACTOR, *_FAIR),
        shares=(1, 2, 5),
    ),
    "tiers": Kind(
        "three overlapping partitions, one of a higher tier",
        (*_BACKFILL, *_MULTIFACTOR, "PriorityWeightAge=1000", "PriorityWeightPartition=500"),
        partitions=(
            "PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 State=UP",
            "PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 PriorityJobFactor=10 State=UP",
            "PartitionName=small Nodes=n[01-04] MaxTime=60 PriorityTier=1 PriorityJobFactor=5 State=UP",
        ),
        alter=_in_tiers,
    ),
    "preempt": Kind(
        "preemption between three QOS, victims are requeued",
        (
            *_BACKFILL,
            *_MULTIFACTOR,
            "PriorityWeightAge=100",
            "PriorityWeightQOS=10000",
            "PreemptType=preempt/qos",
            "PreemptMode=REQUEUE",
            "JobRequeue=1",
        ),
        load=1.1,
        sacctmgr=(
            "add qos low Priority=0",
            "modify qos normal set Priority=10 Preempt=low",
            "add qos high Priority=100 Preempt=low,normal",
        ),
        alter=_with_qos,
    ),
    "limits": Kind(
        "limits of an account, of users and of a QOS",
        (*_BACKFILL, *_MULTIFACTOR, *_FAIR),
        sacctmgr=(
            "modify account vision set GrpTRES=gres/gpu=64",
            "modify user user2 set MaxJobs=3",
            "modify user user3 set GrpTRES=gres/gpu=24",
            "modify qos normal set MaxTRESPerUser=gres/gpu=56",
        ),
    ),
    "site": Kind(
        "a reservation, arrays with a throttle, dependencies",
        (*_BACKFILL, *_MULTIFACTOR, "PriorityWeightAge=1000", "PriorityWeightJobSize=200"),
        load=0.8,
        actions=(
            (
                5.0,
                "scontrol create reservation ReservationName=maint StartTime=now+50seconds Duration=1 "
                "Nodes=n[11-16] Flags=MAINT,IGNORE_JOBS Users=root",
            ),
        ),
        alter=_with_arrays_and_dependencies,
    ),
    "backfill64": Kind(
        "backfilling, in order of submission, 64 nodes",
        (*_BACKFILL, *_BASIC),
        nodes=64,
        window_s=160.0,
    ),
    "fairshare64": Kind(
        "Fair Tree, 64 nodes", (*_BACKFILL, *_MULTIFACTOR, *_FAIR), nodes=64, window_s=160.0, shares=(1, 2, 5)
    ),
    "sample": Kind(
        "the bundled exports of the tutorial: 8 nodes, a limit of a user and one of a QOS",
        (*_BACKFILL, *_MULTIFACTOR, *_FAIR, "PriorityWeightQOS=2000"),
        load=1.15,
        nodes=8,
        window_s=200.0,
        shares=(1, 1, 2),
        sacctmgr=(
            "modify qos normal set MaxTRESPerUser=gres/gpu=32",
            "add qos high Priority=100 MaxTRESPerUser=gres/gpu=16",
        ),
        alter=_some_high,
    ),
}
