"""Morphling's 406 jobs as a trace of models with their iterations, and a throughput table of measured speeds.

    python experiments/morphling_jobs.py ../shared/data/clusters/morphling --out FOLDER

writes `jobs.csv` (a trace for `--model-path experiments/morphling`), `measured.csv` (the same without jobs of
models whose iterations are not measured) and `table.csv` (for `--table`). It prints the seconds that the
workload implies for an iteration of each of its plans beside the predicted ones.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.morphling_rows import SYSTEM, WORKLOADS, Row, predicted, read_rows
from experiments.output import make_folder
from itertime import System, load_system
from itertime.errors import UserError
from itertime.io import write_text

JOB_COLUMNS = ("job_id", "submit_s", "model", "gpus", "global_batch", "iterations", "precision")
TABLE_COLUMNS = ("model", "global_batch", "gpus", "iterations_per_s")
LEAST_STEPS = 50
"""Steps of a job from which its duration states the time of an iteration to a hundredth."""


def read_jobs(path: Path) -> list[dict[str, str]]:
    """The rows of a workload of Morphling."""
    try:
        return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the folder of Morphling's workloads") from None


def trace_csv(jobs: Sequence[dict[str, str]]) -> str:
    """The jobs as a trace: model, GPUs asked for, global batch, and the steps as iterations."""
    lines = []
    for job in jobs:
        name = job["application"]
        numbers = (job["num_gpus"], WORKLOADS[name].batch, max(int(job["steps"]), 1))
        lines.append((job["name"], job["submission_time"], name, *numbers, "tf32"))
    return _csv(JOB_COLUMNS, lines)


def table_csv(measured: dict[str, list[Row]]) -> str:
    """The fastest measured plan of every model and number of GPUs, on the fewest nodes that were measured.

    Rows with half of the samples are left out.
    """
    lines = []
    for name, rows in measured.items():
        fastest: dict[int, Row] = {}
        for row in (each for each in rows if not each.half):
            known = fastest.get(row.gpus)
            if known is None or _rank(row) < _rank(known):
                fastest[row.gpus] = row
        batch = WORKLOADS[name].batch
        lines += [(name, batch, n, f"{1 / row.measured_s:.6g}") for n, row in sorted(fastest.items())]
    return _csv(TABLE_COLUMNS, lines)


def _rank(row: Row) -> tuple[int, float]:
    return len(row.placement), row.measured_s


def implied(jobs: Sequence[dict[str, str]], system: System) -> str:
    """Seconds of an iteration that durations and steps imply, by model, GPUs and plan, beside predictions for
    full nodes, as a Markdown table. Jobs of fewer than `LEAST_STEPS` steps are left out.
    """
    most: dict[tuple[str, int, str], dict[str, str]] = {}
    for job in jobs:
        key = job["application"], int(job["num_gpus"]), job["exec_plan"]
        if int(job["steps"]) > int(most.get(key, job)["steps"]) or key not in most:
            most[key] = job
    lines = ["| model | GPUs | plan | implied, s | predicted, s | difference |", "|---|---|---|---|---|---|"]
    for (name, gpus, plan), job in sorted(most.items()):
        steps = int(job["steps"])
        if steps < LEAST_STEPS:
            continue
        placement = str(gpus) if gpus <= system.gpus_per_node else "8" * (gpus // 8)
        seconds = float(job["duration"]) / steps
        found = predicted(WORKLOADS[name], plan, placement, system, seconds).predicted_s
        shown = f"{seconds:.3f} | {found:.3f} | {100 * (found / seconds - 1):+.1f}%"
        lines.append(f"| {name} | {gpus} | {plan} | {shown} |")
    return "\n".join(lines) + "\n"


def _csv(columns: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of workload-base.csv and placements_MODEL.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        make_folder(options.out)
        system = load_system(SYSTEM)
        jobs = read_jobs(options.folder / "workload-base.csv")
        names = [name for name in WORKLOADS if (options.folder / f"placements_{name}.csv").is_file()]
        measured = {name: read_rows(options.folder, name, system)[0] for name in names}
        text = implied(jobs, system)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_text(options.out / "jobs.csv", trace_csv(jobs))
    known = [job for job in jobs if job["application"] in measured]
    write_text(options.out / "measured.csv", trace_csv(known))
    write_text(options.out / "table.csv", table_csv(measured))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
