"""Parallel efficiency of `clustersim grid`: 200 cells of 1 to 2 seconds on 2 workers; the cost of tiny cells.

python benchmarks/grid.py --cells 200 --workers 2
python benchmarks/grid.py --tiny

Two measurements, because a shared machine stretches wall-clock time:

- slots: cells that sleep, so that other load on the machine hardly matters. Efficiency = seconds requested
  by the cells / (workers x seconds from the first cell's start to the last one's end).
- processor: cells that compute. Efficiency = processor time requested by the cells / processor time of
  client, scheduler, fork servers and cells together, start-up included.

`--tiny` prints rows of docs/performance.md: the processor time of one more cell of 20 jobs without bound. It
counts all processes and the tables, as the difference of two grids over that of their numbers of cells.
Beside it stands that of a plain loop of `clustersim.run` over the same jobs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import pandas as pd
import yaml

import clustersim
from traces.synthetic import Recipe, generate

POLICY = '''
import time
from clustersim import Scheduler

class Works(Scheduler):
    """Sleep or compute for a while at the first decision."""

    def __init__(self, work_s=1.0, sleeps=True):
        self.work_s, self.sleeps = work_s, sleeps

    def schedule(self, state):
        if self.sleeps:
            time.sleep(self.work_s)
        else:
            until = time.process_time() + self.work_s
            while time.process_time() < until:
                pass
        self.work_s = 0.0
        proposal = state.proposal()
        proposal.run_by(lambda job: job.order)
        return proposal
'''
TINY = "{jobs: 20, gpus: 16, load: 1.0, rules: none, sizes: itp-8h}"
TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\n"


def measure(cells: int, workers: int, sleeps: bool) -> tuple[float, float, float]:
    """Seconds of work requested by the cells, of wall-clock time, and of total processor time."""
    work_s = [round(1.0 + 0.1 * k, 1) for k in range(10)]
    seeds = max(1, cells // len(work_s))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "works.py").write_text(POLICY)
        (folder / "t.csv").write_text(TRACE)
        (folder / "g.yaml").write_text(
            f"set: {{trace: t.csv, cluster: n1g8, policy: 'works.py:Works', policy.sleeps: {sleeps}}}\n"
            f"matrix: {{policy.work_s: {work_s}}}\nseeds: {seeds}\n"
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = perf_counter()
        command = [sys.executable, "-m", "clustersim", "grid", "g.yaml", "--workers", str(workers)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        wall_s = perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = sorted(p.stat().st_mtime for p in (folder / "g" / "cells").glob("*/cell.json"))
        assert len(times) == len(work_s) * seeds
        span_s = times[-1] - times[0]
        cells_cpu_s = float(pd.read_csv(folder / "g" / "timings.csv")["cpu_s"].sum())
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  wall clock {wall_s:.1f} s, of it start-up and tables {wall_s - span_s - work_s[0]:.1f} s")
    print(f"  processor time: {cells_cpu_s:.1f} s in cells, {cpu_s - cells_cpu_s:.1f} s around them")
    return sum(work_s) * seeds, span_s + work_s[0], cpu_s


def grid_cpu_s(seeds: int, keep: str) -> float:
    """Processor time of a grid of tiny cells under two loads, of all its processes."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, "g.yaml").write_text(
            f"set: {{cluster: n2g8, bound: none, policy: fifo, trace: {TINY}}}\n"
            f"matrix: {{trace.load: [1.0, 1.1]}}\nseeds: {seeds}\nkeep: {keep}\n"
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "clustersim", "grid", "g.yaml", "--workers", "1", "--no-report"]
        subprocess.run(command, cwd=name, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loop_cpu_s(seeds: int) -> float:
    """Processor time of one run in a plain loop over the same jobs."""

    def run_all(count: int) -> None:
        for seed in range(count):
            for load in (1.0, 1.1):
                jobs, _ = generate(Recipe(**{**yaml.safe_load(TINY), "load": load}, seed=seed))
                clustersim.run(jobs, "fifo", cluster="n2g8", bound="none", seed=seed)

    run_all(2)
    began = process_time()
    run_all(seeds)
    return (process_time() - began) / (2 * seeds)


def print_tiny() -> None:
    few, many = 20, 320
    loop_s = loop_cpu_s(many // 2)
    print(f"| a plain loop of `run` | 1.0 | {1000 * loop_s:.1f} ms |")
    for keep in ("rows", "runs"):
        cell_s = (grid_cpu_s(many, keep) - grid_cpu_s(few, keep)) / (2 * (many - few))
        print(f"| a grid, `keep: {keep}` | {cell_s / loop_s:.1f} | {1000 * cell_s:.1f} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="the cost of tiny cells instead")
    arguments = parser.parse_args()
    if arguments.tiny:
        print_tiny()
        return
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for sleeps in (True, False):
        print("cells that sleep:" if sleeps else "cells that compute:")
        work_s, span_s, cpu_s = measure(arguments.cells, arguments.workers, sleeps)
        print(f"  {work_s:.0f} s of work in {span_s:.1f} s on {arguments.workers} workers")
        efficiency = work_s / (arguments.workers * span_s) if sleeps else work_s / cpu_s
        print(f"  efficiency of {'slots' if sleeps else 'processor time'}: {efficiency:.1%}")


if __name__ == "__main__":
    main()
