"""All-reduces over several nodes of H100: predicted against measured, and the constants of `dgx-h100`.

    python benchmarks/multi_node.py [FILE]

FILE is `collectives_multi_node.csv`: all-reduces of nccl-tests on 16 to 1,024 GPUs, from six sources. The
efficiency of the NICs, the two latencies of a hop and the step of a ring are those of a grid with the least
mean |log| of predicted over measured on two sources, `FITTED`; the others judge them. The table compares
every source with the formulas as they are, and with those of a system that states none of it ("plain": rings
and trees of 2 S bytes, 0.8 of the NICs, 10 us a hop, delays added).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from itertime.costs.network import Fabric, Group, all_reduce_s
from itertime.spec import System, load_system, profile_of

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
FILE = SHARED / "data" / "modern_gpus" / "operators" / "collectives_multi_node.csv"
FITTED = ("NVIDIA/nccl-tests issue 309 (qoofyk, 4 hosts, VMs)", "NVIDIA/nccl-tests issue 322")
GRID = {
    "network_efficiency": (0.8, 0.85, 0.9, 0.95),
    "network_latency_s": (2e-6, 5e-6, 10e-6),
    "network_bulk_latency_s": (0.0, 25e-6, 50e-6, 75e-6),
    "ring_step_s": (1e-6, 2e-6, 3e-6, 4e-6),
}
PLAIN = {
    "network_efficiency": 0.8,
    "network_latency_s": 10e-6,
    "network_bulk_latency_s": 0.0,
    "ring_step_s": 0.0,
    "collective_algorithms": ("ring", "tree"),
}


def measured(path: Path) -> dict[tuple[str, int], list[dict[str, str]]]:
    """The rows of all-reduces between nodes of 8 H100 or H200, by source and ranks."""
    found: dict[tuple[str, int], list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if int(row["ranks"]) > 8 and row["gpu"].startswith("H") and row["op"] == "all_reduce":
                found.setdefault((row["source"], int(row["ranks"])), []).append(row)
    return found


def ratios(rows: Iterable[dict[str, str]], system: System) -> np.ndarray:
    """Predicted over measured seconds. A row that says its algorithm is a ring is predicted as one."""
    found = []
    for row in rows:
        used = replace(system, collective_algorithms=("ring",)) if "Ring" in row["algorithm"] else system
        group, fabric = Group(int(row["ranks"]), 8), Fabric(used, profile_of(used))
        seconds = all_reduce_s(float(row["bytes"]), group, fabric)
        found.append(float(seconds) / (float(row["time_us"]) * 1e-6))
    return np.array(found)


def fitted(groups: Iterable[list[dict[str, str]]], system: System) -> System:
    """The system with the values of `GRID` that have the least mean |log|, every group counting the same."""
    groups = list(groups)

    def miss(trial: System) -> float:
        return float(np.mean([np.abs(np.log(ratios(rows, trial))).mean() for rows in groups]))

    trials = (
        replace(system, **dict(zip(GRID, values, strict=True)))
        for values in itertools.product(*GRID.values())
    )
    return min(trials, key=miss)


def system_of(rows: list[dict[str, str]]) -> System:
    """The shipped system whose network the rows were measured on."""
    return load_system("p5-48xlarge" if rows[0]["network"].startswith("EFA 3200") else "dgx-h100")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    path = parser.parse_args().file
    if not path.is_file():
        sys.exit(f"{path}: no such file; give the table of collectives between nodes")
    groups = measured(path)
    system = load_system("dgx-h100")
    best = fitted((rows for (source, _), rows in groups.items() if source in FITTED), system)
    print(
        *(f"{name} {getattr(best, name):g} (dgx-h100: {getattr(system, name):g})" for name in GRID), sep="\n"
    )
    print(f"{'source':<56}{'GPUs':>5}{'rows':>5}{'plain %':>9}{'now %':>7}{'bias %':>8}")
    for (source, ranks), rows in groups.items():
        used = system_of(rows)
        plain, now = ratios(rows, replace(used, **PLAIN)) - 1, ratios(rows, used) - 1
        errors = f"{100 * np.abs(plain).mean():9.0f}{100 * np.abs(now).mean():7.0f}{100 * now.mean():8.0f}"
        print(f"{source[:54]:<56}{ranks:5}{len(rows):5}{errors}{'  fitted' if source in FITTED else ''}")


if __name__ == "__main__":
    main()
