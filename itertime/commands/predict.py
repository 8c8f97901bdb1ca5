"""`itertime predict`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from itertime.commandline import print_json

from .idle_options import print_unpredicted, print_without_effect
from .options import (
    MEMORY_HEADROOM,
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
    Headroom,
    Interleave,
    Json,
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
from .output import error_note, plan_document, wrapped

if TYPE_CHECKING:
    from itertime.prediction import Prediction
    from itertime.spec import ModelSpec, Plan

__all__ = ["predict"]


def predict(
    context: typer.Context,
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
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
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Predict the seconds of one iteration, where they go, the memory, and whether the plan fits."""
    from itertime.prediction import predict as run

    spec = model_of(model, seq_len, attention, settings)
    plan = plan_of(context.params)
    print_without_effect(spec, context.params)
    print_unpredicted(options)
    machine = system_of(system, settings, framework)
    prediction = run(spec, plan, machine, memory_headroom=memory_headroom)
    if json:
        print_json(plan_document(spec, plan, machine, prediction))
    else:
        _print_prediction(spec, plan, prediction)
        if prediction.interval_s is None and (note := error_note(machine)):
            print(wrapped(f"warning: {note}"), file=sys.stderr)


def _print_prediction(model: ModelSpec, plan: Plan, prediction: Prediction) -> None:
    print(f"{model.name} on {plan.gpus} GPUs: {plan.label}")
    print(f"{prediction.iteration_s:.4f} s per iteration, MFU {prediction.mfu:.1%}")
    if prediction.interval_s:
        low, high = prediction.interval_s
        print(f"nine in ten measured iterations of such plans lie between {low:.4f} and {high:.4f} s")
    else:
        print("no interval is known for this GPU")
    if prediction.spread_s:
        low, high = prediction.spread_s
        print(f"nine in ten iterations take {low:.4f} to {high:.4f} s, by the lengths of the samples drawn")
        if prediction.sampling_error_s:
            print(f"standard error of the mean, of sampled iterations: {prediction.sampling_error_s:.2g} s")
    for name, seconds in prediction.breakdown.items():
        if seconds > 0:
            print(f"  {name:18} {seconds:10.4f} s {seconds / prediction.iteration_s:6.1%}")
    print(
        f"{prediction.memory_bytes / 1e9:.1f} GB of {prediction.capacity_bytes / 1e9:.1f} on the fullest GPU"
    )
    for name, size in prediction.memory_parts.items():
        if size > 0:
            print(f"  {name:18} {size / 1e9:10.1f} GB")
    if not prediction.fits:
        print(f"does not fit: {prediction.reason}", file=sys.stderr)
