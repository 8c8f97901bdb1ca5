"""ElasticFlow's artifact on its trace of 195 jobs: starts, ends and deadlines.

Gu et al., ASPLOS 2023; github.com/pkusys/ElasticFlow at 04a0109, slots of 60 s. experiments/ELASTICFLOW.md
says what the artifact does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clustersim.records import Run
from clustersim.runs import Trace, run
from clustersim.scheduler import Scheduler
from experiments.elasticflow_traces import STUDIES, THREE_QUEUES, AdmittedElasticEdf, ElasticEdf, jobs
from experiments.peers.rows import columns, mean_change, percent
from traces.logs import read_throughputs, write_throughputs

__all__ = ["Deadlines", "beside", "deadlines", "simulated"]

STUDY = STUDIES[0]
NEAR = 0.05
"""Of a job completion time."""
POLICIES: tuple[tuple[str, str | type[Scheduler], Mapping[str, Any], str], ...] = (
    ("edf", ElasticEdf, {}, "none"),  # the file's name, our policy, its parameters, overheads
    ("edf-accessctrl", AdmittedElasticEdf, {}, "none"),
    ("dlas-gpu", "tiresias", THREE_QUEUES, "elasticflow"),
    ("gandiva", "gandiva", {}, "elasticflow"),
    ("ef", "elasticflow", {"admission": False}, "elasticflow"),
    ("ef-accessctrl", "elasticflow", {}, "elasticflow"),
)


@dataclass(frozen=True)
class Deadlines:
    """A policy here beside one of the artifact's. `near` of `of` jobs that ran in both have job completion
    times within 5 %, `difference` is that of the mean of these. `in_time`: jobs that met their deadline, here
    and there.
    """

    here: str
    there: str
    near: int
    of: int
    difference: float
    in_time: tuple[int, int]

    def cells(self) -> tuple[str, ...]:
        near, in_time = f"{self.near} of {self.of}", "{} / {}".format(*self.in_time)
        return self.here, f"`{self.there}`", in_time, near, percent(self.difference)


def deadlines(shared: Path) -> list[Deadlines]:
    """All schedules that the artifact's authors kept."""
    found = []
    with speeds(shared) as table:
        for there, policy, params, overheads in POLICIES:
            name = f"`{policy}`" if isinstance(policy, str) else str(inspect.getdoc(policy)).splitlines()[0]
            result = simulated(shared, table, policy, params, overheads)
            found.append(beside(shared, there, name, result))
    return found


@contextmanager
def speeds(shared: Path) -> Iterator[Path]:
    """The path of the artifact's throughputs as a table of ours, while the context lasts."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "speeds.csv"
        write_throughputs(read_throughputs(_inputs(shared) / STUDY.table)[0], path)
        yield path


def simulated(
    shared: Path, table: Path, policy: str | type[Scheduler], params: Mapping[str, Any], overheads: str
) -> Run:
    """The artifact's jobs under a policy, on GPUs that are counted only."""
    trace = Trace.of(jobs(_inputs(shared) / STUDY.trace))
    return run(
        trace, policy, params=dict(params), cluster=STUDY.cluster, table=str(table), placement="any",
        overheads={"preset": overheads},
    )  # fmt: skip


def beside(shared: Path, there: str, here: str, result: Run) -> Deadlines:
    """A run beside the schedule `there` of the artifact."""
    name = f"{Path(STUDY.trace).stem}.{STUDY.cluster}.{there}.csv"
    theirs = {row["job_id"]: row for row in columns(shared / "reference" / "peers" / "elasticflow" / name)}
    their_jct_s = {job: float(row["end_s"]) - float(row["submit_s"]) for job, row in theirs.items()}
    both = {job.job_id: job.jct_s for job in result.jobs if job.jct_s is not None and job.job_id in theirs}
    met = sum(float(row["end_s"]) <= float(row["deadline_s"]) for row in theirs.values())
    return Deadlines(
        here,
        there,
        sum(abs(jct_s / their_jct_s[job] - 1) < NEAR for job, jct_s in both.items()),
        len(both),
        mean_change(both, {job: their_jct_s[job] for job in both}),
        (sum(job.deadline_met is True for job in result.jobs), met),
    )


def _inputs(shared: Path) -> Path:
    return shared / "data" / "traces" / "itp_elasticflow"
