"""Morphling's 406 jobs as a trace of models with their iterations, and a throughput table of measured speeds.

    python -m experiments.morphling_jobs ../shared/data/clusters/morphling --out FOLDER

writes `jobs.csv` (a trace for `--model-path experiments/morphling`) and `table.csv` (for `--table`). It
prints the seconds that the workload implies for an iteration of each of its plans, and the predicted ones.
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
    return csv_text(JOB_COLUMNS, lines)


def table_csv(measured: dict[str, list[Row]], jobs: Sequence[dict[str, str]]) -> str:
    """The fastest measured plan of every model and number of GPUs, on the fewest nodes that were measured.

    Rows with half of the samples are left out. Models without measurements have the seconds that jobs imply.
    """
    lines = []
    for name, rows in measured.items():
        fastest: dict[int, Row] = {}
        for row in (each for each in rows if not each.half):
            known = fastest.get(row.gpus)
            if known is None or _rank(row) < _rank(known):
                fastest[row.gpus] = row
        lines += [(name, n, row.measured_s) for n, row in sorted(fastest.items())]
    lines += [(name, gpus, s) for (name, gpus, _), s in implied(jobs).items() if name not in measured]
    return csv_text(TABLE_COLUMNS, [(name, WORKLOADS[name].batch, n, f"{1 / s:.6g}") for name, n, s in lines])


def _rank(row: Row) -> tuple[int, float]:
    return len(row.placement), row.measured_s


def implied(jobs: Sequence[dict[str, str]]) -> dict[tuple[str, int, str], float]:
    """Seconds of an iteration by model, GPUs and plan, in their order: duration over steps of the job with
    the most steps. Those of fewer than `LEAST_STEPS` are left out.
    """
    most: dict[tuple[str, int, str], tuple[int, float]] = {}
    for job in jobs:
        key, steps = (job["application"], int(job["num_gpus"]), job["exec_plan"]), int(job["steps"])
        if steps >= LEAST_STEPS and steps > most.get(key, (0, 0.0))[0]:
            most[key] = steps, float(job["duration"]) / steps
    return {key: seconds for key, (_, seconds) in sorted(most.items())}


def implied_table(jobs: Sequence[dict[str, str]], system: System) -> str:
    """`implied` beside predictions for full nodes, as a Markdown table."""
    lines = ["| model | GPUs | plan | implied, s | predicted, s | difference |", "|---|---|---|---|---|---|"]
    for (name, gpus, plan), seconds in implied(jobs).items():
        per_node = system.gpus_per_node
        placement = str(gpus) if gpus <= per_node else str(per_node) * (gpus // per_node)
        found = predicted(WORKLOADS[name], plan, placement, system, seconds).predicted_s
        shown = f"{seconds:.3f} | {found:.3f} | {100 * (found / seconds - 1):+.1f}%"
        lines.append(f"| {name} | {gpus} | {plan} | {shown} |")
    return "\n".join(lines) + "\n"


def csv_text(columns: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
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
        text = implied_table(jobs, system)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_text(options.out / "jobs.csv", trace_csv(jobs))
    write_text(options.out / "table.csv", table_csv(measured, jobs))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
