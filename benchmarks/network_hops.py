"""Delay of a large message per hop between nodes, from measured collectives over EFA.

    python benchmarks/network_hops.py [FOLDER]

FOLDER holds the tables of operators. The growth of the delay with the message is fitted to nccl-tests'
all-reduce on two nodes of 8 A100 (`a100_allreduce.csv.gz`, 8 bytes to 2 GB): a + b S + c S/(S + h); h is
the constant `BULK_BYTES` of `itertime.costs.network.collectives`.

The delay of a hop is fitted to bus bandwidths of 256 MB all-reduce, all-gather and reduce-scatter on 1 to 64
nodes of 8 H100 (nanotron's playbook, in `bandwidth_points.csv.gz`). The time that more nodes add to that of
one node is compared with the formulas of `itertime.costs`, under every `network_bulk_latency_s` of a
grid. The value with the least mean |log| of predicted over measured is that of the system `p5-48xlarge`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from itertime import System, load_profile, load_system
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s, reduce_scatter_s

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
SITE = "nanotron-ultrascale-playbook"
BYTES = 256e6
OPERATIONS = {
    "AllReduce": (all_reduce_s, 2),
    "AllGather": (all_gather_s, 1),
    "ReduceScatter": (reduce_scatter_s, 1),
}  # times that the buffer passes a rank
GRID = np.arange(0, 1001, 5) * 1e-6


def half_size(path: Path) -> tuple[float, float]:
    """Bytes at which half of the surplus is reached, and the mean |log| of the fit."""
    with gzip.open(path, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "EFA" in row["gpu"]]
    size, seconds = (np.array([float(row[name]) for row in rows]) for name in ("bytes", "time_us"))

    def misses(logs: np.ndarray) -> np.ndarray:
        start, slope, surplus, half = np.exp(logs)
        return np.log((start + slope * size + surplus * size / (size + half)) / seconds)

    # start: smallest message, 50 GB/s, a millisecond, 1 MB; a robust loss, because two rows are outliers
    found = least_squares(misses, np.log([seconds[0], 4e-5, 1e3, 1e6]), loss="soft_l1", f_scale=0.05)
    return float(np.exp(found.x[3])), float(np.abs(misses(found.x)).mean())


def measured(path: Path) -> dict[tuple[str, int], float]:
    """Seconds by operation and number of nodes."""
    found = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"].startswith(SITE):
                nodes = int(re.findall(r"nodes=(\d+)", row["key"])[0])
                passed = OPERATIONS[row["kind"]][1] * (8 * nodes - 1) / (8 * nodes) * BYTES
                found[row["kind"], nodes] = passed / (float(row["GBps"]) * 1e9)
    return found


def ratios(points: dict[tuple[str, int], float], system: System) -> dict[tuple[str, int], float]:
    """Predicted over measured, on more than one node; the time on one node is the measured one."""
    profile = load_profile(system.profile)
    found = {}
    for (kind, nodes), seconds in points.items():
        operation = OPERATIONS[kind][0]
        if nodes > 1:
            one, many = (
                float(operation(BYTES, Group(8 * n, 8), Fabric(system, profile))) for n in (1, nodes)
            )
            found[kind, nodes] = (points[kind, 1] + many - one) / seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data" / "operators")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder; give the one that holds the tables of operators")
    size, error = half_size(folder / "a100_allreduce.csv.gz")
    print(f"half of the surplus at {size / 1e6:.1f} MB, mean |log| {error:.3f}")
    points, system = measured(folder / "bandwidth_points.csv.gz"), load_system("p5-48xlarge")
    errors = []
    for latency in GRID:
        trial = replace(system, network_bulk_latency_s=float(latency))
        errors.append(np.mean([abs(np.log(each)) for each in ratios(points, trial).values()]))
    best = int(np.argmin(errors))
    print(f"network_bulk_latency_s {GRID[best] * 1e6:.0f} us, mean |log| {errors[best]:.3f}")
    print(f"without one: mean |log| {errors[0]:.3f}")
    print(f"predicted over measured at the {system.network_bulk_latency_s * 1e6:.0f} us of the system:")
    profile = load_profile(system.profile)
    for kind, (operation, _) in OPERATIONS.items():
        ratio = float(operation(BYTES, Group(8, 8), Fabric(system, profile))) / points[kind, 1]
        print(f"  {kind:14}   1 node,  {points[kind, 1] * 1e3:6.2f} ms measured: {ratio:.2f} (the profile)")
    for (kind, nodes), ratio in ratios(points, system).items():
        print(f"  {kind:14} {nodes:3} nodes, {points[kind, nodes] * 1e3:6.2f} ms measured: {ratio:.2f}")


if __name__ == "__main__":
    main()
