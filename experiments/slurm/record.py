"""A workload on a real Slurm, with everything that Slurm's commands export of it.

    python -m experiments.slurm.record KIND NUMBER FOLDER

FOLDER gets what was submitted (jobs.csv, workload.json, submitted.csv), the configuration (config.txt,
nodes.txt, partitions.txt, qos.txt, assoc.txt, reservation.txt), every form of accounting (sacct*.txt,
sacct.json, jobcomp.txt, scontrol-jobs.txt), the live state at two moments (live-60, live-90), the
controller's log, and last notes.json, so that a folder with it is complete. Times are UTC.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

from itertime.errors import UserError
from itertime.io import write_text

from .cluster import EmulatedCluster, absent, sealed
from .tables import csv_of
from .workloads import GPUS_PER_NODE, Request, drawn, write_workload

__all__ = ["record"]

ROOT = Path(__file__).parents[2]
LONGEST_S = 900.0
FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,State,"
    "ExitCode,Priority,ReqTRES,AllocTRES,NNodes,NodeList,Reservation,Reason,Flags,Suspended,SubmitLine"
)
QUEUE = "%i|%a|%u|%P|%q|%T|%V|%S|%e|%l|%D|%b|%Q|%r"
CONFIGURATION = {
    "config.txt": "scontrol show config",
    "nodes.txt": "scontrol show node",
    "partitions.txt": "scontrol -a show partition",
    "qos.txt": "sacctmgr show qos -P",
    "assoc.txt": "sacctmgr show assoc tree -P",
}
LIVE = {
    "squeue.txt": f"squeue -a -r -o '{QUEUE}'",
    "squeue.json": "squeue -a --json",
    "squeue-start.txt": "squeue -a --start",
    "scontrol-jobs.txt": "scontrol show job",
    "sprio.txt": "sprio -l",
    "sshare.txt": "sshare -a -l -P",
    "sdiag.txt": "sdiag",
}
SAMPLES_S = (60.0, 90.0)


def record(kind: str, number: int, folder: Path, stop: Event | None = None) -> None:
    """Run a workload in namespaces of its own, which end with it. UserError if it fails or `stop` is set."""
    if lacking := absent():
        raise UserError(f"no Slurm here: {lacking}")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stop = stop or Event()
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as base,
        tempfile.TemporaryFile("w+") as errors,
    ):
        os.chmod(base, 0o755)  # munge and the database run as other users
        words = [sys.executable, "-m", "experiments.slurm.record", kind, str(number), str(folder), base]
        process = subprocess.Popen(sealed(words), cwd=ROOT, stderr=errors)
        try:
            while process.poll() is None and not stop.wait(0.5):
                pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
                time.sleep(1.0)  # its namespaces end with it, and all daemons in them
        errors.seek(0)
        lines = errors.read().strip().splitlines()[-6:]
    if process.returncode:
        raise UserError(f"{kind}-{number}: {' / '.join(lines) or 'failed'}")


def _record_inside(kind: str, number: int, folder: Path, base: Path) -> None:
    """The run, by the first process of the namespaces."""
    workload = drawn(kind, number)
    write_workload(workload, folder)
    cluster = EmulatedCluster(workload, base)
    cluster.start()
    for name, command in CONFIGURATION.items():
        write_text(folder / name, cluster.call(command))
    load = os.getloadavg()[0]
    began_s = time.time()
    submissions = list(_submit(cluster, folder, began_s))
    _wait_until_empty(cluster, folder, began_s)
    wall_s = time.time() - began_s
    write_text(folder / "submitted.csv", csv_of(submissions))
    _export(cluster, folder, began_s)
    notes = {
        "t0_epoch": began_s,
        "wall_s": round(wall_s, 1),
        "load_first": load,
        "load_last": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "version": cluster.call("scontrol --version").strip(),
    }
    write_text(folder / "notes.json", json.dumps(notes, indent=1) + "\n")


def _submit(cluster: EmulatedCluster, folder: Path, began_s: float) -> Iterator[dict[str, Any]]:
    """Submit all requests at their times, and give the commands and take the samples that are due between.

    A row for each request: when sbatch began and returned, in seconds from the start, and the job's id.
    """
    actions = sorted(cluster.workload.actions)
    samples = list(SAMPLES_S)
    ids: dict[str, str] = {}
    for request in cluster.workload.requests:
        while (now_s := time.time() - began_s) < request.at_s:
            if actions and now_s >= actions[0][0]:
                cluster.call(actions.pop(0)[1])
                write_text(folder / "reservation.txt", cluster.call("scontrol show reservation"))
            elif samples and now_s >= samples[0]:
                _sample(cluster, folder / f"live-{samples.pop(0):.0f}")
            time.sleep(max(0.0, min(0.1, request.at_s - now_s)))
        ids[request.name] = cluster.call(_sbatch(request, ids)).strip().partition(";")[0]
        yield {
            "name": request.name,
            "job_id": ids[request.name],
            "before_s": round(now_s, 3),
            "after_s": round(time.time() - began_s, 3),
        }


def _sbatch(request: Request, ids: dict[str, str]) -> list[str]:
    nodes = max(1, request.gpus // GPUS_PER_NODE)
    options = [f"--uid={request.user}", "-J", request.name, "-o", "/dev/null", "-N", str(nodes)]
    options += ["--ntasks-per-node=1", f"--gres=gpu:a100:{min(request.gpus, GPUS_PER_NODE)}"]
    options += ["-t", str(request.limit_min), "-A", request.account]
    options += ["-p", request.partition, "-q", request.qos]
    if request.array:
        options.append(f"--array={request.array}")
    if request.depend:
        kind, _, name = request.depend.partition(":")
        options.append(f"--dependency={kind}:{ids[name]}")
    return ["sbatch", "--parsable", *options, "--wrap", f"exec sleep {request.sleep_s}"]


def _sample(cluster: EmulatedCluster, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_text(folder / "now.txt", time.strftime("%Y-%m-%dT%H:%M:%S\n", time.gmtime()))
    for name, command in LIVE.items():
        write_text(folder / name, cluster.call(command, check=False))


def _wait_until_empty(cluster: EmulatedCluster, folder: Path, began_s: float) -> None:
    """Wait for the end of all jobs but those whose dependency cannot be fulfilled any more."""
    while any(
        reason != "(DependencyNeverSatisfied)"
        for reason in cluster.call("squeue -h -a -t PD,R,CG,CF,S -o %R").splitlines()
    ):
        passed_s = time.time() - began_s
        if passed_s > LONGEST_S:
            raise UserError(f"jobs are left after {LONGEST_S:.0f} s; see {folder}")
        late = folder / f"live-{SAMPLES_S[-1]:.0f}"
        if passed_s >= SAMPLES_S[-1] and not late.exists():
            _sample(cluster, late)
        time.sleep(2.0)
    time.sleep(3.0)  # the accounting hears of the last end


def _export(cluster: EmulatedCluster, folder: Path, began_s: float) -> None:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began_s - 5))
    forms = {
        "sacct.txt": f"-X --parsable2 --format={FIELDS}",
        "sacct-duplicates.txt": f"-X -D --parsable2 --format={FIELDS}",
        "sacct-steps.txt": f"--parsable2 --format={FIELDS}",
        "sacct.json": "--json",
    }
    for name, options in forms.items():
        write_text(folder / name, cluster.call(f"sacct -a -S {since} {options}"))
    write_text(folder / "scontrol-jobs.txt", cluster.call("scontrol show job"))
    write_text(folder / "sshare.txt", cluster.call("sshare -a -l -P"))
    for name in ("etc/slurm.conf", "etc/gres.conf", "jobcomp.txt"):
        write_text(folder / Path(name).name, (cluster.base / name).read_text(encoding="utf-8"))
    log = (cluster.base / "log" / "slurmctld").read_bytes()
    (folder / "slurmctld.log.gz").write_bytes(gzip.compress(log))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind")
    parser.add_argument("number", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("base", type=Path, nargs="?", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        if arguments.base is not None:
            _record_inside(arguments.kind, arguments.number, arguments.folder, arguments.base)
        else:
            record(arguments.kind, arguments.number, arguments.folder)
    except UserError as error:
        sys.exit(str(error))
