"""The steps from elasticflow here to the figures of ElasticFlow's artifact, each measured alone.

`steps` gives the table of experiments/ELASTICFLOW.md; `experiments.elasticflow_traces` prints it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from pathlib import Path
from typing import Any

from clustersim.runs import Trace, run
from experiments.elasticflow_campaign import GRIDS_S, PHILLY, T4
from experiments.elasticflow_refill import Elastic, Rules, refilled
from traces.logs import import_log, read_throughputs, write_throughputs

__all__ = ["RULES", "elastic_jobs", "row", "steps"]

NONE: Mapping[str, Any] = {"together": False, "to_most": False}
FREE: Mapping[str, Any] = {"start_s": 0.0, "restart_s": 0.0, "per_log2_s": 0.0}
RULES: Mapping[str, Mapping[str, Any]] = {
    "planned anew in every slot of 240 s, restarts not foreseen": NONE,
    "and spare GPUs go where GPU time grows most": {"together": False},
    "and arrivals of an instant are declined together": {},
    "all three, but restarts cost nothing": FREE,
    "all three, but plans are filled from now on, not from the deadline": {"backwards": False},
    "all three, in slots of 180 s": {"slot_s": 180.0},
    "all three, in slots of 360 s": {"slot_s": 360.0},
}
REQUESTED: Mapping[str, Any] = {"together": False, **FREE}


def elastic_jobs(folder: Path, trace: str, table: str, requested: bool = False) -> list[Elastic]:
    """The jobs of a trace on the GPU counts of the table, or on the `requested` one alone."""
    speeds: dict[tuple[str, int], dict[int, float]] = {}
    for cell in read_throughputs(folder / table)[0]:
        speeds.setdefault((cell.model, cell.global_batch), {})[cell.gpus] = cell.iterations_per_s
    found = []
    for job in import_log(folder / trace, rules="none")[0]:
        assert job.model is not None and job.global_batch is not None and job.gpus is not None  # noqa: PT018
        assert job.iterations is not None and job.deadline_s is not None  # noqa: PT018
        speed = speeds[job.model, job.global_batch]
        allowed = {job.gpus: speed[job.gpus]} if requested else speed
        found.append(Elastic(job.submit_s, job.deadline_s, job.iterations, allowed))
    return found


def steps(folder: Path) -> str:
    """Jobs planned and in time, minimum to maximum over `GRIDS_S`, with one change after another."""
    jobs = elastic_jobs(folder, *T4)
    philly = _over_grids(elastic_jobs(folder, *PHILLY), 256, Rules())
    asked = _over_grids(elastic_jobs(folder, *T4, requested=True), 64, Rules(**REQUESTED))
    return "\n".join(
        (
            "### Steps from elasticflow here to the artifact's: jobs of elasticVpollux_e.csv\n",
            "| | planned | in time | in time without admission |",
            "|---|---|---|---|",
            "| the artifact | 142 | 127 | 130 |",
            _row("elasticflow here", *_here(folder, None)),
            _row("in slots of 240 s: arrivals wait for one, deadlines fall back to one", *_here(folder, 240)),
            *(row(name, jobs) for name in RULES),
            "",
            f"philly_103959.csv by all three: {philly[0]} planned, {philly[1]} in time (the artifact: 797).",
            "*edf with admission* as a plan anew in every slot on the GPUs asked for, with restarts that",
            f"cost nothing: {asked[1]} in time (the artifact: 80).",
            "",
        )
    )  # fmt: skip


def row(name: str, jobs: Sequence[Elastic]) -> str:
    """The row of the rules `name` (of `RULES`) on the T4 cluster."""
    rules = Rules(**RULES[name])
    planned, in_time = _over_grids(jobs, 64, rules)
    return _row(name, planned, in_time, _over_grids(jobs, 64, replace(rules, admission=False))[1])


def _row(name: str, planned: str, in_time: str, without: str) -> str:
    return f"| {name} | {planned} | {in_time} | {without} |"


def _over_grids(jobs: Sequence[Elastic], gpus: int, rules: Rules) -> tuple[str, str]:
    """Jobs planned and jobs in time, over `GRIDS_S`."""
    outcomes = []
    for shift_s in GRIDS_S:
        shifted = (
            job._replace(submit_s=job.submit_s + shift_s, deadline_s=job.deadline_s + shift_s) for job in jobs
        )
        outcomes.append(refilled(list(shifted), gpus, rules))
    return _range([outcome.planned for outcome in outcomes]), _range(
        [outcome.in_time for outcome in outcomes]
    )


def _range(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"


def _here(folder: Path, slot_s: int | None) -> tuple[str, str, str]:
    """Jobs that the policy elasticflow admits, finishes in time, and finishes in time without admission."""
    trace = import_log(folder / T4[0], rules="none")[0]

    def at(time_s: float, shift_s: float, whole: Callable[[float], int]) -> float:
        return slot_s * whole((time_s + shift_s) / slot_s) if slot_s else time_s

    counts: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory() as scratch:
        speeds = Path(scratch) / "speeds.csv"
        write_throughputs(read_throughputs(folder / T4[1])[0], speeds)
        for shift_s in GRIDS_S if slot_s else (0,):
            moved = []
            for job in trace:
                assert job.deadline_s is not None
                submit_s = at(job.submit_s, shift_s, ceil)
                deadline_s = max(at(job.deadline_s, shift_s, floor), submit_s + 1e-3)  # missed in any case
                moved.append(replace(job, submit_s=submit_s, deadline_s=deadline_s))
            with_, without = (
                run(
                    Trace.of(moved), "elasticflow", params={"admission": admission}, cluster="n16g4",
                    table=str(speeds), overheads={"preset": "elasticflow"},
                ).summary
                for admission in (True, False)
            )  # fmt: skip
            met = [round(float(summary["deadline_met_ratio"]) * len(trace)) for summary in (with_, without)]
            counts.append((len(trace) - int(with_["rejected"]), *met))  # type: ignore[arg-type]
    planned, in_time, alone = zip(*counts, strict=True)
    return _range(planned), _range(in_time), _range(alone)
