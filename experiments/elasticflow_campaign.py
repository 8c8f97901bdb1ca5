"""Slots, placements and orders of jobs that reproduce edf, gandiva and dlas of ElasticFlow's artifact.

`slots` gives the tables on slots of experiments/ELASTICFLOW.md, and

    python -m experiments.elasticflow_campaign ../shared/data/traces/itp_elasticflow

tries all combinations on the T4 trace and prints those that come near (minutes).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from experiments.elasticflow_slots import PLACEMENTS, Request, Setting, jobs_in_time
from traces.job import Job
from traces.logs import import_log, read_throughputs

__all__ = ["SIZES", "one_change", "requests", "slots", "timings"]

PHILLY, T4 = ("philly_103959.csv", "throughputs_A100"), ("elasticVpollux_e.csv", "throughputs_T4")
PRINTED_PHILLY: Mapping[str, int] = {"edf": 382, "gandiva": 362, "dlas": 408}
PRINTED_T4: Mapping[str, int] = {"edf": 23, "gandiva": 18}
"""Jobs in time: the ratios that the artifact prints, times the 876 and 195 jobs of the traces."""

SLOTS_S = (60, 120, 180, 240, 300, 360, 600)
TIMINGS: Mapping[str, Mapping[str, Any]] = {
    "starts with the next slot": {},
    "starts with the next slot, ends with one": {"noticed": True},
    "starts a slot later": {"waits_slots": 1},
    "starts a slot later, ends with one": {"waits_slots": 1, "noticed": True},
}
GRIDS_S = (0, 60, 120, 180)
"""Seconds from the start of the first slot to the first job. Results that depend on it become ranges."""

SIZES: Mapping[str, Callable[[Job, Mapping[int, float]], int]] = {
    "the GPUs asked for": lambda job, speed: job.gpus or 1,
    "the fastest number of GPUs": lambda job, speed: max(speed, key=lambda n: speed[n]),
    "the most GPUs of the table": lambda job, speed: max(speed),
    "the fewest GPUs that suffice": lambda job, speed: _fewest(job, speed),
}
EDF = Setting("deadline", 240, "emptiest node", noticed=True)
GANDIVA = Setting("arrival", 240, "emptiest node", waits_slots=1)
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "slots of 60 s": {"slot_s": 60.0},
    "slots of 360 s": {"slot_s": 360.0},
    "jobs that do not fit are passed": {"passing": True},
    "preemptive": {"preemptive": True},
    "preemptive and passing": {"preemptive": True, "passing": True},
    "the fullest node first": {"placement": "fullest node"},
    "the first node first": {"placement": "first node"},
    "any GPUs": {"placement": "anywhere"},
    "jobs that are late come last": {"late": "last"},
    "jobs that are late are dropped": {"late": "leave"},
    "a start costs 45 s": {"start_s": 45.0},
    "a start costs all running jobs 45 s": {"start_s": 45.0, "all_pay": True},
}
_TURNS: Mapping[str, Any] = {"order": "turns", "preemptive": True, "passing": True}
TURNS: Mapping[str, Mapping[str, Any]] = {
    "turns": _TURNS,
    "turns, a start costs all running jobs 45 s": {**_TURNS, "start_s": 45.0, "all_pay": True},
}


def requests(
    folder: Path, trace: str, table: str, size: str = "the GPUs asked for", whole: int = 1
) -> list[Request]:
    """The jobs of a trace at the speed of `size` GPUs (of `SIZES`), holding at least `whole` GPUs."""
    speeds: dict[tuple[str, int], dict[int, float]] = {}
    for row in read_throughputs(folder / table)[0]:
        speeds.setdefault((row.model, row.global_batch), {})[row.gpus] = row.iterations_per_s
    found = []
    for job in import_log(folder / trace, rules="none")[0]:
        assert job.model is not None and job.global_batch is not None  # noqa: PT018
        assert job.iterations is not None and job.deadline_s is not None  # noqa: PT018
        speed = speeds[job.model, job.global_batch]
        gpus = SIZES[size](job, speed)
        found.append(Request(job.submit_s, job.deadline_s, max(gpus, whole), job.iterations / speed[gpus]))
    return found


def _fewest(job: Job, speed: Mapping[int, float]) -> int:
    assert job.iterations is not None and job.deadline_s is not None  # noqa: PT018
    enough = [n for n in speed if job.iterations <= speed[n] * (job.deadline_s - job.submit_s)]
    return min(enough) if enough else max(speed, key=lambda n: speed[n])


def slots(folder: Path) -> str:
    """The tables on slots of experiments/ELASTICFLOW.md."""
    return (
        "### Slots without queues: jobs of philly_103959.csv in time\n\n"
        + timings(requests(folder, *PHILLY), 32, 8, PRINTED_PHILLY)
        + "\n### Slots of 240 s with long queues: jobs of elasticVpollux_e.csv in time\n\n"
        + one_change(folder)
    )


def timings(jobs: Sequence[Request], nodes: int, per_node: int, printed: Mapping[str, int]) -> str:
    """Jobs in time by the length of a slot, without queues; within two jobs of `printed` in bold."""
    rows = ["| a job ... | " + " | ".join(f"{slot} s" for slot in SLOTS_S) + " |"]
    rows.append("|" + "---|" * (len(SLOTS_S) + 1))
    for name, timing in TIMINGS.items():
        counts = [
            jobs_in_time(jobs, nodes, per_node, Setting("deadline", slot, **timing)) for slot in SLOTS_S
        ]
        rows.append(f"| {name} | " + " | ".join(_marked(count, printed) for count in counts) + " |")
    return "\n".join(rows) + "\n"


def _marked(count: int, printed: Mapping[str, int]) -> str:
    near = [name for name, wanted in printed.items() if abs(count - wanted) <= 2]
    return f"**{count} ({', '.join(near)})**" if near else str(count)


def one_change(folder: Path) -> str:
    """Jobs in time on the T4 trace, minimum to maximum over `GRIDS_S`, with one change each."""
    asked, own_nodes = requests(folder, *T4), requests(folder, *T4, whole=4)
    rows = ["| what changes | edf | gandiva |", "|---|---|---|"]
    rows.append(f"| the artifact | {PRINTED_T4['edf']} | {PRINTED_T4['gandiva']} |")

    def row(name: str, jobs: Sequence[Request], change: Mapping[str, Any], both: bool = True) -> None:
        edf = _range(jobs, replace(EDF, **change)) if both else ""
        gandiva = _range(jobs, replace(GANDIVA, **change))
        rows.append(f"| {name} | {edf} | {gandiva} |")

    for name, change in CHANGES.items():
        row(name, asked, change)
    for size in list(SIZES)[1:]:
        row(size, requests(folder, *T4, size), {})
    row("each job has nodes of its own", own_nodes, {})
    for name, change in TURNS.items():
        row(name, asked, change, both=False)
    row("turns, each job has nodes of its own", own_nodes, _TURNS, both=False)
    return "\n".join(rows) + "\n"


def _range(jobs: Sequence[Request], setting: Setting) -> str:
    counts = sorted(over_grids(jobs, setting))
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"


def over_grids(jobs: Sequence[Request], setting: Setting) -> Iterator[int]:
    """Jobs in time on the T4 cluster, for each position of the first slot."""
    for shift_s in GRIDS_S:
        shifted = [
            job._replace(submit_s=job.submit_s + shift_s, deadline_s=job.deadline_s + shift_s) for job in jobs
        ]
        yield jobs_in_time(shifted, 16, 4, setting)


def _settings(order: str) -> Iterator[Setting]:
    base = EDF if order == "deadline" else replace(GANDIVA, order=order)
    for placement, preemptive, passing, late in product(
        PLACEMENTS, (False, True), (False, True), ("stay", "last", "leave")
    ):
        yield replace(base, placement=placement, preemptive=preemptive, passing=passing, late=late)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of ElasticFlow's traces.")
    folder = parser.parse_args(arguments).folder
    gangs = {size: requests(folder, *T4, size) for size in SIZES}
    gangs["nodes of its own"] = requests(folder, *T4, whole=4)
    for name, order in (("edf", "deadline"), ("gandiva", "arrival")):
        tried = near = 0
        for (size, jobs), setting in product(gangs.items(), _settings(order)):
            counts = sorted(over_grids(jobs, setting))
            tried += 1
            if counts[0] - 2 <= PRINTED_T4[name] <= counts[-1] + 2:
                near += 1
                sys.stdout.write(f"{name} {counts}: {size}; {setting}\n")
        sys.stdout.write(f"{name} by {order}: {near} of {tried} come within two jobs of {PRINTED_T4[name]}\n")


if __name__ == "__main__":
    main()
