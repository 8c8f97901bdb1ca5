"""The timeline of one iteration: a plan's task graph, and the run of that graph as a Chrome trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from itertime.costs import StageCosts, Workload, stage_costs
from itertime.errors import UserError
from itertime.io import write_text
from itertime.schedule import SPLIT_SCHEDULES
from itertime.spec import ModelSpec, Plan, PlanBatch, Profile, System, profile_of

from .task_graph import Graph, StagePasses, add_pipeline, add_split_pipeline

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
    _add_exchange_of_samples(graph, costs)
    predecessors = _add_passes_and_exchange(graph, plan, costs)
    # What follows the passes runs one after the other. A norm that is no kernel on buckets comes on its own.
    norm = {} if "norm" in costs.exchange.kernels else {"norm": costs.exchange.norm_s}
    for name, stream, part in (
        ("scatter last gradients", "network", "fsdp_last"),
        ("embedding gradients", "network", "embedding_sync"),
        ("compress gradients", "compute", "compression_once"),
        ("norm of gradients", "compute", "norm"),
        ("gradients to the CPU", "network", "optimizer_copies"),
        ("optimizer", "compute", "optimizer"),
        (f"exchange between workers (1/{plan.options.local_steps})", "network", "outer_sync"),
        ("stalled sends", "network", "stalled_sends"),
        ("overhead", "compute", "iteration_overhead"),
        ("slowed by communication", "compute", "contention_once"),
    ):
        seconds = (costs.once | norm).get(part)
        if seconds is not None:
            predecessors = [graph.add(name, 0, stream, float(seconds[0]), predecessors)]
    return graph


def _add_exchange_of_samples(graph: Graph, costs: StageCosts) -> None:
    """Adds the exchange that balances samples, for which the first pass and the first gather wait. It occurs
    in plans of one stage alone.
    """
    seconds = costs.once.get("balance")
    if seconds is not None and seconds[0]:
        exchange_task = graph.add("exchange samples", 0, "network", float(seconds[0]))
        graph.add("samples", 0, "compute", 0.0, [exchange_task])


def _add_passes_and_exchange(graph: Graph, plan: Plan, costs: StageCosts) -> list[str]:
    """Adds all passes, the exchange of gradients and weights, and the kernels on buckets before it. Returns
    what the tasks after them wait for.

    On average over a warm-up and the rest no schedule is exact: what no pass hides follows the passes then.
    """
    traffic = costs.exchange
    gather, reduce, norm = (
        float(column[0]) for column in (traffic.gather_s, traffic.reduce_s, traffic.norm_s)
    )
    count, calls, overlapped = int(traffic.buckets[0]), int(traffic.calls[0]), bool(traffic.overlapped[0])
    kernels = {name: float(seconds[0]) for name, seconds in traffic.kernels.items()}
    has_warmup = traffic.warmup is not None
    if has_warmup:  # the mean iteration has no schedule, so the exposed seconds stand after the passes
        overlapped, gather, reduce = False, 0.0, float(costs.once["dp_comm"][0])
    _check_size((4 + 2 * len(kernels)) * max(count, calls), "larger buckets")
    # Buckets overlap the passes: gathers of weights the first forward, reductions the last backward.
    gathers_overlap = plan.grad_overlap and costs.workload.framework.gather_overlap
    gathers = [gather / count] * count if gathers_overlap and gather else []
    reduces = [reduce / count] * count if overlapped and (reduce or kernels) else []
    if plan.schedule in SPLIT_SCHEDULES:
        passes = _split_passes(costs, plan.schedule)
        predecessors = add_split_pipeline(graph, passes, plan.microbatches, plan.schedule, gathers, reduces)
    else:
        passes = _passes(costs)
        predecessors = [
            add_pipeline(graph, passes, plan.microbatches, plan.schedule, gathers, reduces, kernels)
        ]
    if reduces:
        predecessors.append(f"reduce {count - 1}")
    # What does not overlap follows the passes: kernels bucket by bucket, then one exchange of all gradients.
    if not overlapped:
        for kernel, seconds in kernels.items():
            for bucket in range(calls):
                predecessors = [graph.add(f"{kernel} {bucket}", 0, "compute", seconds, predecessors)]
            if kernel == "norm" and norm:
                predecessors = [graph.add("norm over ranks", 0, "network", norm, predecessors)]
        predecessors = [graph.add("reduce gradients", 0, "network", reduce, predecessors)]
    if not gathers_overlap:
        predecessors = [graph.add("gather weights", 0, "network", gather, predecessors)]
    return predecessors


def _check_size(tasks: int, remedy: str) -> None:
    if tasks > MOST_TASKS:
        raise UserError(f"timeline: {tasks:,} tasks: at most {MOST_TASKS:,} can be shown; take {remedy}")


def _passes(costs: StageCosts) -> StagePasses:
    times = costs.stage_times.chunks(np.array([0]), int(costs.workload.plans.interleave[0]))
    return StagePasses(
        forward=times.forward[0].tolist(),
        backward=times.backward[0].tolist(),
        send_forward=times.send_forward[0].tolist(),
        send_backward=times.send_backward[0].tolist(),
        ahead=times.ahead[0].tolist() if costs.ahead else [],
    )


def _split_passes(costs: StageCosts, schedule: str) -> StagePasses:
    times = costs.stage_times.split_chunks(schedule, np.array([0]))
    assert times.weight is not None
    return StagePasses(
        forward=times.forward[0].tolist(),
        backward=times.backward[0].tolist(),
        send_forward=times.send_forward[0].tolist(),
        send_backward=times.send_backward[0].tolist(),
        weight=times.weight[0].tolist(),
    )


def chrome_trace(graph: Graph) -> dict[str, Any]:
    """The graph's run in the Trace Event Format that chrome://tracing and Perfetto read; times in
    microseconds.
    """
    events: list[dict[str, Any]] = []
    # Names of the rows: a process for each stage, a thread for each stream.
    for stage in sorted({task.stage for task in graph.tasks.values()}):
        events.append(
            {"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "args": {"name": f"stage {stage}"}}
        )
        for thread, stream in enumerate(STREAMS):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": stage, "tid": thread, "args": {"name": stream}}
            )
    # The tasks themselves, as complete events ("X").
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
