"""ElasticFlow's own traces under our policies, beside the figures that its artifact prints.

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

from clustersim.runner import Trace, run
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from experiments.elasticflow_rounds import MECHANISMS, ORDERS, InRounds
from policies.elasticflow import ElasticFlow
from traces.elasticflow import read_throughputs, write_throughputs
from traces.importer import import_log
from traces.job import Job

BY_DEFAULT: Mapping[str, Any] = {}
NO_ADMISSION: Mapping[str, Any] = {"admission": False}


def _deadline(job: JobView) -> tuple[float, int]:
    return inf if job.deadline_s is None else job.deadline_s, job.order


class StrictEdf(Scheduler):
    """preemptive, nobody passes one who does not fit"""

    def schedule(self, state: State) -> Proposal:
        proposal, left, first = state.proposal(), state.cluster.gpus, []
        for job in sorted((*state.running, *state.pending), key=_deadline):
            if job.requested > left:
                break
            first.append(job)
            left -= job.requested
        for job in state.running:
            if job not in first:
                proposal.stop(job)
        for job in first:
            if not proposal.gpus(job):
                proposal.start(job)
        return proposal


class QueuedEdf(Scheduler):
    """not preemptive, nobody passes one who does not fit"""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in sorted(state.pending, key=_deadline):
            if proposal.start(job) is None:
                break
        return proposal


class WideEdf(Scheduler):
    """preemptive, each job in turn gets as many GPUs as make it faster"""

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.running:
            proposal.stop(job)
        for job in sorted((*state.running, *state.pending), key=_deadline):
            for gpus in reversed(job.sizes):
                if proposal.fits(gpus) and proposal.start(job, gpus):
                    break
        return proposal


class AdmittedEdf(ElasticFlow):
    """preemptive, of the jobs that elasticflow admits, by the fewest GPUs that are enough"""

    def schedule(self, state: State) -> Proposal:
        super().schedule(state)  # keeps up the reservations by which it admits
        proposal = state.proposal()
        proposal.run_by(_deadline, falling=True)
        return proposal


@dataclass(frozen=True)
class Study:
    """A trace of the artifact, what it ran on, and the deadline ratios that it prints, by its own names."""

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
    ("edf", StrictEdf, BY_DEFAULT),
    ("edf", QueuedEdf, BY_DEFAULT),
    ("edf", WideEdf, BY_DEFAULT),
    ("edf with admission", "edf-admission", BY_DEFAULT),
    ("edf with admission", AdmittedEdf, BY_DEFAULT),
    ("gandiva", "gandiva", BY_DEFAULT),
    ("dlas", "tiresias", BY_DEFAULT),
    ("dlas", "las", BY_DEFAULT),
    ("elasticflow without admission", "elasticflow", NO_ADMISSION),
    ("elasticflow, as planned", "elasticflow", BY_DEFAULT),
    ("elasticflow, by actual finish", "elasticflow", BY_DEFAULT),
)
PRESETS = ("elasticflow", "none")
DELAYS_S = (0, 60, 180, 360)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of ElasticFlow's traces.")
    folder = parser.parse_args(arguments).folder
    sys.stdout.write("\n".join(table(folder, study) for study in STUDIES))


def table(folder: Path, study: Study) -> str:
    """The published figures of one trace beside ours, as a Markdown table."""
    trace, rows = jobs(folder / study.trace), []
    alone = ", ".join(
        f"{met:.3f} ({s} s)"
        for s, met in zip(DELAYS_S, in_time_alone(trace, folder / study.table), strict=True)
    )
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
        mechanisms = _mechanisms(trace, speeds, study)
    return (
        f"### {study.trace}: {len(trace)} jobs, {study.table}, {study.cluster}\n\n"
        "In time if every job ran alone on the GPUs that it asks for, this late: " + alone + ".\n\n"
        "| artifact | prints | here | overheads as its own | no overheads |\n|---|---|---|---|---|\n"
        + "\n".join(rows) + "\n\n" + mechanisms
    )  # fmt: skip


def _mechanisms(trace: Sequence[Job], speeds: Path, study: Study) -> str:
    """What guesses at the artifact's mechanism come to, by the order that its policy serves."""
    orders = [order for order in ORDERS if order in study.published]
    rows = ["| the requested GPUs, overheads as its own | " + " | ".join(orders) + " |"]
    rows.append("|" + "---|" * (len(orders) + 1))
    rows.append("| the artifact | " + " | ".join(f"{study.published[order]:.3f}" for order in orders) + " |")
    for name, params in MECHANISMS.items():
        met = [
            ratio(trace, speeds, study.cluster, InRounds, {"order": order, **params}, "elasticflow")
            for order in orders
        ]
        rows.append(f"| {name} | " + " | ".join(f"{m:.3f}" for m in met) + " |")
    return "\n".join(rows) + "\n"


def jobs(path: Path) -> list[Job]:
    """The jobs of a trace, on a clock that starts with the first."""
    return import_log(path, rules="none")[0]


def in_time_alone(trace: Sequence[Job], tables: Path) -> list[float]:
    """The share of jobs that meet their deadline on the GPUs that they ask for, with nobody else there,
    starting so long after their submission as `DELAYS_S` says.
    """
    speed = {row[:3]: row.iterations_per_s for row in read_throughputs(tables)[0]}
    slack_s = []
    for job in trace:
        assert job.model is not None and job.global_batch is not None and job.gpus is not None  # noqa: PT018
        assert job.iterations is not None and job.deadline_s is not None  # noqa: PT018
        run_s = job.iterations / speed[job.model, job.global_batch, job.gpus]
        slack_s.append(job.deadline_s - job.submit_s - run_s)
    return [sum(slack >= delay for slack in slack_s) / len(trace) for delay in DELAYS_S]


def ratio(
    trace: Sequence[Job],
    speeds: Path,
    cluster: str,
    policy: str | type[Scheduler],
    params: Mapping[str, Any],
    preset: str,
) -> float:
    """Deadlines met over all submitted jobs with one, by actual finish."""
    result = run(
        Trace.of(trace), policy, params=dict(params), cluster=cluster, table=str(speeds),
        overheads={"preset": preset},
    )  # fmt: skip
    return float(result.summary["deadline_met_ratio"])


if __name__ == "__main__":
    main()
