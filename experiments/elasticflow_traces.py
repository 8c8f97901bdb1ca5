"""ElasticFlow's own traces under the policies here, beside the figures that its artifact prints.

    python -m experiments.elasticflow_traces ../shared/data/traces/itp_elasticflow

reads the traces and measured throughputs of the artifact (Gu et al., ASPLOS 2023) and prints the deadline
ratios as the tables of experiments/ELASTICFLOW.md.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from clustersim.runs import Trace, run
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from traces.job import Job
from traces.logs import import_log, read_throughputs, write_throughputs

BY_DEFAULT: Mapping[str, Any] = {}
NO_ADMISSION: Mapping[str, Any] = {"admission": False}
THREE_QUEUES: Mapping[str, Any] = {"thresholds_gpu_s": (3250, 7200), "promote_knob": None}
SIZES = (64, 32, 16, 8, 4, 2, 1)
"""GPU counts that the artifact gives to a job, largest first."""


def by_deadline(jobs: Iterable[JobView]) -> list[JobView]:
    return sorted(jobs, key=lambda job: (inf if job.deadline_s is None else job.deadline_s, job.order))


def sizes_by_deadline(jobs: Iterable[JobView], free: int) -> dict[JobView, int]:
    """The GPUs of each job: by deadline, the most that the job can use of those that are left."""
    sizes = {}
    for job in by_deadline(jobs):
        sizes[job] = next((n for n in SIZES if n <= free and job.can_run_on(n)), 0)
        free -= sizes[job]
    return sizes


class ElasticEdf(Scheduler):
    """elastic EDF

    The artifact's `edf`: all GPUs are divided anew at every event (`edf_sim_allocation` of its source).
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        sizes = sizes_by_deadline([*state.running, *state.pending], state.cluster.gpus)
        for job in sorted(
            sizes, key=lambda job: (sizes[job] - job.gpus, job.order)
        ):  # those that shrink first
            if sizes[job] == job.gpus:
                continue
            if not sizes[job]:
                proposal.stop(job)
            elif job.running:
                proposal.resize(job, sizes[job])
            else:
                proposal.start(job, sizes[job])
        return proposal


class AdmittedElasticEdf(ElasticEdf):
    """elastic EDF with admission

    The artifact's `edf-accessctrl`: a job is admitted if, with it, no job of the plan is late.
    """

    def admit(self, job: JobView, state: State) -> bool:
        waiting = by_deadline([*state.running, *state.pending, job])
        left = {other: other.remaining(other.requested) * other.rate(other.requested) for other in waiting}
        now = state.now
        while left:
            sizes = sizes_by_deadline(left, state.cluster.gpus)
            rates = {other: other.rate(size) for other, size in sizes.items() if size}
            step_s = min(left[other] / rate for other, rate in rates.items())
            now += step_s
            for other, rate in rates.items():
                left[other] -= step_s * rate
                if left[other] <= 1e-9 * rate:
                    del left[other]
                    if other.deadline_s is not None and now > other.deadline_s:
                        return False
        return True


@dataclass(frozen=True)
class Study:
    """A trace of the artifact, its throughputs and cluster, and the printed deadline ratios by its names."""

    trace: str
    table: str
    cluster: str
    published: Mapping[str, float]


STUDIES = (
    Study(
        "elasticVpollux_e.csv", "throughputs_T4", "n16g4",
        {"edf": 0.118, "edf with admission": 0.410, "gandiva": 0.092, "dlas": 0.287,
         "elasticflow without admission": 0.667, "elasticflow, as planned": 0.728,
         "elasticflow, by actual finish": 0.651},
    ),
    Study(
        "philly_103959.csv", "throughputs_A100", "n32g8",
        {"edf": 0.436, "gandiva": 0.413, "dlas": 0.466, "elasticflow, as planned": 0.910},
    ),
)  # fmt: skip
OURS: tuple[tuple[str, str | type[Scheduler], Mapping[str, Any]], ...] = (
    ("edf", ElasticEdf, BY_DEFAULT),  # the artifact's name, our policy, its parameters
    ("edf", "edf", BY_DEFAULT),
    ("edf with admission", AdmittedElasticEdf, BY_DEFAULT),
    ("edf with admission", "edf-admission", BY_DEFAULT),
    ("gandiva", "gandiva", BY_DEFAULT),
    ("dlas", "tiresias", THREE_QUEUES),
    ("dlas", "tiresias", BY_DEFAULT),
    ("dlas", "las", BY_DEFAULT),
    ("elasticflow without admission", "elasticflow", NO_ADMISSION),
    ("elasticflow, as planned", "elasticflow", BY_DEFAULT),
    ("elasticflow, by actual finish", "elasticflow", BY_DEFAULT),
)
PRESETS = ("elasticflow", "none")
DELAYS_S = (0, 10, 60, 180, 360)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of ElasticFlow's traces.")
    folder = parser.parse_args(arguments).folder
    sys.stdout.write("\n".join(table(folder, study) for study in STUDIES))


def table(folder: Path, study: Study) -> str:
    """The published figures of one trace beside ours, as a Markdown table."""
    trace, rows = jobs(folder / study.trace), []
    met_alone = zip(DELAYS_S, in_time_alone(folder, study), strict=True)
    alone = ", ".join(f"{met:.3f} ({delay} s)" for delay, met in met_alone)
    with tempfile.TemporaryDirectory() as scratch:
        speeds = Path(scratch) / "speeds.csv"
        write_throughputs(read_throughputs(folder / study.table)[0], speeds)
        for theirs, ours, params in OURS:
            if theirs not in study.published:
                continue
            met = [ratio(trace, speeds, study.cluster, ours, params, preset) for preset in PRESETS]
            setting = "".join(f" ({key} {str(value).lower()})" for key, value in params.items())
            name = ours if isinstance(ours, str) else str(inspect.getdoc(ours)).splitlines()[0]
            cells = " | ".join(f"{m:.3f}" for m in met)
            rows.append(f"| {theirs} | {study.published[theirs]:.3f} | {name}{setting} | {cells} |")
    return (
        f"### {study.trace}: {len(trace)} jobs, {study.table}, {study.cluster}\n\n"
        "Share of jobs in time if each ran alone on the GPUs that it asks for,\n"
        f"starting this late: {alone}.\n\n"
        "| artifact | prints | here | overheads as its own | no overheads |\n|---|---|---|---|---|\n"
        + "\n".join(rows) + "\n"
    )  # fmt: skip


def jobs(path: Path) -> list[Job]:
    """The jobs of a trace, on a clock that starts at the first submission."""
    return import_log(path, rules="none")[0]


def in_time_alone(folder: Path, study: Study) -> list[float]:
    """The share of jobs that meet their deadline alone on the GPUs that they ask for, for each delay of the
    start after submission in `DELAYS_S`.
    """
    rates = {
        (r.model, r.global_batch, r.gpus): r.iterations_per_s
        for r in read_throughputs(folder / study.table)[0]
    }
    slack_s = []
    for job in jobs(folder / study.trace):
        if job.model is None or job.global_batch is None or job.gpus is None or job.iterations is None:
            raise TypeError(f"job {job.job_id} states no work")
        run_s = job.iterations / rates[job.model, job.global_batch, job.gpus]
        slack_s.append((job.deadline_s or inf) - job.submit_s - run_s)
    return [sum(slack >= delay for slack in slack_s) / len(slack_s) for delay in DELAYS_S]


def ratio(
    trace: Sequence[Job],
    speeds: Path,
    cluster: str,
    policy: str | type[Scheduler],
    params: Mapping[str, Any],
    preset: str,
) -> float:
    """Deadlines met over all submitted jobs with a deadline, by actual finish."""
    result = run(
        Trace.of(trace), policy, params=dict(params), cluster=cluster, table=str(speeds),
        overheads={"preset": preset},
    )  # fmt: skip
    return float(result.summary["deadline_met_ratio"])


if __name__ == "__main__":
    main()
