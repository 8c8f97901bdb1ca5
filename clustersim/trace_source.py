"""`Trace`: the jobs of a run and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from itertime.errors import TableError
from itertime.model import list_models
from traces.columns import COLUMNS, contradictions
from traces.files import shown
from traces.generate import Recipe, generate_stored
from traces.job import Job, submission_order
from traces.native import store_trace
from traces.rows import TEXTS
from traces.stored import StoredJobs

from .throughput import read_throughput_table

__all__ = ["Trace"]


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission, and their source: a file, a recipe, or neither.

    Jobs of a file or a recipe are stored on disk, not in memory.
    """

    jobs: tuple[Job, ...] | StoredJobs
    path: str = ""
    sha256: str = ""
    recipe: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: str | Path, table: str | None = None) -> Trace:
        """Read a native trace once; it may be a pipe.

        `table`: a throughput table; the names of its models are then known beside those of `itertime`.
        TableError names every bad row, before anything is simulated.
        """
        known = None
        if table:
            known = sorted({*list_models(), *(model for model, _ in read_throughput_table(table))})
        jobs = store_trace(path, known_models=known)
        return cls(jobs, str(path), jobs.sha256)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Trace:
        """A trace made in memory. TableError names a job that could not be in a file either."""
        seen: set[str] = set()
        for job in jobs:
            if job.job_id in seen:
                raise TableError(f"job_id={shown(job.job_id)}: appears twice; ids must be unique")
            seen.add(job.job_id)
            _check(job)
        return cls(tuple(submission_order(jobs)))

    @classmethod
    def generated(cls, recipe: Recipe) -> Trace:
        """The jobs of a recipe. UserError for a recipe that cannot be followed."""
        jobs = generate_stored(recipe)[0]
        for job in jobs:
            _check(job)
        return cls(jobs, recipe=asdict(recipe))


def _check(job: Job) -> None:
    for column, parse in COLUMNS.items():
        value = getattr(job, column)
        if value is None:
            continue
        if isinstance(value, str) != (column in TEXTS):
            kind = "text" if column in TEXTS else "a number"
            raise TableError(f"job {shown(job.job_id)}: {column}={shown(repr(value))}: must be {kind}")
        try:
            parse(str(value))
        except ValueError as error:
            raise TableError(f"job {shown(job.job_id)}: {column}={shown(value)}: {error}") from None
    for column, value, text in contradictions(job):
        raise TableError(f"job {shown(job.job_id)}: {column}={shown(value)}: {text}")
