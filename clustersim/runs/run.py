"""From a trace and settings to a finished run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

from clustersim.analysis import (
    check_window,
    completion_times,
    deadlines,
    energy_kwh,
    host_summary,
    job_columns,
    service_summary,
    summarise,
    window_summary,
)
from clustersim.bounds import Bound
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.engine.fleet import FleetSimulation, Routing
from clustersim.errors import PolicyError
from clustersim.jit import compile_s
from clustersim.records import COMPLETE, INTERRUPTED, STATES, STOPPED, MemoryRecorder, Recorder, Run
from clustersim.rundir import RunWriter
from clustersim.scheduler import Scheduler
from clustersim.speed import Interference, Packing
from itertime.errors import UserError

from .config import NO_BOUND, RunConfig
from .manifest import IN_SUMMARY, Ending, manifest_of, source_hashes, source_of, summarised_entries
from .plan_records import plans_used
from .run_bounds import best_possible
from .setup import setup_of
from .signals import interrupting
from .sites import epoch_of, has_dates
from .source import Trace, TraceLike

__all__ = ["run", "run_config", "summary_of"]


def run(
    trace: TraceLike,
    policy: str | type[Scheduler] | None = None,
    *,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    parquet: bool = False,
    on_progress: Callable[[int], None] | None = None,
    shared_bounds: Path | None = None,
    **settings: Any,
) -> Run:
    """Simulate `trace` (a file, jobs, or a data frame of the trace's columns) under one policy, by name or
    class.

    Settings are those of `RunConfig`, or all are in `config`. `out`: a folder that the run is written to
    while it goes on (see `clustersim.rundir`; `parquet` as there). The records of the result are then read
    from the folder on first access, and memory holds only the jobs in the system and a few numbers of each.

    The summary says how far the run is from the best possible, unless `bound` is none. `shared_bounds`: a
    folder of bounds that several runs share, so that each is computed once.

    With `warmup_s` or `measure_s`, the summary has the metrics of this window under `window`.

    Raises UserError for settings or a folder that cannot be written, TableError for the trace, PolicyError
    for a policy that breaks a rule, KeyboardInterrupt when interrupted. The last two have the run up to that
    point as `partial`, which is also in the folder.

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
        if isinstance(policy, Scheduler):
            raise UserError(f"policy: give the class {type(policy).__name__}, not an instance of it")
        name = policy.__name__ if isinstance(policy, type) else policy
        config = RunConfig.make(policy=name or "fifo", **settings)
    trace = Trace.given(trace, config.table, config.model_path)
    return run_config(
        trace,
        config,
        policy=policy if isinstance(policy, type) else config.policy,
        out=out,
        parquet=parquet,
        on_progress=on_progress,
        shared_bounds=shared_bounds,
    )


def run_config(
    trace: Trace,
    config: RunConfig,
    *,
    policy: str | type[Scheduler] | None = None,
    cluster: Cluster | None = None,
    out: str | Path | None = None,
    parquet: bool = False,
    on_progress: Callable[[int], None] | None = None,
    shared_bounds: Path | None = None,
) -> Run:
    """As `run`; `policy` and `cluster`, if given, replace those that `config` names."""
    with redirect_stdout(sys.stderr):  # a policy may print, but stdout is for results
        config = _dated(config, policy, trace)
        setup = setup_of(config, policy, cluster, trace.models)
        if config.window is not None:
            check_window((job.submit_s for job in trace.jobs), config.warmup_s, config.measure_s)
        hashes = source_hashes(config, config.policy if policy is None else policy)
        about = {"policy": config.policy, "seed": setup.seed, "trace": source_of(trace)}
        with _recorder(out, setup.cluster, parquet, about) as recorder:
            simulation = _simulation(trace, config, setup, recorder, on_progress)
            ending, failure = _simulated(simulation)
            if failure is not None and not simulation.closed:
                raise failure  # the records are not consistent, so there is no run so far
            bound = None
            if failure is None:
                # A run that is interrupted after its end is complete, and has no bound.
                bound, failure = _bound(trace, config, setup, recorder, shared_bounds)
            manifest = manifest_of(trace, config, setup, recorder, ending, hashes, bound)
            summary = _summary(config, setup, recorder, manifest)
            plans = plans_used(recorder.plans, setup.speed) if recorder.plans else []
            result = recorder.finish(config.policy, setup.planner, summary, manifest, plans)
            if failure is not None:
                failure.partial = result  # type: ignore[union-attr]
                raise failure
            return result


def summary_of(trace: Trace, config: RunConfig, shared_bounds: Path | None = None) -> dict[str, Any]:
    """The summary of `run`, for callers that need neither records nor a manifest: a manifest
    takes a tenth of a tiny run. Raises what `run` raises, without a `partial`.
    """
    with redirect_stdout(sys.stderr):
        config = _dated(config, None, trace)
        setup = setup_of(config, models=trace.models)
        if config.window is not None:
            check_window((job.submit_s for job in trace.jobs), config.warmup_s, config.measure_s)
        recorder = MemoryRecorder(setup.cluster)
        _, failure = _simulated(_simulation(trace, config, setup, recorder, None))
        bound = None
        if failure is None:
            bound, failure = _bound(trace, config, setup, recorder, shared_bounds)
        if failure is not None:
            raise failure
        return _summary(config, setup, recorder, summarised_entries(trace, setup, recorder, bound))


def _dated(config: RunConfig, policy: str | type[Scheduler] | None, trace: Trace) -> RunConfig:
    """The settings with the date of the trace's zero, where the site has dates and its policy asks for it."""
    if not has_dates(config.site):
        return config
    epoch = epoch_of(policy or config.policy, source_of(trace).get("since_1970_s"))
    return config.model_copy(update={"params": {**epoch, **config.params}})


def _simulation(
    trace: Trace,
    config: RunConfig,
    setup: RunSetup,
    recorder: Recorder,
    on_progress: Callable[[int], None] | None,
) -> Simulation | FleetSimulation:
    if config.routing is None:
        return Simulation(trace.jobs, setup, recorder, on_progress)
    return FleetSimulation(trace.jobs, setup, Routing.of(config.routing), recorder, on_progress)


def _recorder(
    out: str | Path | None, cluster: Cluster, parquet: bool, about: dict[str, Any]
) -> AbstractContextManager[Recorder]:
    if out is None:
        return nullcontext(MemoryRecorder(cluster))
    return RunWriter(out, cluster, parquet=parquet, about=about)


def _simulated(
    simulation: Simulation | FleetSimulation,
) -> tuple[Ending, PolicyError | KeyboardInterrupt | None]:
    """Run to completion. How the run ended, and the mistake of the policy or the interrupt that ended it."""
    began, compiled_before_s = perf_counter(), compile_s()
    status, failure = COMPLETE, None
    try:
        with interrupting(simulation.interrupt):
            simulation.run()
    except (PolicyError, KeyboardInterrupt) as error:
        status, failure = STOPPED if isinstance(error, PolicyError) else INTERRUPTED, error
    compiling_s = compile_s() - compiled_before_s
    policy_wall_s = max(0.0, simulation.policy_wall_s - compiling_s)
    return Ending(status, perf_counter() - began, policy_wall_s, compiling_s), failure


def _bound(
    trace: Trace, config: RunConfig, setup: RunSetup, recorder: Recorder, shared_bounds: Path | None
) -> tuple[Bound | None, KeyboardInterrupt | None]:
    """The bound of a run, None with `bound=none`, and the interrupt that ended its computation."""
    if config.bound == NO_BOUND:
        return None, None
    packing = Packing(setup.packs, setup.interference or Interference()) if setup.packs > 1 else None
    jobs = job_columns(recorder.job_table)
    try:
        with interrupting(_interrupt):
            bound = best_possible(
                trace.jobs,
                recorder.finished,
                setup.cluster,
                setup.speed,
                setup.overheads,
                config.bound,
                shared_bounds,
                packing,
                completion_times(jobs) | deadlines(jobs),
            )
    except KeyboardInterrupt as interrupt:
        return None, interrupt
    return bound, None


def _interrupt() -> None:
    raise KeyboardInterrupt


def _summary(
    config: RunConfig, setup: RunSetup, recorder: Recorder, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """The summary of a run; `manifest`: at least its `summarised_entries`."""
    summary: dict[str, Any] = summarise(
        recorder.job_table,
        recorder.usage_table,
        setup.cluster,
        end_s=recorder.end_s,
        events=recorder.event_count,
        price_usd_per_gpu_h=setup.price.usd_per_gpu_hour,
        bound=manifest["bound"],
    )
    if sum(map(summary.__getitem__, STATES)) < summary["jobs"]:  # the others are instances of services
        summary["services"] = service_summary(recorder.job_table)
    if setup.cluster.states_host:
        host = host_summary(recorder.job_table, setup.cluster, recorder.end_s, setup.packs)
        if host is not None:
            summary["host"] = host
    if setup.energy is not None:
        summary["energy_kwh"] = energy_kwh(recorder.job_table, setup.cluster, recorder.end_s, setup.energy)
    if setup.packs > 1 and setup.sharing is None:
        summary["packed_without_slowdown"] = recorder.joins
    summary |= {name: manifest[name] for name in IN_SUMMARY if name in manifest}
    if config.window is not None:
        summary["window"] = window_summary(
            recorder.job_table,
            recorder.usage_table,
            setup.cluster,
            warmup_s=config.warmup_s,
            measure_s=config.measure_s,
            price_usd_per_gpu_h=setup.price.usd_per_gpu_hour,
        )
    return summary
