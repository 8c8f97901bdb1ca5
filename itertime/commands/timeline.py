"""`itertime timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Attention,
    BucketMb,
    Cp,
    CpExchange,
    CudaGraphs,
    Dispatcher,
    Dp,
    Ep,
    EpOverlap,
    Etp,
    Fp32Gradients,
    FrameworkName,
    GlobalBatch,
    GradOverlap,
    Interleave,
    MicroBatch,
    ModelName,
    OffloadLayers,
    OffloadOptimizer,
    Options,
    Pp,
    Precision,
    Prefetch,
    RankOrder,
    Recompute,
    RecomputeFraction,
    Schedule,
    SeqLen,
    SequenceParallel,
    Settings,
    Split,
    SystemName,
    Tp,
    TpOverlap,
    Zero,
    ZeroGroup,
    model_of,
    plan_of,
    system_of,
)

__all__ = ["timeline"]

PAGES = (".html", ".htm")

Output = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        help="The file to write: a page (.html) or a Chrome trace (.json).",
        show_default=False,
    ),
]


def timeline(
    context: typer.Context,
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    output: Output,
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    micro_batch: MicroBatch = 1,
    seq_len: SeqLen = None,
    attention: Attention = None,
    settings: Settings = None,
    interleave: Interleave = 1,
    recompute: Recompute = "full",
    zero: Zero = 0,
    zero_group: ZeroGroup = None,
    sequence_parallel: SequenceParallel = False,
    grad_overlap: GradOverlap = False,
    schedule: Schedule = "1f1b",
    split: Split = "even",
    fp32_gradients: Fp32Gradients = False,
    cp: Cp = 1,
    cp_exchange: CpExchange = "ring",
    ep: Ep = 1,
    rank_order: RankOrder = "tp-cp-dp-pp",
    prefetch: Prefetch = True,
    bucket_mb: BucketMb = None,
    framework: FrameworkName = None,
    precision: Precision = "bf16",
    etp: Etp = None,
    tp_overlap: TpOverlap = None,
    cuda_graphs: CudaGraphs = "none",
    dispatcher: Dispatcher = "alltoall",
    ep_overlap: EpOverlap = False,
    recompute_fraction: RecomputeFraction = 1.0,
    offload_layers: OffloadLayers = 0,
    offload_optimizer: OffloadOptimizer = False,
    options: Options = "",
) -> None:
    """Draw one iteration task by task: a web page, or a trace for chrome://tracing or ui.perfetto.dev."""
    from itertime.errors import UserError
    from itertime.timeline import iteration_graph, write_chrome_trace

    ending = output.suffix.lower()
    if ending not in (*PAGES, ".json"):
        raise UserError(f"-o={output}: must end in .html or .json")
    plan = plan_of(context.params)
    spec, machine = model_of(model, seq_len, attention, settings), system_of(system, settings, framework)
    if ending in PAGES:
        from itertime.timeline import write_timeline_page

        write_timeline_page(spec, plan, machine, output)
        print(f"written to {output}; open it in a browser")
        return
    graph = iteration_graph(spec, plan, machine)
    write_chrome_trace(graph, output)
    print(f"{len(graph.tasks)} tasks written to {output}; open it in chrome://tracing or ui.perfetto.dev")
