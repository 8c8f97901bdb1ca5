"""Cost of a long trace: process time and peak memory of reading it, of a run over it and of its check.

python benchmarks/trace.py --jobs 100000 1000000
python benchmarks/trace.py --jobs 1000000 --policy srtf --no-run

The jobs are those of `benchmarks/engine.py`: rigid, 1 to 64 GPUs, load 0.9 on 1,024 GPUs. They are written as
a native CSV in order of submission and once more with its rows shuffled. Every line of the table is a process
of its own: Python with the packages loaded (included in all other lines), reading the trace as `clustersim
run` does (once from the shuffled file), reading it and iterating over its jobs, reading it as a list, and the
commands `clustersim run --out`, `check` and `explain` of the job in the middle.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTS = "import sys; from clustersim.runs.run import Trace; from traces import read_trace"
STEPS = {
    "packages": ("in-order.csv", ""),
    "read": ("in-order.csv", "trace = Trace.read(sys.argv[1])"),
    "read, shuffled": ("shuffled.csv", "trace = Trace.read(sys.argv[1])"),
    "read and go through": ("in-order.csv", "for job in Trace.read(sys.argv[1]).jobs: pass"),
    "the same, shuffled": ("shuffled.csv", "for job in Trace.read(sys.argv[1]).jobs: pass"),
    "read as a list": ("in-order.csv", "jobs = read_trace(sys.argv[1])"),
}


def write(folder: Path, count: int) -> None:
    """The two files, written by a process of their own so that the others do not inherit its memory."""
    from random import Random

    from engine import CLUSTER, rigid_jobs

    from clustersim.cluster import Cluster
    from traces import write_trace

    jobs = list(rigid_jobs(count, Cluster.parse(CLUSTER), 0))
    write_trace(jobs, folder / "in-order.csv")
    Random(0).shuffle(jobs)
    write_trace(jobs, folder / "shuffled.csv")


def measured(words: list[str]) -> tuple[float, float]:
    """Seconds of process time and peak MiB of a command that succeeds."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000])
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--no-run", action="store_true", help="only read")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.jobs[0])
        return
    print(f"{'':<24}{'jobs':>11}{'seconds':>9}{'jobs/s':>10}{'peak memory':>14}")
    for count in options.jobs:
        with tempfile.TemporaryDirectory() as home:
            ourselves = [sys.executable, __file__, "--jobs", str(count), "--write", home]
            subprocess.run(ourselves, check=True)
            steps = {
                name: [sys.executable, "-c", f"{IMPORTS}\n{step}", f"{home}/{file}"]
                for name, (file, step) in STEPS.items()
            }
            clustersim = [sys.executable, "-m", "clustersim"]
            run = [
                f"{home}/in-order.csv",
                "--policy",
                options.policy,
                "--no-overheads",
                "--out",
                f"{home}/run",
            ]
            if not options.no_run:
                steps["clustersim run"] = [*clustersim, "run", *run]
                steps["clustersim check"] = [*clustersim, "check", f"{home}/run"]
                middle = str(count // 2)
                steps["clustersim explain"] = [*clustersim, "explain", f"{home}/run", "--job", middle]
            for name, words in steps.items():
                seconds, mib = measured(words)
                rate = "" if name == "packages" else f"{count / seconds:,.0f}"
                print(f"{name:<24}{count:>11,}{seconds:>9.1f}{rate:>10}{mib:>10,.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
