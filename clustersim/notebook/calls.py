"""`run` and `compare` as a notebook calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from clustersim.records import Run
from clustersim.runs import RunConfig
from clustersim.runs import compare as compare_runs
from clustersim.runs import run as simulate
from clustersim.scheduler import Scheduler
from itertime.errors import UnknownName

from .shown import Comparison, ShownRun

__all__ = ["compare", "run"]


def run(
    trace: Any,
    policy: str | type[Scheduler] | None = None,
    *,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    parquet: bool = False,
    on_progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> ShownRun:
    """Simulate `trace` (a file, jobs, or a data frame of the trace's columns) under one policy, by name or
    class, with the settings of `RunConfig`.

    `out`: a folder for the records; they are then read from there when needed. Raises UserError for settings
    or a folder, TableError for the trace, PolicyError for a policy that breaks a rule. See
    `clustersim.runs.run`.

    >>> import clustersim
    >>> from traces import Job
    >>> jobs = [Job("a", 0.0, gpus=8, duration_s=60.0), Job("b", 0.0, gpus=8, duration_s=60.0)]
    >>> clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    <Run fifo on 8 GPUs: 2 of 2 jobs finished, mean JCT 90 s>
    """
    run = simulate(
        trace, policy, config=config, out=out, parquet=parquet, on_progress=on_progress, **settings
    )
    return ShownRun.of(run)


def compare(
    trace: Any,
    configs: Iterable[RunConfig | str | type[Scheduler]],
    *,
    baseline: str | None = None,
    workers: int | None = None,
    out: Sequence[str | Path] | None = None,
    parquet: bool = False,
    on_done: Callable[[int, Run], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Simulate the same trace under several policies (by name, `file.py:Class`, or class) or
    configurations, in parallel processes.

    `settings` belong to the policies. `baseline`: the policy that tables compare the others
    with. `out`: a folder for each run. A policy that cannot run with the settings, as one that needs GPUs of
    one type, is left out, and `skipped` of the result has the reason. Raises as `run`. See
    `clustersim.runs.compare`.
    """
    policies = configs if isinstance(configs, str) else list(configs)
    names = [c.policy if isinstance(c, RunConfig) else getattr(c, "__name__", c) for c in policies]
    if baseline is not None and baseline not in names:
        raise UnknownName("policy of the comparison", baseline, map(str, names))
    skipped: dict[str, str] = {}
    runs = compare_runs(
        trace,
        policies,
        workers=workers,
        out=out,
        parquet=parquet,
        on_done=on_done,
        on_progress=on_progress,
        on_refusal=skipped.__setitem__,
        **settings,
    )
    return Comparison(tuple(map(ShownRun.of, runs)), baseline, skipped)
