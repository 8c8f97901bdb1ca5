"""AFS as the authors of PCS wrote it: the GPUs of each job.

Hwang et al., NSDI 2021, as implemented in github.com/TuftsNATLab/PCS at 4ed6b2e.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from clustersim.scheduler import JobView
from experiments.peers.rows import Row, instances
from policies.afs import apathetic_shares

__all__ = ["rows", "shares"]


@dataclass(eq=False)
class _Job:
    """A job as the rule sees it: `work` units left, `rates` in units/s by GPUs."""

    id: str
    order: int
    work: float
    rates: Mapping[int, float]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.rates)

    def rate(self, gpus: int) -> float:
        return self.rates[gpus]

    def oracle_remaining(self, gpus: int) -> float:
        return self.work / self.rates[gpus]


def rows(folder: Path) -> list[Row]:
    """Jobs and divisions: a division is equal if all of its jobs have the same GPUs."""
    divisions, jobs, equal_divisions, equal_jobs = 0, 0, 0, 0
    for instance in instances(folder / "afs_shares_pcs.json.gz"):
        ours, theirs = shares(instance), instance["pcs"]
        same = [ours.get(job["id"], 0) == theirs.get(job["id"], 0) for job in instance["jobs"]]
        divisions, jobs = divisions + 1, jobs + len(same)
        equal_divisions, equal_jobs = equal_divisions + all(same), equal_jobs + sum(same)
    given = f"{divisions} divisions of 16 GPUs"
    return [
        Row("afs", "AppAFSScheduler", given, "divisions", equal_divisions, divisions),
        Row("afs", "AppAFSScheduler", given, "GPUs of jobs", equal_jobs, jobs),
    ]


def shares(instance: Mapping[str, Any]) -> dict[str, int]:
    """GPUs by job as `afs` divides them."""
    jobs = [
        _Job(job["id"], order, job["work"], {int(n): rate for n, rate in job["rates"].items()})
        for order, job in enumerate(instance["jobs"])
    ]
    by_length = sorted(jobs, key=lambda job: (job.oracle_remaining(job.sizes[0]), job.order))

    def walk(fits: object) -> Iterator[JobView]:
        return iter(cast(list[JobView], by_length))

    return {job.id: gpus for job, gpus in apathetic_shares(walk, instance["gpus"], {}).items()}
