"""Morphling's 406 jobs under Rubick, its ablations and other policies, by measured and by predicted speeds.

    python -m experiments.morphling_rubick ../shared/data/clusters/morphling --out FOLDER

A job keeps its user's plan, with data parallelism scaled, or changes plans. So there are two throughput
tables, of the same kinds of jobs: `user.csv` has the user's plan at each number of GPUs, `best.csv` the
fastest plan. Each is made of measured speeds and of predicted ones. A job's estimate is its run time under
its user's plan on the GPUs that it asks for. Prints the tables of the study.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import clustersim
from clustersim.records import Run
from experiments.morphling_jobs import TABLE_COLUMNS, csv_text, implied, read_jobs
from experiments.morphling_rows import KINDS, SYSTEM, WORKLOADS, predicted, read_rows
from experiments.output import make_folder
from itertime import System, load_system
from itertime.errors import UserError
from itertime.io import write_text

CLUSTER = "n8g8"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
MEMORY_BYTES = 80e9
SOURCES = ("measured", "predicted")
WHAT = ("mean JCT, h", "p99, h", "makespan, h")
GUARANTEED, EFFORT = "guaranteed", "best-effort"
JOB_COLUMNS = (
    "job_id", "submit_s", "tenant", "model", "gpus", "min_gpus", "max_gpus", "global_batch", "iterations",
    "estimate_s",
)  # fmt: skip

Rates = dict[int, float]
"""Seconds of an iteration by GPUs."""


class Scheduler(NamedTuple):
    """A row of the study: a policy, the table that it runs on, and whether it may change GPUs."""

    name: str
    policy: str
    table: str
    elastic: bool = True


SCHEDULERS = (
    Scheduler("rubick", "rubick", "best"),
    Scheduler("rubick, plans only", "rubick", "best", elastic=False),
    Scheduler("rubick, GPUs only", "rubick", "user"),
    Scheduler("rubick, neither", "rubick", "user", elastic=False),
    Scheduler("sia", "sia", "user"),
    Scheduler("optimus", "optimus", "user"),
    Scheduler("afs", "afs", "user"),
    Scheduler("tiresias", "tiresias", "user", elastic=False),
    Scheduler("easy", "easy", "user", elastic=False),
    Scheduler("fifo", "fifo", "user", elastic=False),
    Scheduler("sia, best plans", "sia", "best"),
    Scheduler("srtf", "srtf", "user", elastic=False),
    Scheduler("priced, best plans", "priced", "best"),
)


def kind_of(job: Mapping[str, str]) -> str:
    """Model and user's plan, which decide the speeds of a job."""
    return f"{job['application']}.{job['exec_plan']}"


def measured_tables(
    folder: Path, jobs: Sequence[Mapping[str, str]], system: System
) -> tuple[dict[str, Rates], dict[str, Rates]]:
    """Seconds under the user's plan and under the best one, by kind: the fastest row on the fewest nodes that
    were measured, and what jobs imply for their own plans and GPUs.
    """
    own = implied(jobs)
    of_plan: dict[str, Rates] = {}
    for name in WORKLOADS:
        rows = read_rows(folder, name, system)[0] if (folder / f"placements_{name}.csv").is_file() else []
        for row in sorted((row for row in rows if not row.half), key=lambda row: len(row.placement)):
            of_plan.setdefault(f"{name}.{row.plan}", {}).setdefault(row.gpus, row.measured_s)
    for (name, gpus, plan), seconds in own.items():
        of_plan.setdefault(f"{name}.{plan}", {})[gpus] = seconds
    return _user_and_best(of_plan, {kind_of(job) for job in jobs})


def predicted_tables(
    jobs: Sequence[Mapping[str, str]], system: System
) -> tuple[dict[str, Rates], dict[str, Rates]]:
    """The same by prediction, on full nodes: every plan of Morphling's kinds that fits in memory, and the
    plans of jobs on their own GPUs, which ran.
    """
    asked = {(job["application"], int(job["num_gpus"]), job["exec_plan"]) for job in jobs}
    of_plan: dict[str, Rates] = {}
    for name, workload in WORKLOADS.items():
        counts = sorted({*COUNTS, *(gpus for app, gpus, _ in asked if app == name)})
        for gpus in counts:
            placement = str(gpus) if gpus <= 8 else "8" * (gpus // 8)
            for plan in (
                *(kind for kind in KINDS if workload.batch % gpus == 0),
                *_degrees(gpus, workload.batch),
            ):
                try:
                    row = predicted(workload, plan, placement, system)
                except UserError:
                    continue  # widths that the degrees do not divide
                if row.memory_bytes <= MEMORY_BYTES or (name, gpus, plan) in asked:
                    of_plan.setdefault(f"{name}.{plan}", {})[gpus] = row.predicted_s
    return _user_and_best(of_plan, {kind_of(job) for job in jobs})


def _degrees(gpus: int, batch: int) -> Iterator[str]:
    """Degrees of pipeline, tensor and data parallelism, as three digits, whose product is `gpus`."""
    for tp in range(1, 9):
        for pp in range(1, 10):
            dp = gpus // (tp * pp)
            if tp * pp * dp == gpus and 1 <= dp <= 9 and batch % dp == 0 and tp * pp > 1:
                yield f"{pp}{tp}{dp}"


def _user_and_best(
    of_plan: Mapping[str, Rates], kinds: set[str]
) -> tuple[dict[str, Rates], dict[str, Rates]]:
    """The tables of the user's plans and of the best ones, from the seconds of each plan of a model."""
    user: dict[str, Rates] = {}
    best: dict[str, Rates] = {}
    for kind in sorted(kinds):
        name, plan = kind.split(".")
        for other, rates in of_plan.items():
            model, plan_of_other = other.split(".")
            if model != name:
                continue
            for gpus, seconds in rates.items():
                known = best.setdefault(kind, {})
                known[gpus] = min(seconds, known.get(gpus, seconds))
                if plan_of_other == plan or (plan.isdigit() and plan_of_other[:2] == plan[:2]):
                    user.setdefault(kind, {})[gpus] = seconds
    return user, best


def trace_csv(jobs: Sequence[Mapping[str, str]], user: Mapping[str, Rates], rigid: bool) -> str:
    """The jobs as a trace; `rigid`: with their own GPUs as the only number."""
    lines = []
    for i, job in enumerate(jobs):
        gpus, steps, kind = int(job["num_gpus"]), max(int(job["steps"]), 1), kind_of(job)
        bounds = (gpus, gpus) if rigid else ("", "")
        batch, tenant = WORKLOADS[job["application"]].batch, (GUARANTEED, EFFORT)[i % 2]
        run_s = f"{steps * user[kind][gpus]:.6g}"
        lines.append((job["name"], job["submission_time"], tenant, kind, gpus, *bounds, batch, steps, run_s))
    return csv_text(JOB_COLUMNS, lines)


def table_csv(rates: Mapping[str, Rates]) -> str:
    """A throughput table."""
    return csv_text(
        TABLE_COLUMNS,
        [
            (kind, WORKLOADS[kind.split(".")[0]].batch, gpus, f"{1 / seconds:.6g}")
            for kind, by_count in rates.items()
            for gpus, seconds in sorted(by_count.items())
        ],
    )


def write_inputs(
    folder: Path, jobs: Sequence[Mapping[str, str]], tables: tuple[dict[str, Rates], dict[str, Rates]]
) -> None:
    """The two tables and the two traces of one source of speeds."""
    make_folder(folder)
    user, best = tables
    write_text(folder / "user.csv", table_csv(user))
    write_text(folder / "best.csv", table_csv(best))
    write_text(folder / "elastic.csv", trace_csv(jobs, user, rigid=False))
    write_text(folder / "rigid.csv", trace_csv(jobs, user, rigid=True))


def simulated(folder: Path, scheduler: Scheduler, **settings: Any) -> Run:
    """The run of a scheduler, with default overheads."""
    params = {"user_plans": True} if scheduler.policy == "rubick" else {}
    return clustersim.run(
        folder / ("elastic.csv" if scheduler.elastic else "rigid.csv"), scheduler.policy, cluster=CLUSTER,
        system="a800", table=str(folder / f"{scheduler.table}.csv"), bound="none",
        params=params | settings.pop("params", {}), **settings,
    )  # fmt: skip


def hours(run: Run) -> list[str]:
    """Mean and 99th percentile of the completion time and makespan, in hours."""
    values = (run.summary[name] for name in ("jct_mean_s", "jct_p99_s", "makespan_s"))
    return [f"{value / 3600:.2f}" for value in values]


def study(folder: Path, sources: Sequence[str]) -> str:
    """Every scheduler on every source of speeds, as a Markdown table."""
    rows = [
        (each.name, *(cell for source in sources for cell in hours(simulated(folder / source, each))))
        for each in SCHEDULERS
    ]
    return markdown([f"{source}: {what}" for source in sources for what in WHAT], rows)


def settings_table(folder: Path, sources: Sequence[str]) -> str:
    """Rubick by its two settings."""
    rows = []
    for gate, patience_s in ((0.97, 14400.0), (0.0, 14400.0), (0.9, 14400.0), (0.97, 7200.0), (0.97, 1e9)):
        params = {"gate": gate, "patience_s": patience_s}
        runs = [simulated(folder / source, SCHEDULERS[0], params=params) for source in sources]
        name = f"gate {gate:g}, patience_s {patience_s:g}"
        rows.append((name, *(cell for run in runs for cell in hours(run))))
    return markdown([f"{source}: {what}" for source in sources for what in WHAT], rows)


def tenants_table(folder: Path, sources: Sequence[str]) -> str:
    """Every second job belongs to a tenant with a quota of all GPUs, the others to one without."""
    rows = []
    for each in (SCHEDULERS[0], SCHEDULERS[2], Scheduler("quota", "quota", "user", elastic=False)):
        cells = []
        for source in sources:
            run = simulated(folder / source, each, quotas={GUARANTEED: 64})
            for tenant in (GUARANTEED, EFFORT):
                times = [job.jct_s for job in run.jobs if job.tenant == tenant and job.jct_s is not None]
                cells.append(f"{sum(times) / len(times) / 3600:.2f}")
        rows.append((each.name, *cells))
    return markdown([f"{source}: {tenant}" for source in sources for tenant in (GUARANTEED, EFFORT)], rows)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with names in front."""
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of workload-base.csv and placements_MODEL.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        make_folder(options.out)
        system = load_system(SYSTEM)
        jobs = read_jobs(options.folder / "workload-base.csv")
        write_inputs(options.out / SOURCES[0], jobs, measured_tables(options.folder, jobs, system))
        write_inputs(options.out / SOURCES[1], jobs, predicted_tables(jobs, system))
        tables = [made(options.out, SOURCES) for made in (study, settings_table, tenants_table)]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_text(options.out / "rubick.md", "\n".join(tables))
    print("\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
