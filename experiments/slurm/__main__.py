"""The simulator beside a real Slurm: runs the workloads, and writes the page SLURM.md.

    python -m experiments.slurm [--out FOLDER] [--kinds KIND,...] [--repeats N] [--workers N]
        [--measure-only | --page-only]

Each workload runs on a Slurm whose nodes are emulated on this machine (3 to 6 minutes each), with Debian's
packages and as root; without these, the recorded runs that FOLDER holds are measured, and it is said. Runs
that FOLDER already holds are not made again. What the page states goes to slurm/runs.csv, one row a run, and
the page is made from that file alone; `--page-only` makes it anew from it.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from threading import Event
from typing import Any

from experiments.output import make_folder
from itertime.errors import UserError
from itertime.io import write_text

from .cluster import absent
from .measures import Measures, measured
from .page import page
from .record import record
from .tables import csv_of
from .workloads import KINDS

HERE = Path(__file__).parent
TABLE = HERE / "runs.csv"
PAGE = HERE.parent / "SLURM.md"
STUDIED = tuple(kind for kind in KINDS if kind != "sample")


def main() -> None:
    arguments = parse_arguments()
    if not arguments.page_only:
        rows = read_table(TABLE) if TABLE.exists() else []
        try:
            make_folder(arguments.out)
            repeats = 0 if arguments.measure_only else arguments.repeats
            failures = run_workloads(arguments.out, arguments.kinds, repeats, arguments.workers)
            rows = replaced(rows, measure(arguments.out, arguments.kinds))
        except UserError as error:
            sys.exit(f"error: {error}")
        except KeyboardInterrupt:
            sys.exit("stopped, with all daemons; the same call goes on with the runs that are left")
        write_text(TABLE, csv_of([asdict(row) for row in rows]))
        for failure in failures:
            print(failure, file=sys.stderr)
    write_text(PAGE, page((HERE / "page.template.md").read_text(encoding="utf-8"), read_table(TABLE)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("slurm_study"), help="folder of the recorded runs")
    parser.add_argument("--kinds", default=",".join(STUDIED), help="kinds of workloads, by commas")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each workload, at least 1")
    parser.add_argument("--workers", type=int, default=1, help="runs at once; they disturb each other")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--measure-only", action="store_true", help="no further runs: measure those of --out")
    group.add_argument("--page-only", action="store_true", help=f"the page from {TABLE.name} alone")
    arguments = parser.parse_args()
    arguments.kinds = arguments.kinds.split(",")
    for kind in arguments.kinds:
        if kind not in KINDS:
            parser.error(f"--kinds {kind}: must be of {', '.join(KINDS)}")
    if arguments.repeats < 1 or arguments.workers < 1:
        parser.error("--repeats, --workers: must be at least 1")
    return arguments


def run_workloads(out: Path, kinds: Sequence[str], repeats: int, workers: int) -> list[str]:
    """Make the recorded runs that `out` lacks. Says on stderr why none can be made; lists what failed."""
    missing_runs = [
        (kind, out / f"{kind}-1" / str(repeat))
        for repeat in range(1, repeats + 1)
        for kind in kinds
        if not (out / f"{kind}-1" / str(repeat) / "notes.json").exists()
    ]
    if missing_runs and (lacking := absent()):
        print(f"{len(missing_runs)} runs are skipped: no Slurm here: {lacking}", file=sys.stderr)
        return []

    stop = Event()

    def attempt(kind: str, folder: Path) -> str | None:
        try:
            record(kind, 1, folder, stop)
        except UserError as error:
            return str(error)
        return None

    pool = ThreadPoolExecutor(workers)
    try:
        failures = pool.map(attempt, *zip(*missing_runs, strict=True)) if missing_runs else ()
        return [failure for failure in failures if failure is not None]
    finally:
        stop.set()  # ends the daemons of runs that are interrupted
        pool.shutdown(cancel_futures=True)


def measure(out: Path, kinds: Sequence[str]) -> list[Measures]:
    """The measures of all complete runs of these kinds. A run that cannot be measured is named on stderr."""
    rows = []
    for kind in kinds:
        folders = sorted(path.parent for path in (out / f"{kind}-1").glob("*/notes.json"))
        for folder in folders:
            try:
                rows.append(measured(folder, [repeat for repeat in folders if repeat != folder]))
            except UserError as error:
                print(f"{folder}: not measured: {error}", file=sys.stderr)
            else:
                print(rows[-1], flush=True)
    return rows


def replaced(rows: Sequence[Measures], newer: Sequence[Measures]) -> list[Measures]:
    """The rows in the order of kinds, those of workloads that `newer` holds replaced by it."""
    workloads = {row.workload for row in newer}
    order = {f"{kind}-1": place for place, kind in enumerate(KINDS)}
    all_rows = [row for row in rows if row.workload not in workloads] + list(newer)
    return sorted(all_rows, key=lambda row: (order[row.workload], row.repeat))


def read_table(path: Path) -> list[Measures]:
    """The rows of runs.csv."""
    reads = {"str": str, "int": int, "float": float}
    kinds = {field.name: str(field.type).partition(" ")[0] for field in fields(Measures)}
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = [
            {name: reads[kinds[name]](text) if text else None for name, text in row.items()}
            for row in csv.DictReader(file)
        ]
    return [Measures(**row) for row in rows]


if __name__ == "__main__":
    main()
