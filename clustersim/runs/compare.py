"""One trace under several configurations, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from clustersim.records import Run

from .config import RunConfig
from .run import run, setup_of
from .signals import end_with_parent, without_interrupts
from .source import Trace

__all__ = ["compare"]


def compare(
    trace: str | Path | Trace,
    configs: Sequence[RunConfig],
    *,
    workers: int | None = None,
    out: Sequence[str | Path] | None = None,
    parquet: bool = False,
    on_done: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    """Run every configuration on the same trace, in parallel processes. The results do not depend on the
    number of processes.

    `workers`: at most this many processes (default: one per processor, at most one per run). `out`: a folder
    for each run, as for `run`. `on_done(i, run)` is called in this process when a run finishes. On an
    interrupt, the runs in progress end, and their folders hold the records up to that point.
    """
    if not isinstance(trace, Trace):
        trace = Trace.read(trace, configs[0].table if configs else None)
    for config in configs:
        setup_of(config)  # raises for mistakes before anything runs
    count = min(len(configs), workers or os.cpu_count() or 1)
    runs: dict[int, Run] = {}
    folders = [None] * len(configs) if out is None else out
    if count <= 1:
        for i, config in enumerate(configs):
            runs[i] = run(trace, config=config, out=folders[i], parquet=parquet)
            if on_done is not None:
                on_done(i, runs[i])
    else:
        # The trace goes to the workers, not to each run: forked processes share the jobs stored on disk.
        pool = ProcessPoolExecutor(count, initializer=_begin_worker, initargs=(trace,))
        try:
            with without_interrupts():  # workers start here, and inherit the blocked signal
                futures = {
                    pool.submit(_run_of_worker, config=config, out=folders[i], parquet=parquet): i
                    for i, config in enumerate(configs)
                }
            for future in as_completed(futures):
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
    return [runs[i] for i in range(len(configs))]


_trace_of_worker: Trace


def _begin_worker(trace: Trace) -> None:
    global _trace_of_worker
    end_with_parent()
    _trace_of_worker = trace


def _run_of_worker(**options: Any) -> Run:
    return run(_trace_of_worker, **options)
