"""From a trace and settings to a finished run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

from clustersim.analysis import check_window, host_summary, service_summary, summarise, window_summary
from clustersim.bounds import Bound
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.engine.fleet import FleetSimulation, Routing
from clustersim.errors import PolicyError
from clustersim.records import COMPLETE, INTERRUPTED, STOPPED, MemoryRecorder, Recorder, Run
from clustersim.rundir import RunWriter
from clustersim.scheduler import Scheduler
from clustersim.speed import Interference, Packing
from itertime.errors import UserError

from .config import NO_BOUND, RunConfig
from .manifest import Ending, manifest_of, source_hashes, source_of
from .plan_records import plans_used
from .run_bounds import best_possible
from .setup import setup_of
from .signals import interrupting
from .source import Trace, TraceLike

__all__ = ["run", "run_config"]


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
        named = policy.__name__ if isinstance(policy, type) else policy
        config = RunConfig.make(policy=named or "fifo", **settings)
    trace = Trace.given(trace, config.table, config.model_path)
    chosen = policy if isinstance(policy, type) else config.policy
    return run_config(
        trace,
        config,
        policy=chosen,
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
        setup = setup_of(config, policy, cluster, trace.models)
        if config.window is not None:
            check_window((job.submit_s for job in trace.jobs), config.warmup_s, config.measure_s)
        hashes = source_hashes(config, config.policy if policy is None else policy)
        about = {"policy": config.policy, "seed": setup.seed, "trace": source_of(trace)}
        with _recorder(out, setup.cluster, parquet, about) as recorder:
            simulation: Simulation | FleetSimulation
            if config.routing is None:
                simulation = Simulation(trace.jobs, setup, recorder, on_progress)
            else:
                routing = Routing.of(config.routing)
                simulation = FleetSimulation(trace.jobs, setup, routing, recorder, on_progress)

            def finish(ending: Ending, bound: Bound | None) -> Run:
                manifest = manifest_of(trace, config, setup, recorder, ending, hashes, bound)
                return _finish(config, setup, recorder, manifest)

            def bound() -> Bound | None:
                if config.bound == NO_BOUND:
                    return None
                known = setup.cluster, setup.speed, setup.overheads
                packing = Packing(setup.packs, setup.interference or Interference())
                return best_possible(
                    trace.jobs, recorder.finished, *known, config.bound, shared_bounds, packing
                )

            return _simulate(simulation, bound, finish)


def _recorder(
    out: str | Path | None, cluster: Cluster, parquet: bool, about: dict[str, Any]
) -> AbstractContextManager[Recorder]:
    if out is None:
        return nullcontext(MemoryRecorder(cluster))
    return RunWriter(out, cluster, parquet=parquet, about=about)


def _simulate(
    simulation: Simulation | FleetSimulation,
    bound: Callable[[], Bound | None],
    finish: Callable[[Ending, Bound | None], Run],
) -> Run:
    """Run to completion. If the policy fails or the user interrupts, attach the run so far to the exception
    as `partial`, provided its records are consistent. A run that is interrupted after its end is complete and
    has no bound.
    """
    began = perf_counter()

    def ended(status: str) -> Ending:
        return Ending(status, perf_counter() - began, simulation.policy_wall_s)

    with interrupting(simulation.interrupt):
        try:
            simulation.run()
        except (PolicyError, KeyboardInterrupt) as error:
            status = STOPPED if isinstance(error, PolicyError) else INTERRUPTED
            if simulation.closed:
                error.partial = finish(ended(status), None)  # type: ignore[union-attr]
            raise
    ending = ended(COMPLETE)
    try:
        with interrupting(_interrupt):
            found = bound()
    except KeyboardInterrupt as error:
        error.partial = finish(ending, None)  # type: ignore[attr-defined]
        raise
    return finish(ending, found)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _finish(config: RunConfig, setup: RunSetup, recorder: Recorder, manifest: dict[str, Any]) -> Run:
    summary: dict[str, Any] = summarise(
        recorder.job_table,
        recorder.usage_table,
        setup.cluster,
        end_s=recorder.end_s,
        events=recorder.event_count,
        price_usd_per_gpu_h=config.price_usd_per_gpu_h,
        bound=manifest["bound"],
    )
    if (services := service_summary(recorder.job_table)) is not None:
        summary["services"] = services
    host = host_summary(recorder.job_table, setup.cluster, recorder.end_s, manifest.get("packs", 1))
    if host is not None:
        summary["host"] = host
    if recorder.predictions is not None:
        summary["predictions"] = recorder.predictions
    if config.window is not None:
        summary["window"] = window_summary(
            recorder.job_table,
            recorder.usage_table,
            setup.cluster,
            warmup_s=config.warmup_s,
            measure_s=config.measure_s,
            price_usd_per_gpu_h=config.price_usd_per_gpu_h,
        )
    plans = plans_used(recorder.plans, setup.speed)
    return recorder.finish(config.policy, setup.planner, summary, manifest, plans)
