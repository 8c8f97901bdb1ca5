"""The jobs of a run and their source, and the trace that the manifest of an earlier run names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from clustersim.cluster import Cluster
from clustersim.scheduler import Scheduler
from clustersim.speed import node_changes, read_throughput_table
from itertime.errors import TableError, UserError
from itertime.io import sha256, shown
from itertime.spec import Models, load_system, profile_of
from traces.dependencies import cycle_of, words_of_cycle
from traces.job import Job, submission_order
from traces.native import (
    COLUMNS,
    TEXTS,
    StoredJobs,
    contradictions,
    is_data_frame,
    jobs_of_frame,
    store_trace,
)
from traces.synthetic import Recipe, generate_stored

from .config import RunConfig
from .fingerprints import is_of_this_code, recipe_hash

__all__ = ["LARGEST_FILE", "Trace", "TraceLike", "recipe_values", "stated_hash", "trace_of_manifest"]

LARGEST_FILE = 10_000_000_000
"""Bytes of the largest trace or table that is read because a manifest names it: a hundred million jobs."""


class SupportsDataFrame(Protocol):
    """A data frame of pandas or another library with the interchange protocol."""

    def __dataframe__(self, *arguments: Any, **options: Any) -> Any: ...


class SupportsArrow(Protocol):
    """A data frame of polars, or any table with the Arrow stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission, and their source: a file, a recipe, or neither.

    Jobs of a file or a recipe are stored on disk, not in memory. `models`: those that the jobs may name;
    None if they name none.
    """

    jobs: tuple[Job, ...] | StoredJobs
    path: str = ""
    sha256: str = ""
    recipe: Mapping[str, Any] | None = None
    models: Models | None = field(default_factory=Models, compare=False)

    @classmethod
    def read(
        cls,
        path: str | Path,
        table: str | None = None,
        model_path: Sequence[str] = (),
        models: Models | None = None,
    ) -> Trace:
        """Read a native trace once; it may be a pipe.

        `table`: a throughput table; the names of its models are then known too. `model_path`: folders of
        model files. `models`, if given, are used instead of the files. TableError names every bad row, before
        anything is simulated.
        """
        names = None
        models = models or Models(Path(path).parent, model_path)
        if table:
            names = sorted({*models.names(), *(model for model, _ in read_throughput_table(table))})
        jobs = store_trace(path, known_models=names, models=models)
        return cls(jobs, str(path), jobs.sha256, models=models)

    @classmethod
    def given(cls, trace: object, table: str | None = None, model_path: Sequence[str] = ()) -> Trace:
        """A trace in any form that the Python interface takes: a file, jobs, a data frame, or a `Trace`.

        UserError for anything else.
        """
        if isinstance(trace, Trace):
            return trace
        if isinstance(trace, str | Path):
            return cls.read(trace, table, model_path)
        if not isinstance(trace, list | tuple) and is_data_frame(trace):
            return cls.of(jobs_of_frame(trace), model_path)
        if isinstance(trace, Iterable) and not isinstance(trace, Mapping):
            jobs = list(trace)
            if all(isinstance(job, Job) for job in jobs):
                return cls.of(jobs, model_path)
        forms = "must be the path of a trace, jobs (traces.Job), or a data frame"
        raise UserError(f"trace={type(trace).__name__}: {forms}{_remedy(trace)}")

    @classmethod
    def of(cls, jobs: Sequence[Job], model_path: Sequence[str] = ()) -> Trace:
        """A trace made in memory. TableError names a job that could not be in a file either. A model may be
        the path of any file.
        """
        jobs_by_id: dict[str, Job] = {}
        names_models = bool(model_path)
        for job in jobs:
            if job.job_id in jobs_by_id:
                raise TableError(f"job_id={shown(job.job_id)}: appears twice; ids must be unique")
            jobs_by_id[job.job_id] = _checked(job)
            names_models = names_models or job.model is not None
        dependents = [(job.job_id, job.array_id, job.depends) for job in jobs if job.depends is not None]
        if cycle := cycle_of(dependents):
            raise TableError(f"job_id={shown(cycle[0])}: depends: {words_of_cycle(cycle)}")
        models = Models(search=model_path) if names_models else None
        return cls(tuple(submission_order(jobs_by_id.values())), models=models)

    @classmethod
    def generated(cls, recipe: Recipe) -> Trace:
        """The jobs of a recipe. UserError for a recipe that cannot be followed."""
        jobs = generate_stored(recipe)[0]
        for job in jobs:
            _checked(job)
        return cls(jobs, recipe=asdict(recipe))


def recipe_values(config: RunConfig) -> dict[str, Any]:
    """The fields of a `Recipe` that the runs of `config` decide: with them, the trace offers these runs the
    load that its recipe states.

    Policies that are compared share one trace, so the planner is that of the settings, or the default of all
    policies, and not that of one policy. On a cluster of several GPU types the system is that of the fastest,
    by which `offered_load` counts work. UserError for a cluster that cannot be used.
    """
    cluster = config.stated_cluster()
    values = {
        "gpus": cluster.gpus,
        "planner": config.planner or Scheduler.planner,
        "memory_headroom": config.memory_headroom,
    }
    system = _fastest_system(cluster)
    return values if system is None else {**values, "system": system}


def _fastest_system(cluster: Cluster) -> str | None:
    """The system of the nodes with the fastest GPUs, with what the cluster changes of it; None if no GPU type
    has a profile.
    """
    peak_flops = {
        pool: profile_of(load_system(pool.system)).peak_flops for pool in cluster.pools if pool.system
    }
    if not peak_flops:
        return None
    pool = max(peak_flops, key=lambda pool: peak_flops[pool])
    changes = node_changes(pool)
    if "nic_bytes_per_s" in changes:
        changes["nic_gbps"] = changes.pop("nic_bytes_per_s") * 8 / 1e9
    return ",".join([pool.system or "", *(f"{name}={value:g}" for name, value in changes.items())])


def _remedy(trace: object) -> str:
    """How to make a trace of something that is nearly one; empty for anything else."""
    if isinstance(trace, Job):
        return "; put the job in a list"
    if isinstance(trace, Mapping) or (isinstance(trace, list) and trace and isinstance(trace[0], Mapping)):
        return "; pandas.DataFrame(trace) is one"
    if hasattr(trace, "collect"):
        return "; trace.collect() is one"
    if hasattr(trace, "to_frame"):
        return "; it is one column; give a column for each field"
    return "; save its content to a file" if hasattr(trace, "read") else ""


TraceLike: TypeAlias = str | Path | Trace | Iterable[Job] | SupportsDataFrame | SupportsArrow
"""What the Python interface takes as a trace."""


def _checked(job: Job) -> Job:
    """The job with each number as a file would give it: 5 as 5.0 where numbers need not be whole. TableError
    for a job that could not be in a file.
    """
    numbers: dict[str, Any] = {}
    for column, parse in COLUMNS.items():
        value = getattr(job, column)
        if value is None:
            continue
        if isinstance(value, str) != (column in TEXTS):
            kind = "text" if column in TEXTS else "a number"
            raise TableError(f"job {shown(job.job_id)}: {column}={shown(repr(value))}: must be {kind}")
        try:
            parsed = parse(str(value))
        except ValueError as error:
            raise TableError(f"job {shown(job.job_id)}: {column}={shown(value)}: {error}") from None
        if type(parsed) is not type(value):
            numbers[column] = parsed
    for column, value, text in contradictions(job):
        raise TableError(f"job {shown(job.job_id)}: {column}={shown(value)}: {text}")
    return replace(job, **numbers) if numbers else job


# The trace of an earlier run


def trace_of_manifest(
    manifest: Mapping[str, Any], file: str | Path | None = None, most_jobs: float = inf
) -> Trace | str:
    """The trace of a run, from `file` or as its manifest names it; or the reason why there is none.

    `most_jobs`: that the run can have had. No longer trace is generated: that could take hours. UserError,
    TableError for a `file` that cannot be read.
    """
    entry = manifest.get("trace")
    source: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    table = manifest.get("table")
    table = table if isinstance(table, str) else None
    try:
        models = Models.recorded(manifest.get("models"))
    except UserError as error:
        return str(error)
    if file is not None:
        if Path(file).is_fifo():
            raise UserError(f"{file}: is a pipe, and is read more than once; save it to a file first")
        return Trace.read(file, table, models=models)
    if "recipe" in source:
        return _generated(source["recipe"], source.get("recipe_sha256"), manifest, most_jobs)
    path = source.get("path")
    if not isinstance(path, str) or not path:
        return "the trace was made in memory, and is in no file"
    try:
        if sha256(path, LARGEST_FILE) != source.get("sha256"):
            return f"{path:.300} is not the trace of the run any more"
        return Trace.read(path, table, models=models)
    except (OSError, ValueError) as error:
        return f"{path:.300}: cannot be read: {getattr(error, 'strerror', None) or error}"
    except UserError as error:
        return str(error)[:300]


def _generated(recipe: object, digest: object, manifest: Mapping[str, Any], most_jobs: float) -> Trace | str:
    if not is_of_this_code(manifest):
        return "another version generated the trace"
    keys = {field.name for field in fields(Recipe)}
    if not isinstance(recipe, dict) or not set(recipe) <= keys:
        return f"recipe={shown(recipe)}: is no recipe"
    if isinstance(jobs := recipe.get("jobs"), int) and jobs > most_jobs:
        return f"its recipe gives {jobs:,} jobs, the records are of at most {most_jobs:,}"
    try:
        if recipe_hash(recipe) != digest:
            return "the files that its recipe names were changed since the run"
        return Trace.generated(Recipe(**recipe))
    except (UserError, OSError, TypeError, ValueError, ArithmeticError) as error:
        return f"recipe={shown(recipe)}: {error}"


def stated_hash(manifest: Mapping[str, Any]) -> object:
    """The hash of the file of the trace, as the manifest states it; None if it states none."""
    entry = manifest.get("trace")
    return entry.get("sha256") if isinstance(entry, dict) else None
