"""What waiting for a faster GPU type is worth: the setting `type_slowdown` on a trace of Gavel's generator.

    python -m experiments.type_slowdown ../shared/reference/peers/gavel_runs

prints the table of docs/clusters.md: mean and 99th percentile of JCT on 80 jobs and three GPU types, without
overheads, beside the mean under Gavel's own FIFO (OSDI 2020), which picks types anew in every round.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from clustersim import Run, run

LIMITS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, None)
POLICIES = ("fifo", "sjf")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of Gavel's runs.")
    folder = parser.parse_args(arguments).folder
    sys.stdout.write(table(folder) + f"\nGavel's FIFO: {gavel_fifo_s(folder):,.0f} s\n")


def table(folder: Path) -> str:
    rows = ["| `type_slowdown` | " + " | ".join("null" if x is None else f"{x:g}" for x in LIMITS) + " |"]
    rows.append("|---" * (len(LIMITS) + 1) + "|")
    for policy in POLICIES:
        runs = [simulate(folder, policy, limit) for limit in LIMITS]
        for name, metric in (("mean", "jct_mean_s"), ("p99", "jct_p99_s")):
            cells = " | ".join(f"{run.summary[metric]:,.0f}" for run in runs)
            rows.append(f"| `{policy}`: {name} JCT, s | {cells} |")
    return "\n".join(rows) + "\n"


def simulate(folder: Path, policy: str, type_slowdown: float | None) -> Run:
    return run(
        folder / "g80.csv",
        policy,
        cluster=str(folder / "g80.cluster.yaml"),
        table=str(folder / "g80.table.csv"),
        overheads=None,
        placement="any",
        type_slowdown=type_slowdown,
    )


def gavel_fifo_s(folder: Path) -> float:
    """The mean JCT that Gavel's simulator reports for its FIFO, recomputed in every round."""
    with (folder / "g80.gavel_jct_s.csv").open(newline="") as rows:
        return fmean(float(row["fifo_perf__recomputed_every_round"]) for row in csv.DictReader(rows))


if __name__ == "__main__":
    main()
