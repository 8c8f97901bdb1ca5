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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from clustersim.runs import Trace, run
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from experiments.elasticflow_campaign import requests, slots
from experiments.elasticflow_steps import steps
from policies.elasticflow import ElasticFlow
from traces.job import Job
from traces.logs import import_log, read_throughputs, write_throughputs

BY_DEFAULT: Mapping[str, Any] = {}
NO_ADMISSION: Mapping[str, Any] = {"admission": False}
SHORT_QUEUES: Mapping[str, Any] = {"thresholds_gpu_s": (3250, 7200, 18000)}


def _deadline(job: JobView) -> tuple[float, int]:
    return inf if job.deadline_s is None else job.deadline_s, job.order


class AdmittedEdf(ElasticFlow):
    """preemptive, over the jobs that elasticflow admits, on the fewest GPUs that suffice"""

    def schedule(self, state: State) -> Proposal:
        super().schedule(state)  # updates the reservations that admission relies on
        proposal = state.proposal()
        proposal.run_by(_deadline, falling=True)
        return proposal


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
    ("edf", "edf", BY_DEFAULT),  # the artifact's name, our policy, its parameters
    ("edf with admission", "edf-admission", BY_DEFAULT),
    ("edf with admission", AdmittedEdf, BY_DEFAULT),
    ("gandiva", "gandiva", BY_DEFAULT),
    ("dlas", "tiresias", BY_DEFAULT),
    ("dlas", "tiresias", SHORT_QUEUES),
    ("dlas", "tiresias", {**SHORT_QUEUES, "promote_knob": None}),
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
    sys.stdout.write("\n".join((*(table(folder, study) for study in STUDIES), slots(folder), steps(folder))))


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
            name = ours if isinstance(ours, str) else f"EDF, {inspect.getdoc(ours)}"
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
    slack_s = [
        job.deadline_s - job.submit_s - job.run_s for job in requests(folder, study.trace, study.table)
    ]
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
