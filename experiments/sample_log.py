"""The bundled sample of a Slurm log: 500 jobs on 128 GPUs, drawn and simulated here.

    python -m experiments.sample_log

writes `traces/samples/slurm.txt` in the form of `sacct --parsable2`. GPU counts and run times are those of
the bundled mix `itp-8h`, arrivals follow day and night, and the start times are those of EASY backfilling by
the time limits. Users, accounts and states are drawn; no job of the file ran anywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path

from clustersim import run
from clustersim.records import JobRecord
from itertime.io import write_text
from traces.job import Job
from traces.synthetic import Recipe, generate
from traces.workload import stream

FILE = Path(__file__).resolve().parents[1] / "traces" / "samples" / "slurm.txt"
CLUSTER, NODE_GPUS = "n16g8", 8
RECIPE = Recipe(
    jobs=500,
    load=1.05,
    gpus=128,
    arrivals="day-night",
    sizes="itp-8h",
    rules="none",
    deadlines="none",
    seed=1,
)
FIRST = datetime(2026, 3, 2, 8, tzinfo=UTC)
LIMITS_MIN = (30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200, 10080, 20160)
"""The time limits that users write: half an hour to two weeks."""
USERS = {
    "vision": ("ana", "bo", "chen"),
    "speech": ("dee", "eli"),
    "llm": ("fay", "gus", "hana", "ivo", "jo"),
}
"""Users by account; each is drawn half as often as the one before."""
ENDINGS = (("COMPLETED", 0.72), ("CANCELLED by 1001", 0.14), ("FAILED", 0.10), ("TIMEOUT", 0.04))
COLUMNS = (
    "JobIDRaw", "User", "Account", "Partition", "QOS", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "NNodes", "ReqTRES", "AllocTRES", "State", "Priority",
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """What a user states, and how the job ends."""

    account: str
    user: str
    qos: str
    limit_min: int
    state: str


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    write_text(FILE, text())


def text() -> str:
    """The whole file."""
    jobs = {job.job_id: job for job in whole_seconds(generate(RECIPE)[0])}
    drawn = dict(zip(jobs, draws(list(jobs.values())), strict=True))
    limited = [replace(job, estimate_s=60.0 * drawn[name].limit_min) for name, job in jobs.items()]
    result = run(limited, "easy", cluster=CLUSTER, overheads=None)
    rows = [row(i, record, drawn[record.job_id]) for i, record in enumerate(result.jobs)]
    return "\n".join("|".join(cells) for cells in (COLUMNS, *rows)) + "\n"


def whole_seconds(jobs: list[Job]) -> Iterator[Job]:
    """Slurm states times in whole seconds."""
    for job in jobs:
        yield replace(job, submit_s=float(round(job.submit_s)), duration_s=float(ceil(job.duration_s or 0.0)))


def draws(jobs: list[Job]) -> Iterator[Drawn]:
    """Account, user, QOS, time limit and state of each job, from a stream of their own."""
    rng = stream(RECIPE.seed, "sample-log")
    users = [(account, user) for account in USERS for user in USERS[account]]
    shares = [0.5**k for account in USERS for k in range(len(USERS[account]))]
    states, chances = zip(*ENDINGS, strict=True)
    for job in jobs:
        account, user = users[rng.choice(len(users), p=[share / sum(shares) for share in shares])]
        state = states[rng.choice(len(states), p=chances)]
        urgent, slack = rng.random() < 0.1, rng.uniform(1, 5)
        needed_min = ceil((job.duration_s or 0.0) / 60)
        limit_min = next((m for m in LIMITS_MIN if m >= slack * needed_min), LIMITS_MIN[-1])
        if state == "TIMEOUT" or limit_min < needed_min:
            limit_min = needed_min
        yield Drawn(account, user, "high" if urgent else "normal", limit_min, state)


def row(i: int, record: JobRecord, drawn: Drawn) -> list[str]:
    """The cells of one job. All jobs start and end, since the log was taken after the last end."""
    start_s, finish_s, gpus = record.start_s or 0.0, record.finish_s or 0.0, record.gpus or 0
    nodes = -(-gpus // NODE_GPUS)
    tres = f"cpu={8 * gpus},mem={64 * gpus}G,node={nodes},billing={gpus},gres/gpu={gpus},gres/gpu:a100={gpus}"
    stated = (
        100_001 + i, drawn.user, drawn.account, "gpu", drawn.qos, when(record.submit_s), when(start_s),
        when(finish_s), round(finish_s - start_s), drawn.limit_min, nodes, tres, tres, drawn.state,
        2000 if drawn.qos == "high" else 1000,
    )  # fmt: skip
    return [str(cell) for cell in stated]


def when(second: float) -> str:
    return (FIRST + timedelta(seconds=round(second))).strftime("%Y-%m-%dT%H:%M:%S")


if __name__ == "__main__":
    main()
