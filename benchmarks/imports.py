"""Cost of importing long job logs: wall time, processor time and peak memory of `clustersim trace import`.

python benchmarks/imports.py --rows 100000
python benchmarks/imports.py --rows 1000000 --formats helios philly kueue

Each log is synthetic, in the form that its format has in the wild: `helios` is a CSV table with dates,
`slurm` what sacct prints, `swf` white-space columns. `philly`, `kubernetes-pods`, `kueue`, `volcano` and
`slurm-json` are JSON, indented as `kubectl` and `squeue` print it. All state the same jobs. Every import is a
process of its own, started after its log is written.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO

EPOCH_S = 1_600_000_000
USERS, GROUPS = 400, 30


class Row(NamedTuple):
    """A job: submission, start and end in s since 1970."""

    number: int
    user: str
    group: str
    gpus: int
    submit_s: int
    start_s: int
    end_s: int


def rows(count: int) -> Iterator[Row]:
    """Jobs of 1 to 64 GPUs, one every 10 s on average."""
    draw, at = random.Random(0), EPOCH_S
    for number in range(1, count + 1):
        at += int(draw.expovariate(0.1))
        start = at + int(draw.expovariate(0.002))
        run = 1 + int(draw.lognormvariate(6.5, 1.8))
        user = draw.randrange(USERS)
        yield Row(number, f"u{user}", f"g{user % GROUPS}", 2 ** draw.randrange(7), at, start, start + run)


def date(seconds: int, separator: str = " ", zone: str = "") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(f"%Y-%m-%d{separator}%H:%M:%S{zone}")


def rfc(seconds: int) -> str:
    return date(seconds, "T", "Z")


def helios(count: int, file: TextIO) -> None:
    file.write(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    )
    for r in rows(count):
        moments = ",".join(date(s) for s in (r.submit_s, r.start_s, r.end_s))
        nodes = max(1, r.gpus // 8)
        spans = f"{r.end_s - r.start_s},{r.start_s - r.submit_s}"
        file.write(
            f"{r.number},{r.user},{r.group},{r.gpus},{4 * r.gpus},{nodes},COMPLETED,{moments},{spans}\n"
        )


def slurm(count: int, file: TextIO) -> None:
    names = "JobIDRaw User Account Partition QOS Submit Start End ElapsedRaw TimelimitRaw NNodes ReqTRES"
    file.write("|".join([*names.split(), "AllocTRES", "State", "Priority"]) + "\n")
    for r in rows(count):
        moments = [date(s, "T") for s in (r.submit_s, r.start_s, r.end_s)]
        tres = f"billing={r.gpus},cpu={8 * r.gpus},gres/gpu={r.gpus},mem={64 * r.gpus}G,node=1"
        run = r.end_s - r.start_s
        cells = [
            r.number,
            r.user,
            r.group,
            "gpu",
            "normal",
            *moments,
            run,
            2880,
            1,
            tres,
            tres,
            "COMPLETED",
            100,
        ]
        file.write("|".join(map(str, cells)) + "\n")


def swf(count: int, file: TextIO) -> None:
    file.write("; Version: 2.2\n; UnixStartTime: 1600000000\n; MaxProcs: 4096\n")
    for r in rows(count):
        spans = f"{r.submit_s - EPOCH_S} {r.start_s - r.submit_s} {r.end_s - r.start_s}"
        user, group = r.user[1:], r.group[1:]
        file.write(f"{r.number} {spans} {r.gpus} -1 -1 {r.gpus} 172800 -1 1 {user} {group} -1 1 1 -1 -1\n")


def philly_job(r: Row) -> dict[str, Any]:
    held = [
        {"ip": f"m{n}", "gpus": [f"gpu{i}" for i in range(min(8, r.gpus))]} for n in range(-(-r.gpus // 8))
    ]
    attempt = {"start_time": date(r.start_s), "end_time": date(r.end_s), "detail": held}
    name = f"application_1506638472019_{r.number}"
    return {
        "status": "Pass", "vc": r.group, "jobid": name, "attempts": [attempt],
        "submitted_time": date(r.submit_s), "user": r.user,
    }  # fmt: skip


def pod(r: Row) -> dict[str, Any]:
    gpus = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": str(min(r.gpus, 8))}
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": rfc(r.start_s), "finishedAt": rfc(r.end_s)}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc(r.start_s)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{r.number}", "controller": True}
    container = {"name": "main", "image": "registry/train:1", "resources": {"limits": gpus, "requests": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{r.number}-0",
            "namespace": r.group,
            "creationTimestamp": rfc(r.submit_s),
            "labels": {"app": "train", "user": r.user},
            "ownerReferences": [owner],
            "uid": f"0000-{r.number}",
        },
        "spec": {"containers": [container], "nodeName": "node-1", "priority": 0, "restartPolicy": "Never"},
        "status": {
            "phase": "Succeeded",
            "startTime": rfc(r.start_s),
            "conditions": [{"type": "Initialized", "status": "True"}, scheduled],
            "containerStatuses": [{"name": "main", "ready": False, "state": {"terminated": ended}}],
        },
    }


def workload(r: Row) -> dict[str, Any]:
    gpus = {"cpu": "8", "nvidia.com/gpu": str(r.gpus)}
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": gpus}}
    assigned = {"name": "main", "count": 1, "flavors": {"nvidia.com/gpu": "a100"}, "resourceUsage": gpus}
    since = {"QuotaReserved": r.start_s, "Admitted": r.start_s, "Finished": r.end_s}
    conditions = [
        {
            "type": kind,
            "status": "True",
            "lastTransitionTime": rfc(at),
            "reason": kind,
            "message": "as stated",
        }
        for kind, at in since.items()
    ]
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"job-{r.number}", "namespace": r.group, "creationTimestamp": rfc(r.submit_s)},
        "spec": {
            "queueName": r.group,
            "priority": 0,
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": {
            "admission": {"clusterQueue": "all", "podSetAssignments": [assigned]},
            "conditions": conditions,
        },
    }


def volcano_job(r: Row) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(r.gpus)}}}
    task = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    states = {"Pending": r.submit_s, "Running": r.start_s, "Completed": r.end_s}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"job-{r.number}", "namespace": r.group, "creationTimestamp": rfc(r.submit_s)},
        "spec": {"queue": r.group, "minAvailable": 1, "tasks": [task]},
        "status": {
            "state": {"phase": "Completed", "lastTransitionTime": rfc(r.end_s)},
            "conditions": [{"status": kind, "lastTransitionTime": rfc(at)} for kind, at in states.items()],
        },
    }


def slurm_job(r: Row) -> dict[str, Any]:
    def number(value: int) -> dict[str, Any]:
        return {"set": True, "infinite": False, "number": value}

    return {
        "job_id": r.number, "job_state": ["COMPLETED"], "account": r.group, "user_name": r.user,
        "partition": "gpu", "qos": "normal", "priority": number(100), "state_reason": "None",
        "submit_time": number(r.submit_s), "start_time": number(r.start_s), "end_time": number(r.end_s),
        "time_limit": number(2880), "tres_alloc_str": f"cpu=8,gres/gpu={r.gpus}", "node_count": number(1),
    }  # fmt: skip


def indented(
    of_job: Callable[[Row], dict[str, Any]], before: str, after: str
) -> Callable[[int, TextIO], None]:
    """A writer of one JSON text with every job in it, indented by four spaces."""

    def write(count: int, file: TextIO) -> None:
        file.write(before)
        for r in rows(count):
            text = json.dumps(of_job(r), indent=4).replace("\n", "\n        ")
            file.write(("        " if r.number == 1 else ",\n        ") + text)
        file.write(after)

    return write


LIST = '{\n    "apiVersion": "v1",\n    "kind": "List",\n    "items": [\n', "\n    ]\n}\n"
FORMATS: dict[str, Callable[[int, TextIO], None]] = {
    "helios": helios,
    "slurm": slurm,
    "swf": swf,
    "philly": indented(philly_job, "[\n", "\n]\n"),
    "kubernetes-pods": indented(pod, *LIST),
    "kueue": indented(workload, *LIST),
    "volcano": indented(volcano_job, *LIST),
    "slurm-json": indented(slurm_job, '{\n    "jobs": [\n', "\n    ]\n}\n"),
}


def measured(words: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak MiB of a command that succeeds."""
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    return wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--table", action="store_true", help="print rows of docs/performance.md")
    parser.add_argument("--folder", type=Path, help="keep the logs here, and use those that are there")
    options = parser.parse_args()
    if not options.table:
        print(f"{'':<18}{'rows':>10}{'MB':>8}{'wall s':>8}{'CPU s':>8}{'us/row':>8}{'peak memory':>14}")
    with tempfile.TemporaryDirectory() as home:
        folder = options.folder or Path(home)
        for name in options.formats:
            log, jobs = folder / f"{name}-{options.rows}", Path(home) / "jobs.csv"
            if not log.exists():
                with log.open("w", encoding="utf-8") as file:
                    FORMATS[name](options.rows, file)
            words = [sys.executable, "-m", "clustersim", "trace", "import", str(log), "-o", str(jobs)]
            wall_s, cpu_s, mib = measured(words)
            found = json.loads((Path(home) / "jobs.import.json").read_text())
            assert (found["format"], found["counts"]["jobs"]) == (name, options.rows)
            size, each = log.stat().st_size / 1e6, cpu_s / options.rows * 1e6
            text = f"{name:<18}{options.rows:>10,}{size:>8,.0f}{wall_s:>8.1f}{cpu_s:>8.1f}{each:>8.1f}"
            if options.table:
                text = f"| {name} | {options.rows:,} | {each:.0f} us | {mib:,.0f} MiB |"
            print(text if options.table else f"{text}{mib:>10,.0f} MiB", flush=True)
            if options.folder is None:
                log.unlink()


if __name__ == "__main__":
    main()
