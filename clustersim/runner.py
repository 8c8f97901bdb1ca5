"""From a trace and settings to a finished run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from itertime.errors import TableError, UserError
from traces.columns import COLUMNS, contradictions
from traces.files import shown
from traces.job import Job, submission_order
from traces.rows import TEXTS
from traces.stored import StoredJobs

from .calendar import Calendar
from .cluster import Cluster
from .cluster_state import checked_quotas
from .clusterfile import load_cluster
from .config import RunConfig
from .errors import PolicyError
from .failures import Failures
from .interrupts import interrupting
from .manifest import manifest_of, source_hashes
from .metrics import Jobs, Snapshots, summarise
from .overheads import Overheads
from .plan_records import plans_used
from .records import Recorder
from .registry import make_policy
from .rundir import COMPLETE, INTERRUPTED, STOPPED, Run
from .rundir_writer import RunWriter
from .scheduler import Scheduler
from .simulation import Simulation
from .speed import Speed, read_throughput_table, speed_for

if TYPE_CHECKING:
    from traces.generate import Recipe

__all__ = ["Trace", "check_config", "run", "run_on"]


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission, and where they come from: a file or a recipe (they are then on disk, not
    in memory).
    """

    jobs: tuple[Job, ...] | StoredJobs
    path: str = ""
    sha256: str = ""
    recipe: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: str | Path, table: str | None = None) -> Trace:
        """Read a native trace, which may be a pipe, once.

        `table`: a throughput table whose model names are known beside those of `itertime`. TableError names
        every bad row, before anything is simulated.
        """
        from traces.native import store_trace

        known = None
        if table:
            from itertime import list_models

            known = sorted({*list_models(), *(model for model, _ in read_throughput_table(table))})
        jobs = store_trace(path, known_models=known)
        return cls(jobs, str(path), jobs.sha256)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Trace:
        """A trace made in memory. TableError names a job that a file could not hold either."""
        seen: set[str] = set()
        for job in jobs:
            if job.job_id in seen:
                raise TableError(f"job_id={shown(job.job_id)}: appears twice; ids must be unique")
            seen.add(job.job_id)
            _check(job)
        return cls(tuple(submission_order(jobs)))

    @classmethod
    def generated(cls, recipe: Recipe) -> Trace:
        """The jobs of a recipe. UserError for one that cannot be followed."""
        from traces.generate import generate_stored

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


def run(
    trace: str | Path | Trace | Sequence[Job],
    policy: str | type[Scheduler] | None = None,
    *,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    parquet: bool = False,
    on_progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> Run:
    """Simulate `trace` (a file, or jobs) under one policy, by name or class.

    Settings are those of `RunConfig`, or all are in `config`. `out`: a folder to write the run into while it
    goes on (see `clustersim.rundir`; `parquet` as there); the records of the run are then read from it when
    they are looked at, and memory holds no more than the jobs in the system and a few numbers of each job.

    Raises UserError for settings or a folder that cannot be written, TableError for the trace, PolicyError
    for a policy that breaks a rule, KeyboardInterrupt when interrupted; the last two have what was recorded
    up to then as `partial`, and it is in the folder.

    >>> import clustersim
    >>> from traces import Job
    >>> jobs = [Job("a", 0.0, gpus=8, duration_s=60.0), Job("b", 0.0, gpus=8, duration_s=60.0)]
    >>> run = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    >>> run.summary["makespan_s"]
    120.0
    """
    if config is not None and (policy is not None or settings):
        raise UserError("run: give either config or policy and settings, not both")
    if config is None:
        named = policy.__name__ if isinstance(policy, type) else policy
        config = RunConfig.make(policy=named or "fifo", **settings)
    if not isinstance(trace, Trace):
        trace = Trace.read(trace, config.table) if isinstance(trace, str | Path) else Trace.of(trace)
    chosen = policy if isinstance(policy, type) else config.policy
    return run_on(_cluster(config), trace, config, chosen, out, parquet, on_progress)


def run_on(
    cluster: Cluster, trace: Trace, config: RunConfig, policy: str | type[Scheduler] | None = None,
    out: str | Path | None = None, parquet: bool = False, on_progress: Callable[[int], None] | None = None,
) -> Run:  # fmt: skip
    """`run` on a cluster that is at hand; that of `config` is not looked at."""
    chosen = config.policy if policy is None else policy
    with redirect_stdout(sys.stderr):  # a policy may print, but stdout is for results
        simulation = _prepare(cluster, trace, config, chosen, on_progress)
        hashes = source_hashes(config, chosen)
        if out is None:
            return _simulate(trace, config, simulation, hashes, _in_memory)
        with RunWriter(out, simulation.cluster, parquet=parquet) as writer:
            simulation.recorder = writer
            return _simulate(trace, config, simulation, hashes, _in_folder)


def _simulate(
    trace: Trace, config: RunConfig, simulation: Simulation, hashes: Mapping[str, str | None], finish: Finish
) -> Run:
    """Run to the end, or to where a policy or a user ends it: what there is by then goes with the error, if
    it is whole.
    """
    began = perf_counter()

    def finished(status: str) -> Run:
        manifest = manifest_of(trace, config, simulation, status, perf_counter() - began, hashes)
        return finish(config, simulation, manifest)

    with interrupting(simulation.interrupt):
        try:
            simulation.run()
        except (PolicyError, KeyboardInterrupt) as error:
            status = STOPPED if isinstance(error, PolicyError) else INTERRUPTED
            if simulation.closed:
                error.partial = finished(status)  # type: ignore[union-attr]
            raise
    return finished(COMPLETE)


def _cluster(config: RunConfig) -> Cluster:
    return load_cluster(config.cluster, config.system, config.network)


def _prepare(
    cluster: Cluster,
    trace: Trace,
    config: RunConfig,
    policy: str | type[Scheduler],
    on_progress: Callable[[int], None] | None = None,
) -> Simulation:
    scheduler = make_policy(policy, config.params)
    speed: Speed = speed_for(
        cluster, scheduler.planner if config.planner is None else config.planner, config.table
    )
    overheads = Overheads.none() if config.overheads is None else Overheads.of(config.overheads)
    return Simulation(
        trace.jobs, cluster, scheduler, speed,
        overheads=overheads, placement=config.placement, until_s=config.until_s, on_progress=on_progress,
        tenancy=checked_quotas(config.quotas, cluster.gpus),
        failures=None if config.failures is None else Failures.of(config.failures),
        calendar=Calendar.of(config.calendar, cluster.nodes), seed=config.seed,
    )  # fmt: skip


Finish = Callable[[RunConfig, Simulation, dict[str, Any]], Run]


def _in_memory(config: RunConfig, simulation: Simulation, manifest: dict[str, Any]) -> Run:
    recorder = simulation.recorder
    jobs = recorder.jobs_by_submission()
    return Run(
        config.policy, manifest["planner"], simulation.cluster, jobs, recorder.events, recorder.snapshots,
        _summary(config, recorder, jobs, recorder.snapshots), manifest,
        plans_used(recorder.plans.values(), simulation.speed, simulation.cluster),
    )  # fmt: skip


def _in_folder(config: RunConfig, simulation: Simulation, manifest: dict[str, Any]) -> Run:
    writer = cast(RunWriter, simulation.recorder)
    summary = _summary(config, writer, writer.job_columns, writer.usage_columns)
    plans = plans_used(writer.plans.values(), simulation.speed, simulation.cluster)
    return writer.finish(config.policy, manifest["planner"], summary, manifest, plans)


def _summary(config: RunConfig, recorder: Recorder, jobs: Jobs, snapshots: Snapshots) -> dict[str, Any]:
    return summarise(
        jobs, snapshots, recorder.cluster,
        end_s=recorder.end_s, events=recorder.event_count, price_usd_per_gpu_h=config.price_usd_per_gpu_h,
    )  # fmt: skip


def check_config(config: RunConfig) -> None:
    """Raise what a run with these settings would raise before it begins."""
    with redirect_stdout(sys.stderr):
        _prepare(_cluster(config), Trace.of([]), config, config.policy)
