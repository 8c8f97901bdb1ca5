"""A line of the comparison, and how the files of decisions are read."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustersim.scheduler import Scheduler
from clustersim.testing import Outcome, simulate
from traces.job import Job

__all__ = [
    "INSTANT_S",
    "Row",
    "columns",
    "instances",
    "jobs_of",
    "mean_change",
    "percent",
    "scheduled",
    "table",
]

INSTANT_S = 1.0
"""Times this close are equal: the programs count in seconds."""


@dataclass(frozen=True)
class Row:
    """A policy here beside one there, on one input.

    `equal` of `of` decisions are the same. `difference`: ours over theirs, less 1, of the mean that `what`
    names; None where no mean is compared. `preemptions`: ours and theirs; None where they are not compared.
    """

    here: str
    there: str
    input: str
    what: str
    equal: int
    of: int
    difference: float | None = None
    preemptions: tuple[int, int] | None = None

    def cells(self) -> tuple[str, ...]:
        """The row as the cells of a table, without `what`."""
        difference = "" if self.difference is None else percent(self.difference)
        preemptions = "" if self.preemptions is None else "{} / {}".format(*self.preemptions)
        return (
            f"`{self.here}`", f"`{self.there}`", self.input, f"{self.equal} of {self.of}", difference,
            preemptions,
        )  # fmt: skip


def percent(share: float) -> str:
    """A signed percentage with one digit; 0 where it rounds to that."""
    text = f"{100 * share:+.1f}"
    return "0" if float(text) == 0 else f"{text} %"


def table(rows: Sequence[Sequence[str]], *head: str) -> str:
    """A Markdown table, without a last line break."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def columns(path: Path) -> list[dict[str, str]]:
    """The rows of a file of comma-separated values by the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def instances(path: Path) -> list[dict[str, Any]]:
    """The instances of a compressed JSON file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def jobs_of(path: Path) -> list[Job]:
    """The jobs of a trace with the columns job_id, submit_s, gpus, duration_s."""
    return [
        Job(row["job_id"], float(row["submit_s"]), gpus=int(row["gpus"]), duration_s=float(row["duration_s"]))
        for row in columns(path)
    ]


def scheduled(jobs: Sequence[Job], policy: Scheduler, gpus: int) -> Outcome:
    """The jobs under a policy on GPUs that are counted only, as those programs do; starts cost nothing."""
    return simulate(jobs, policy, f"1x{gpus}", placement="any")


def mean_change(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """The mean of `ours` over that of `theirs`, less 1; 0 where both are 0."""
    here, there = sum(ours.values()), sum(theirs.values())
    return here / there - 1 if there else here
