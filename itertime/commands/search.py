"""`itertime search`."""

from __future__ import annotations

from typing import Annotated

import typer

from itertime.commandline import print_json
from itertime.commands.options import (
    Attention,
    GlobalBatch,
    GradOverlap,
    Json,
    ModelName,
    SeqLen,
    SystemName,
    model_of,
    numbers_of,
    plan_document,
)

__all__ = ["search"]


def search(
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Use exactly this many GPUs.")] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", min=1, help="Use at most this many GPUs.")
    ] = None,
    objective: Annotated[str, typer.Option("--objective", help="time, or cost (GPU-seconds).")] = "time",
    top: Annotated[int, typer.Option("--top", min=1, help="How many plans to show.")] = 10,
    seq_len: SeqLen = None,
    attention: Attention = None,
    interleave: Annotated[str, typer.Option("--interleave", help="Chunks to try, such as 1,2,4.")] = "1",
    recompute: Annotated[str, typer.Option("--recompute", help="Choices to try.")] = "none,selective,full",
    zero: Annotated[str, typer.Option("--zero", help="ZeRO stages to try, such as 0,1.")] = "0",
    sequence_parallel: Annotated[bool, typer.Option("--sequence-parallel", help="Try it, too.")] = False,
    cp: Annotated[str, typer.Option("--cp", help="Context parallelism to try, such as 1,2.")] = "1",
    ep: Annotated[
        str | None, typer.Option("--ep", help="Expert parallelism to try, such as 1,8; all if left out.")
    ] = None,
    grad_overlap: GradOverlap = False,
    json: Json = False,
) -> None:
    """The best plans for a model on a number of GPUs."""
    from itertime.plansearch import search as run
    from itertime.planspace import Space
    from itertime.system import load_system

    spec = model_of(model, seq_len, attention)
    space = Space(
        interleave=numbers_of("--interleave", interleave),
        recompute=tuple(word.strip() for word in recompute.split(",")),
        zero_stage=numbers_of("--zero", zero),
        sequence_parallel=(False, True) if sequence_parallel else (False,),
        grad_overlap=grad_overlap,
        cp=numbers_of("--cp", cp),
        ep=() if ep is None else numbers_of("--ep", ep),
    )
    result = run(
        spec,
        global_batch,
        load_system(system),
        gpus,
        max_gpus=max_gpus,
        space=space,
        objective=objective,
        top=top,
    )
    if json:
        plans = [plan_document(spec, found.plan, found.prediction) for found in result.plans]
        counts = {"evaluated": result.evaluated, "feasible": result.feasible, "seconds": result.seconds}
        print_json({"plans": plans, **counts})
        return
    print(
        f"{spec.name}: {result.evaluated} plans, {result.feasible} fit in memory, "
        f"{result.seconds * 1e3:.0f} ms"
    )
    if not result.plans:
        print("no plan fits in memory; try more GPUs, or ZeRO with --zero 0,1")
    for rank, found in enumerate(result.plans, 1):
        plan, best = found.plan, found.prediction
        numbers = f"{best.iteration_s:10.4f} s  {best.memory_bytes / 1e9:6.1f} GB  MFU {best.mfu:5.1%}"
        print(f"{rank:3}  {plan.gpus:6} GPUs  {numbers}  {plan.label}")
