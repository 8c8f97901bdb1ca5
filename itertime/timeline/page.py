"""The timeline of one iteration as a web page: stages by time, in a single file that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from itertime.costs import StageCosts, Workload, stage_costs
from itertime.errors import UserError
from itertime.io import MAX_BYTES, read_text, write_text
from itertime.prediction import Prediction, predict, where_time_goes
from itertime.schedule import stage_kinds
from itertime.spec import ModelSpec, Plan, PlanBatch, Profile, System, profile_of

from .iteration import iteration_graph
from .task_graph import Graph, Task

TEMPLATE = Path(__file__).parents[1] / "templates" / "timeline.html"
MOST_BARS = 200_000
KINDS = {
    "forward": "forward",
    "backward": "backward",
    "repeat": "recompute",
    "send": "send",
    "optimizer": "optimizer",
    "overhead": "overhead",
}  # by the first word of a task's name; anything else is an exchange of gradients or weights
COLLECTIVES = ("tp_comm", "cp_comm", "ep_comm", "fsdp_comm")
NOTE = (
    "Recomputation and collectives are drawn at their length in a pass of the stage, not at their place. "
    "The exchange of gradients and weights is drawn for stage 0, which ends last: below the passes that it "
    "overlaps, what is exposed of it after the last one."
)

Bar = tuple[str, float, float, int | None, int | None, str]  # kind, start, seconds, micro-batch, chunk, name


def timeline_page(model: ModelSpec, plan: Plan, system: System, profile: Profile | None = None) -> str:
    """The page's HTML. Raises UserError for an impossible plan, or one with too many bars."""
    profile = profile or profile_of(system)
    graph = iteration_graph(model, plan, system, profile)
    if len(graph.tasks) > MOST_BARS:
        raise UserError(
            f"timeline: {len(graph.tasks):,} tasks: a page shows at most {MOST_BARS:,}; "
            "take fewer micro-batches, or a .json trace"
        )
    prediction = predict(model, plan, system, profile)
    workload = Workload.of(model, PlanBatch.of([plan]), system, profile)
    stages = _stages(graph, plan, stage_costs(workload))
    data = {"seconds": prediction.iteration_s, "stages": stages}
    gpus = f"{plan.gpus:,} GPU" + ("s" if plan.gpus > 1 else "")
    # The template holds the page; these texts and the data take the places of its {{names}}.
    words = {
        "title": html.escape(f"{model.name}, {plan.label}, {gpus} of {system.name}"),
        "subtitle": f"{prediction.iteration_s:.4f} s per iteration, {plan.microbatches:,} micro-batches, "
        f"{prediction.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {prediction.tflops_per_gpu:,.1f} TFLOP/s/GPU, "
        f"MFU {prediction.mfu:.1%}, HFU {prediction.hfu:.1%} of the bf16 peak, "
        f"{prediction.memory_bytes / 1e9:.1f} GB on the fullest GPU",
        "label": f"Timeline of {plan.pp} stages over {prediction.iteration_s:.4f} seconds",
        "note": NOTE,
        "tables": _time_table(prediction) + _stage_table(stages, prediction.iteration_s),
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    text = read_text(TEMPLATE, MAX_BYTES)
    for name, value in words.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def write_timeline_page(
    model: ModelSpec, plan: Plan, system: System, path: str | Path, profile: Profile | None = None
) -> None:
    """Writes `timeline_page`, whole or not at all; also raises UserError if the file cannot be written."""
    write_text(path, timeline_page(model, plan, system, profile))


def _stages(graph: Graph, plan: Plan, costs: StageCosts) -> list[dict[str, Any]]:
    """By stage: its bars in order of time, and the shares of its passes that are not plain compute."""
    lanes: dict[tuple[int, str], list[Bar]] = {}
    for name, (start, end) in graph.run().items():
        task = graph.tasks[name]
        if task.seconds > 0:
            lane = "network" if task.stream == "network" else "compute"
            lanes.setdefault((task.stage, lane), []).append(_bar(task, start, end, plan))
    kinds = stage_kinds(costs.workload.partition.stages)[0]
    return [
        {
            "stage": stage,
            "compute": sorted(lanes.get((stage, "compute"), []), key=_start),
            "network": sorted(lanes.get((stage, "network"), []), key=_start),
            **_shares(costs, int(kinds[stage])),
        }
        for stage in range(plan.pp)
    ]


def _start(bar: Bar) -> float:
    return bar[1]


def _bar(task: Task, start: float, end: float, plan: Plan) -> Bar:
    task_kind, _, address = task.name.partition(" ")
    kind = "backward" if task_kind == "weight" else KINDS.get(task_kind, "gradients")
    if kind in ("forward", "backward", "recompute"):
        position, _, microbatch = address.partition(" ")[0].partition(".")
        chunk = int(position) // plan.pp
        of_weights = "gradients of weights" if task_kind == "weight" else kind
        title = f"{of_weights} of micro-batch {microbatch}" + (
            f", chunk {chunk}" if plan.interleave > 1 else ""
        )
        return kind, start, end - start, int(microbatch), chunk, title
    return kind, start, end - start, None, None, task.name.partition(".")[0] if kind == "send" else task.name


def _shares(costs: StageCosts, kind: int) -> dict[str, float]:
    """Shares of a stage's passes: collectives forward and backward, recomputation backward."""

    def share(parts: dict[str, Any], names: Iterable[str]) -> float:
        apart = ("p2p", *costs.ahead)  # drawn as bars of their own
        pass_s = sum(float(seconds[kind, 0]) for part, seconds in parts.items() if part not in apart)
        named_s = sum(float(parts[name][kind, 0]) for name in names if name in parts)
        return named_s / pass_s if pass_s > 0 else 0.0

    return {
        "forward_collective": share(costs.forward, COLLECTIVES),
        "backward_collective": share(costs.backward, COLLECTIVES),
        "recompute": share(costs.backward, [name for name in ("recompute",) if name not in costs.ahead]),
    }


def _time_table(prediction: Prediction) -> str:
    rows = [
        (group, f"{seconds:.4f}", f"{seconds / prediction.iteration_s:.1%}")
        for group, seconds in where_time_goes(prediction).items()
        if seconds
    ]
    return _table("Where the iteration's time goes, on the slowest stage", ("", "seconds", "share"), rows)


def _stage_table(stages: Sequence[dict[str, Any]], iteration_s: float) -> str:
    rows = []
    for stage in stages:
        busy = sum(bar[2] for bar in stage["compute"])
        rows.append((str(stage["stage"]), f"{busy:.4f}", f"{max(iteration_s - busy, 0.0):.4f}"))
    return _table("What each stage does", ("stage", "computes and sends, s", "waits, s"), rows)


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption>{line(head, 'th')}{body}</table>"
