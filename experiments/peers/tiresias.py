"""The simulator of Tiresias' authors: starts, ends and preemptions of nine of its schedules.

Gu et al., NSDI 2019; github.com/SymbioticLab/Tiresias at 959f9b0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from clustersim.scheduler import Scheduler
from experiments.peers.rows import INSTANT_S, Row, columns, jobs_of, mean_change, scheduled
from policies.fifo import Fifo
from policies.fifo_skip import FifoSkip
from policies.gittins import Gittins
from policies.smallest import Smallest
from policies.srsf import Srsf
from policies.srtf import Srtf
from policies.tiresias import Tiresias

__all__ = ["LIMITS_GPU_S", "QUEUES", "SAME_RULES", "TRACES", "beside", "rows", "traces_in"]

LIMITS_GPU_S = (3250.0, 7200.0)
"""Between the queues, in that simulator."""
SAME_RULES: Mapping[str, tuple[str, Callable[[], Scheduler]]] = {
    "fifo": ("fifo", Fifo),
    "fjf": ("fifo-skip", FifoSkip),
    "sjf": ("smallest", Smallest),
    "shortest": ("srtf", Srtf),
    "shortest-gpu": ("srsf", Srsf),
}
"""By the name of a schedule there: our name, our policy."""
QUEUES: Mapping[str, float | None] = {"dlas-gpu": None, "dlas-gpu-8": 8.0, "dlas-gpu-1": 1.0}
"""The knob of promotions by the name of a schedule there."""
TRACES = ("60_job", "t300")
"""Those of the page; others in the folder are tested too."""
_SUFFIX = ".tiresias.csv"


def traces_in(folder: Path) -> dict[str, Path]:
    """Files of decisions by the name of their trace."""
    return {path.name.partition(".")[0]: path for path in sorted(folder.glob(f"*{_SUFFIX}"))}


def rows(folder: Path) -> list[Row]:
    """The schedules of the traces of the page."""
    files, found = traces_in(folder), []
    sizes = [float(row["duration"]) for row in columns(folder / "yarn-gput1000.csv")]
    for trace in TRACES:
        for there, (here, policy) in SAME_RULES.items():
            found.append(beside(files[trace], there, here, policy()))
        for there, knob in QUEUES.items():
            found.append(beside(files[trace], there, "tiresias", Tiresias(LIMITS_GPU_S, knob)))
        found.append(beside(files[trace], "dlas-gpu-gittins", "gittins", Gittins(sizes)))
    return found


def beside(path: Path, there: str, here: str, policy: Scheduler) -> Row:
    """A schedule of a file of decisions beside that of a policy on the same jobs. A job is equal whose start
    and end are.
    """
    trace, _, _ = path.name.partition(".")
    layout = re.search(r"\.n(\d+)g(\d+)\.", path.name)
    if layout is None:
        raise ValueError(f"{path}: the name must state the cluster, as in t300.n4g4{_SUFFIX}")
    gpus = int(layout[1]) * int(layout[2])
    jobs = jobs_of(path.with_name(f"{trace}.csv"))
    ours = {record.job_id: record for record in scheduled(jobs, policy, gpus).records}
    theirs = {row["job_id"]: row for row in columns(path)}
    equal = 0
    jct_s, their_jct_s = {}, {}
    for job in jobs:
        record, row = ours[job.job_id], theirs[job.job_id]
        start_s, end_s = float(row[f"{there}:start_s"]), float(row[f"{there}:end_s"])
        if record.start_s is None or record.finish_s is None:
            raise ValueError(f"job {job.job_id} did not finish under {here}")
        equal += abs(record.start_s - start_s) < INSTANT_S and abs(record.finish_s - end_s) < INSTANT_S
        jct_s[job.job_id], their_jct_s[job.job_id] = record.finish_s - job.submit_s, end_s - job.submit_s
    preemptions = (
        sum(record.preemptions for record in ours.values()),
        sum(int(row[f"{there}:preemptions"]) for row in theirs.values()),
    )
    difference = mean_change(jct_s, their_jct_s)
    return Row(
        here, there, f"{trace}, {gpus} GPUs", "starts and ends", equal, len(jobs), difference, preemptions
    )
