"""Muri's testbed: 400 jobs on 64 V100s as the simulator sees them, job by job, beside what was measured.

    python -m experiments.muri_testbed [--data FOLDER]
    python -m experiments.muri_testbed --policy NAME FILE [--policy NAME FILE ...]

The first line writes the page `experiments/MURI_TESTBED.md` and the figures behind it,
`experiments/muri/results.csv`. The second one prints how far a policy of ours is from another log of
the testbed, under the same conditions; FILE is in the form of the logs of FOLDER.

The work of a job is its iterations x the seconds of one, as the trace of the testbed states both. Two
constants come from executions: the seconds of a start, and how much longer than stated steps take
(`Executions`). A log is judged with the constants of the other logs of FOLDER, never with its own.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from clustersim import RunConfig, run
from clustersim.runs import Trace
from experiments.muri_executions import (
    FAST_FORWARD,
    INTERVAL_S,
    Executions,
    Measured,
    MuriJob,
    dependence,
    duration_of,
    executions_table,
    models_table,
    read_log,
    read_trace,
    table,
    without,
    work_of,
)
from itertime.errors import UserError
from itertime.io import write_text
from traces import Job

HERE = Path(__file__).parent
FOLDER, PAGE = HERE / "muri", HERE / "MURI_TESTBED.md"
DATA = HERE.parents[1] / "shared" / "data" / "clusters" / "muri_testbed"
LOGS = {"srtf": "SRTF", "srsf": "SRSF"}
"""Our policies by the name of the log."""

PUBLISHED = {"tiresias": (336_533, 3.960e6), "themis": (461_456, 3.925e6)}
"""Mean JCT and makespan in seconds of logs of which no more is known here."""

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "tiresias": {"thresholds_gpu_s": [3250, 7200], "promote_knob": None},
    "themis": {"lease_s": INTERVAL_S},
}
"""What differs from the defaults of our policies. The thresholds are those of the simulator of Tiresias'
authors. No job of the logs is promoted (column `promote`). A lease lasts until the next decision.
"""

VARIANTS: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]] = {
    "tiresias": {
        "tiresias, thresholds 3,250 and 7,200 GPU-s, no promotion": ("tiresias", ()),
        "tiresias, thresholds 36,000 and 3,600,000 GPU-s": (
            "tiresias",
            ["policy.thresholds_gpu_s=[36000,3600000]"],
        ),
        "tiresias, promotion after 8 times the run": ("tiresias", ["policy.promote_knob=8"]),
    },
    "themis": {
        "themis, leases of 360 s, fairness 0.8": ("themis", ()),
        "themis, leases of 360 s, fairness 0": ("themis", ["policy.fairness=0"]),
        "gavel-ftf, which others call Themis": ("gavel-ftf", ()),
    },
}
"""Policies of ours, with changes of parameters, for a policy of the testbed. `--policy` uses the first."""


# Simulations


Settings = Mapping[str, Any]


def conditions(found: Executions) -> Settings:
    """The settings of the testbed. A start loads the model, so restarts cost no more."""
    return {
        "decision_interval_s": INTERVAL_S,
        "overheads": {"launch_s": found.start_s, "launch_gpu_s": 0.0, "plain_restart_s": 0.0},
        "step_time": {"slowdown": max(1.0, found.slowdown)},
    }


Simulated = Mapping[str, tuple[float, float, int]]
"""First start, end and number of starts by job."""


def simulated(
    jobs: Mapping[str, MuriJob], policy: str, settings: Settings, changes: Sequence[str] = (),
    seconds_of: Callable[[MuriJob], float] = work_of,
) -> Simulated:  # fmt: skip
    """The jobs under a policy. `changes`: assignments as in `--set`."""
    trace = [
        Job(job.job_id, job.submit_s, gpus=job.gpus, duration_s=seconds_of(job)) for job in jobs.values()
    ]
    values = {"overheads": None, "params": PARAMETERS.get(policy, {}), **settings}
    config = RunConfig.make(list(changes), policy=policy, cluster="n8g8", bound="none", **values)
    done = run(Trace.of(trace), config=config).jobs
    if unfinished := [record.job_id for record in done if record.state != "finished"]:
        raise UserError(f"policy {policy}: {len(unfinished)} jobs do not finish")
    return {r.job_id: (r.start_s or 0.0, r.finish_s or 0.0, 1 + r.restarts + r.migrations) for r in done}


@dataclass(frozen=True)
class Compared:
    """A simulation beside a log. Errors in percent of what was measured; `spearman` of the JCT of jobs."""

    policy: str
    conditions: str
    jct_mean_s: float
    jct_error: float
    makespan_s: float
    makespan_error: float
    spearman: float
    median_job_error: float
    starts: int
    starts_measured: int


def compared(
    policy: str, name: str, jobs: Mapping[str, MuriJob], log: Mapping[str, Measured], ours: Simulated
) -> Compared:
    """`ours` beside `log`, over the jobs of the log. `name`: of the conditions."""
    there = np.array([done.end_s - jobs[job].submit_s for job, done in log.items()])
    here = np.array([ours[job][1] - jobs[job].submit_s for job in log])
    ends = max(ours[job][1] for job in log), max(done.end_s for done in log.values())
    return Compared(
        policy, name, float(here.mean()), percent(here.mean(), there.mean()),
        ends[0], percent(*ends), float(stats.spearmanr(here, there).statistic),
        float(np.median(np.abs(here / there - 1)) * 100),
        sum(ours[job][2] for job in log), sum(done.starts for done in log.values()),
    )  # fmt: skip


def percent(ours: float, theirs: float) -> float:
    return 100 * (float(ours) / float(theirs) - 1)


def steps_to_the_testbed(found: Executions) -> dict[str, tuple[Settings, bool]]:
    """Conditions, each with one more cause than the one before; whether the work is the trace's duration."""
    whole = conditions(found)
    return {
        "durations of the trace": ({}, True),
        "iterations x iteration time": ({}, False),
        "+ decisions every 360 s": ({k: v for k, v in whole.items() if k == "decision_interval_s"}, False),
        "+ starts": ({k: v for k, v in whole.items() if k != "step_time"}, False),
        "+ slower steps": (whole, False),
    }


LAST = "+ slower steps"


def judge(jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]]) -> list[Compared]:
    """Every step for every log, with the constants of the other logs."""
    found = []
    for policy, log in logs.items():
        for name, (settings, logged) in steps_to_the_testbed(without(jobs, logs, policy)).items():
            ours = simulated(jobs, policy, settings, seconds_of=duration_of if logged else work_of)
            found.append(compared(policy, name, jobs, log, ours))
    return found


# Tables


def steps_table(found: Sequence[Compared]) -> str:
    head = (
        "log",
        "conditions",
        "mean JCT, s",
        "error",
        "makespan, 1e6 s",
        "error",
        "Spearman",
        "median error of a job",
        "starts (measured)",
    )
    return table(head, (
        (c.policy, c.conditions, f"{c.jct_mean_s:,.0f}", f"{c.jct_error:+.1f} %", f"{c.makespan_s / 1e6:.3f}",
         f"{c.makespan_error:+.1f} %", f"{c.spearman:.4f}", f"{c.median_job_error:.1f} %",
         f"{c.starts:,} ({c.starts_measured:,})")
        for c in found
    ))  # fmt: skip


def _gpus(least: int, most: int) -> Callable[[MuriJob], bool]:
    return lambda job: least <= job.gpus <= most


def _works(above_s: float, most_s: float) -> Callable[[MuriJob], bool]:
    return lambda job: above_s < job.work_s <= most_s


CLASSES: Mapping[str, Callable[[MuriJob], bool]] = {
    "1 GPU": _gpus(1, 1),
    "2 to 4 GPUs": _gpus(2, 4),
    "8 GPUs": _gpus(8, 8),
    "16 and 32 GPUs": _gpus(16, 32),
    "work up to 10 min": _works(0, 600),
    "10 min to 3 h": _works(600, 10_800),
    "3 h to 1 d": _works(10_800, 86_400),
    "over 1 d": _works(86_400, 1e18),
}


def classes_table(
    jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]], ours: Mapping[str, Simulated]
) -> str:
    """Mean JCT by GPUs and by work, and the errors of the simulated ones."""
    rows = []
    for name, inside in CLASSES.items():
        chosen = [job for job in jobs if inside(jobs[job])]
        cells = [name, f"{len(chosen)}"]
        for policy, log in logs.items():
            there = fmean(log[job].end_s - jobs[job].submit_s for job in chosen)
            here = fmean(ours[policy][job][1] - jobs[job].submit_s for job in chosen)
            cells += [f"{there:,.0f}", f"{percent(here, there):+.1f} %"]
        rows.append(cells)
    head = [cell for policy in logs for cell in (f"{policy}, mean JCT, s", "error")]
    return table(("jobs", "number", *head), rows)


def others_table(jobs: Mapping[str, MuriJob], found: Executions) -> str:
    """Tiresias and Themis beside the means of the testbed."""
    rows = []
    for policy, (jct_s, makespan_s) in PUBLISHED.items():
        for name, (variant, changes) in VARIANTS[policy].items():
            ours = simulated(jobs, variant, conditions(found), changes)
            mean_s = fmean(end_s - jobs[job].submit_s for job, (_, end_s, _) in ours.items())
            last_s = max(end_s for _, end_s, _ in ours.values())
            rows.append((
                policy, name, f"{mean_s:,.0f}", f"{percent(mean_s, jct_s):+.1f} %",
                f"{last_s / 1e6:.3f}", f"{percent(last_s, makespan_s):+.1f} %",
            ))  # fmt: skip
    return table(("testbed", "simulated", "mean JCT, s", "error", "makespan, 1e6 s", "error"), rows)


# The program


def csv_text(head: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
    return text.getvalue()


def as_csv(found: Sequence[Compared]) -> str:
    names = [f.name for f in fields(Compared)]
    return csv_text(names, [[getattr(one, name) for name in names] for one in found])


def page(
    jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]], found: Sequence[Compared]
) -> str:
    """The page, from its template and the tables."""
    ours = {policy: simulated(jobs, policy, conditions(without(jobs, logs, policy))) for policy in logs}
    both = Executions.of(jobs, list(logs.values()))
    template = (FOLDER / "page.template.md").read_text(encoding="utf-8")
    return template.format(
        steps=steps_table(found),
        classes=classes_table(jobs, logs, ours),
        executions=executions_table(jobs, logs),
        models=models_table(jobs, logs),
        others=others_table(jobs, both),
        start_s=both.start_s,
        start_real_s=both.start_s / FAST_FORWARD,
        slow=100 * (both.slowdown - 1),
        **dependence(jobs, logs),
    )


def judge_file(
    jobs: Mapping[str, MuriJob], logs: Mapping[str, Mapping[str, Measured]], policy: str, file: Path,
    changes: Sequence[str],
) -> tuple[Compared, list[tuple[str | float, ...]]]:  # fmt: skip
    """A policy beside the log in `file`, with the constants of the `logs` of other policies; and a row for
    each job.
    """
    log = read_log(file)
    if strangers := set(log) - set(jobs):
        raise UserError(f"{file}: job {min(strangers)} is not in the trace of the testbed")
    ours = simulated(jobs, policy, conditions(without(jobs, logs, policy)), changes)
    rows = [
        (policy, name, jobs[name].gpus, done.end_s - jobs[name].submit_s, ours[name][1] - jobs[name].submit_s)
        for name, done in log.items()
    ]
    return compared(policy, LAST, jobs, log, ours), rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of trace and logs")
    parser.add_argument(
        "--policy", nargs=2, action="append", metavar=("NAME", "FILE"), help="judge by this log"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="as in clustersim run"
    )
    parser.add_argument("--jobs", type=Path, metavar="FILE", help="with --policy: write a row a job")
    given = parser.parse_args(arguments)
    jobs = read_trace(given.data)
    logs = {policy: read_log(given.data / f"{name}.job.csv.gz") for policy, name in LOGS.items()}
    if not given.policy:
        found = judge(jobs, logs)
        write_text(FOLDER / "results.csv", as_csv(found))
        write_text(PAGE, page(jobs, logs, found))
        return
    judged = [
        judge_file(jobs, logs, name if ".py" in name else name.lower(), Path(file), given.set)
        for name, file in given.policy
    ]
    print(steps_table([found for found, _ in judged]))
    if given.jobs is not None:
        head = ("policy", "job_id", "gpus", "measured_jct_s", "simulated_jct_s")
        write_text(given.jobs, csv_text(head, [row for _, rows in judged for row in rows]))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
