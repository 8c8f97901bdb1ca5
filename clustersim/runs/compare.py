"""One trace under several configurations, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from ctypes import Array, c_longlong
from functools import partial
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from clustersim.errors import UnsuitedPolicy
from clustersim.jit import load_ahead
from clustersim.records import Run
from clustersim.scheduler import Scheduler
from itertime.errors import UserError, quoted
from itertime.spec import Models

from .config import RunConfig
from .run import run_config
from .setup import setup_of
from .signals import end_with_parent, without_interrupts
from .source import Trace, TraceLike

__all__ = ["compare", "suited_configs"]

_LOOK_EVERY_S = 0.2  # at the progress of the runs
_JOBS_TO_LOAD = 700  # from which runs take so long that machine code pays


def compare(
    trace: TraceLike,
    configs: Iterable[RunConfig | str | type[Scheduler]],
    *,
    workers: int | None = None,
    out: Sequence[str | Path] | None = None,
    parquet: bool = False,
    on_done: Callable[[int, Run], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_refusal: Callable[[str, str], None] | None = None,
    **settings: Any,
) -> list[Run]:
    """Run every configuration on the same trace, in parallel processes. The results do not depend on the
    number of processes.

    `configs`: configurations, or policies, by name, as `file.py:Class`, or as classes; `settings`, as of
    `run`, belong to the policies, as in `compare("trace.csv", ["fifo", "srtf"], cluster="n16g8")`.
    `workers`: at most this many processes (default: one per processor, at most one per run). `out`: a folder
    for each run, as for `run`. `on_done(i, run)` is called in this process when a run finishes, and
    `on_progress(i, jobs)` a few times a second with the number of jobs that have left run `i`.
    `on_refusal(policy, reason)` is called for a policy that cannot run with its settings, which is then left
    out; without it, and if no policy can run, this is an UnsuitedPolicy. On an
    interrupt, the runs in progress end, and their folders hold the records up to that point.
    """
    run_configs, classes = _as_configs(configs, settings)
    of_trace = run_configs[0] if run_configs else RunConfig.make(policy="fifo")
    trace = Trace.given(trace, of_trace.table, of_trace.model_path)
    folders: list[str | Path | None] = [None] * len(run_configs) if out is None else list(out)
    # Mistakes are raised before anything runs.
    numbers, refusals = suited_configs(run_configs, trace.models, classes)
    for policy, refusal in refusals.items():
        if on_refusal is None:
            raise refusal
        on_refusal(policy, str(refusal))
    count = min(len(numbers), workers or os.cpu_count() or 1)
    if len(trace.jobs) >= _JOBS_TO_LOAD:
        load_ahead()  # before processes begin, which then share it
    with _temporary() as bounds:
        options: list[dict[str, Any]] = [
            {
                "config": run_configs[i], "policy": classes.get(i), "out": folders[i], "parquet": parquet,
                "shared_bounds": Path(bounds),
            }
            for i in numbers
        ]  # fmt: skip
        if count > 1:
            return _in_processes(trace, options, count, on_done, on_progress)
        runs = []
        for i, arguments in enumerate(options):
            advance = None if on_progress is None else partial(on_progress, i)
            runs.append(run_config(trace, on_progress=advance, **arguments))
            if on_done is not None:
                on_done(i, runs[i])
        return runs


def _as_configs(
    configs: Iterable[RunConfig | str | type[Scheduler]], settings: Mapping[str, Any]
) -> tuple[list[RunConfig], dict[int, type[Scheduler]]]:
    """Policies as configurations, and the classes among them by number. UserError for what is neither."""
    if isinstance(configs, str):
        names = ", ".join(quoted(name.strip()) for name in configs.split(","))
        raise UserError(f"compare: policies={quoted(configs)}: must be a list, as in [{names}]")
    if isinstance(configs, type):
        raise UserError(f"compare: policies: must be a list, as in [{configs.__name__}]")
    configs = list(configs)
    classes = {i: c for i, c in enumerate(configs) if isinstance(c, type) and issubclass(c, Scheduler)}
    for i, config in enumerate(configs):
        if not isinstance(config, str | RunConfig) and i not in classes:
            raise UserError(f"compare: {quoted(config)}: name a policy, a file.py:Class, or give its class")
    if settings and not configs:
        raise UserError("compare: policies: name at least one")
    if settings and all(isinstance(config, RunConfig) for config in configs):
        raise UserError(f"compare: {next(iter(settings))}: settings go with policies given by name")
    names_of_policies = [c.__name__ if isinstance(c, type) else c for c in configs]
    repeated_names = [c for c, count in Counter(map(str, names_of_policies)).items() if count > 1]
    if repeated_names and not any(isinstance(config, RunConfig) for config in configs):
        raise UserError(
            f"compare: {repeated_names[0]}: two policies have this name; give them different ones"
        )
    run_configs = [
        RunConfig.make(policy=c, **settings) if isinstance(c, str) else c for c in names_of_policies
    ]
    return run_configs, classes


def suited_configs(
    configs: Sequence[RunConfig],
    models: Models | None = None,
    classes: Mapping[int, type[Scheduler]] = MappingProxyType({}),
) -> tuple[list[int], dict[str, UnsuitedPolicy]]:
    """The numbers of the configurations whose policies can run, and the refusals of the others, by policy:
    one that needs GPUs of one type keeps no other from a comparison.

    `models`: those that the jobs may name. `classes`: the policies that are classes, by the number of their
    configuration. UserError for all other mistakes, UnsuitedPolicy if no policy can
    run.
    """
    numbers, refusals = [], {}
    for i, config in enumerate(configs):
        try:
            setup_of(config, classes.get(i), models=models)
        except UnsuitedPolicy as error:
            refusals[config.policy] = error
        else:
            numbers.append(i)
    if refusals and not numbers:
        raise next(iter(refusals.values()))
    return numbers, refusals


def _in_processes(
    trace: Trace, options: Sequence[dict[str, Any]], count: int,
    on_done: Callable[[int, Run], None] | None, on_progress: Callable[[int, int], None] | None,
) -> list[Run]:  # fmt: skip
    runs: dict[int, Run] = {}
    done = RawArray("q", len(options)) if on_progress is not None else None
    # Forked processes share the trace, and classes of policies that cannot be sent to them.
    pool = ProcessPoolExecutor(count, initializer=_begin_worker, initargs=(trace, options, done))
    try:
        with without_interrupts():  # workers start here, and inherit the blocked signal
            futures = {pool.submit(_run_of_worker, i): i for i in range(len(options))}
        pending = set(futures)
        while pending:
            ended, pending = wait(pending, None if done is None else _LOOK_EVERY_S, FIRST_COMPLETED)
            for i, jobs in enumerate(done or ()):
                if on_progress is not None and i not in runs:
                    on_progress(i, jobs)
            for future in sorted(ended, key=futures.__getitem__):
                i = futures[future]
                runs[i] = future.result()
                if on_done is not None:
                    on_done(i, runs[i])
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()  # their results are not needed any more
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [runs[i] for i in range(len(options))]


def _temporary() -> TemporaryDirectory[str]:
    """A folder for bounds, of which the runs compute each only once."""
    try:
        return TemporaryDirectory(prefix="clustersim-bounds-")
    except OSError as error:
        raise UserError(
            f"no temporary folder: {error.strerror or error}; set TMPDIR to one with room"
        ) from None


_trace_of_worker: Trace
_options_of_worker: Sequence[Mapping[str, Any]]
_done_of_worker: Array[c_longlong] | None
"""The jobs that have left each run, in memory that all processes share; None if the number is not wanted."""


def _begin_worker(trace: Trace, options: Sequence[Mapping[str, Any]], done: Array[c_longlong] | None) -> None:
    global _trace_of_worker, _options_of_worker, _done_of_worker
    end_with_parent()
    _trace_of_worker, _options_of_worker, _done_of_worker = trace, options, done


def _run_of_worker(number: int) -> Run:
    done = _done_of_worker

    def advance(jobs: int) -> None:
        if done is not None:
            done[number] = jobs

    on_progress = None if done is None else advance
    return run_config(_trace_of_worker, on_progress=on_progress, **_options_of_worker[number])
