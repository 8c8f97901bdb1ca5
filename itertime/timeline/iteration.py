"""The timeline of one iteration: a plan's task graph, and the run of that graph as a Chrome trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from itertime.costs import StageCosts, Workload, chunk_times, stage_costs
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import ModelSpec, Plan, PlanBatch, Profile, System, profile_of

from .task_graph import Graph, Passes, add_pipeline

__all__ = ["chrome_trace", "iteration_graph", "write_chrome_trace"]

STREAMS = ("compute", "network")
MOST_TASKS = 1_000_000


def iteration_graph(model: ModelSpec, plan: Plan, system: System, profile: Profile | None = None) -> Graph:
    """Every task of one iteration of `plan`, one GPU a stage. Raises UserError for an impossible plan.

    Tasks after the last backward pass are shown for the first stage, which ends last.
    """
    plan.check(model)
    _check_size(4 * plan.microbatches * plan.pp * plan.interleave, "fewer micro-batches")
    profile = profile or profile_of(system)
    costs = stage_costs(Workload.of(model, PlanBatch.of([plan]), system, profile))
    graph = Graph()
    gather, reduce, buckets = (
        float(value[0])
        for value in (costs.exchange.gather_s, costs.exchange.reduce_s, costs.exchange.buckets)
    )
    count = int(buckets)
    _check_size(4 * count, "larger buckets")
    along = [
        [seconds / count] * count if plan.grad_overlap and seconds else [] for seconds in (gather, reduce)
    ]
    after = [add_pipeline(graph, _passes(costs), plan.microbatches, plan.schedule, *along)]
    if along[1]:
        after.append(f"reduce {count - 1}")
    if not plan.grad_overlap:
        after = [graph.add("reduce gradients", 0, "network", reduce, after)]
        after = [graph.add("gather weights", 0, "network", gather, after)]
    for name, stream, part in (
        ("scatter last gradients", "network", "fsdp_last"),
        ("embedding gradients", "network", "embedding_sync"),
        ("gradients to the CPU", "network", "optimizer_copies"),
        ("optimizer", "compute", "optimizer"),
        (f"exchange between workers (1/{plan.options.local_steps})", "network", "outer_sync"),
        ("overhead", "compute", "iteration_overhead"),
        ("slowed by communication", "compute", "contention_once"),
    ):
        if part in costs.once:
            after = [graph.add(name, 0, stream, float(costs.once[part][0]), after)]
    return graph


def _check_size(tasks: int, remedy: str) -> None:
    if tasks > MOST_TASKS:
        raise UserError(f"timeline: {tasks:,} tasks: at most {MOST_TASKS:,} can be shown; take {remedy}")


def _passes(costs: StageCosts) -> Passes:
    times = chunk_times(costs, np.array([0]), int(costs.workload.plans.interleave[0]))
    columns = (times.forward, times.backward, times.send_forward, times.send_backward)
    return Passes(*(column[0].tolist() for column in columns))


def chrome_trace(graph: Graph) -> dict[str, Any]:
    """The graph's run in the Trace Event Format that chrome://tracing and Perfetto read; times in
    microseconds.
    """
    events: list[dict[str, Any]] = []
    for stage in sorted({task.stage for task in graph.tasks.values()}):
        events.append(
            {"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "args": {"name": f"stage {stage}"}}
        )
        for thread, stream in enumerate(STREAMS):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": stage, "tid": thread, "args": {"name": stream}}
            )
    for name, (start, end) in graph.run().items():
        task = graph.tasks[name]
        if task.seconds > 0:
            where = {"pid": task.stage, "tid": STREAMS.index(task.stream)}
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "cat": name.split()[0],
                    "ts": start * 1e6,
                    "dur": (end - start) * 1e6,
                    **where,
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_chrome_trace(graph: Graph, path: str | Path) -> None:
    """Writes `chrome_trace(graph)` as JSON, whole or not at all; UserError if the file cannot be written."""
    write_text(path, json.dumps(chrome_trace(graph)))
