"""`itertime search`, with the options that it alone has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import print_json

from .idle_options import print_unpredicted, print_without_effect
from .options import (
    MEMORY_HEADROOM,
    Attention,
    CudaGraphs,
    Dispatcher,
    EpOverlap,
    Etp,
    FrameworkName,
    GlobalBatch,
    GradOverlap,
    Headroom,
    Json,
    ModelName,
    Options,
    Precision,
    SeqLen,
    Settings,
    SystemName,
    TpOverlap,
    model_of,
    numbers_of,
    system_of,
    words_of,
)
from .output.search_output import (
    DEFAULT_USD_PER_GPU_HOUR,
    document_of,
    notes_document,
    price_of,
    print_found,
    print_notes,
)

if TYPE_CHECKING:
    from itertime.planning import SearchResult, Space
    from itertime.spec import ModelSpec, System

__all__ = ["search"]

TOP, WHOLE_FRONT = 10, 1_000_000

Gpus = Annotated[int | None, typer.Option("--gpus", min=1, help="Use exactly this many GPUs.")]
MaxGpus = Annotated[int | None, typer.Option("--max-gpus", min=1, help="Use at most this many GPUs.")]
Objective = Annotated[str, typer.Option("--objective", help="time, cost (dollars per iteration), or pareto.")]
Price = Annotated[
    float | None,
    typer.Option(
        "--price", help=f"Dollars per GPU-hour; default: the system's, or {DEFAULT_USD_PER_GPU_HOUR:g}."
    ),
]
Pareto = Annotated[
    bool,
    typer.Option(
        "--pareto", help="The front of time against GPUs, up to --max-gpus; short for --objective pareto."
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show where the time and the memory of the best plan go.")
]
Top = Annotated[
    int | None, typer.Option("--top", min=1, help="How many plans to show; default: 10, or the whole front.")
]
TpChoices = Annotated[
    str, typer.Option("--tp", help="Degrees to try, for example 4,8; all: those within a node.")
]
PpChoices = Annotated[
    str,
    typer.Option("--pp", help="Degrees to try; all: those that divide the layers, or these and two more."),
]
MicroBatchChoices = Annotated[str, typer.Option("--micro-batch", help="Sizes to try; all: 1 to 64.")]
InterleaveChoices = Annotated[
    str,
    typer.Option(
        "--interleave",
        help="Chunks per stage to try, for example 1,2; all: those that divide a stage's layers.",
    ),
]
RecomputeChoices = Annotated[str, typer.Option("--recompute", help="Modes to try; early-stop only if named.")]
ZeroChoices = Annotated[str, typer.Option("--zero", help="ZeRO stages to try, for example 0,1.")]
SequenceParallelChoice = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel", help="Only with it, or only without it; default: both."
    ),
]
CpChoices = Annotated[str, typer.Option("--cp", help="Context parallelism to try, for example 1,2.")]
EpChoices = Annotated[
    str, typer.Option("--ep", help="Expert parallelism to try; all: those that divide the experts.")
]

OffloadOptimizerChoice = Annotated[
    bool, typer.Option("--offload-optimizer", help="Also try plans that keep and run it on the CPU.")
]


def search(
    context: typer.Context,
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    gpus: Gpus = None,
    max_gpus: MaxGpus = None,
    objective: Objective = "time",
    price: Price = None,
    pareto: Pareto = False,
    explain: Explain = False,
    top: Top = None,
    seq_len: SeqLen = None,
    attention: Attention = None,
    settings: Settings = None,
    tp: TpChoices = "all",
    pp: PpChoices = "all",
    micro_batch: MicroBatchChoices = "all",
    interleave: InterleaveChoices = "all",
    recompute: RecomputeChoices = "none,selective,full",
    zero: ZeroChoices = "0,1,2,3",
    sequence_parallel: SequenceParallelChoice = None,
    cp: CpChoices = "1",
    ep: EpChoices = "all",
    framework: FrameworkName = None,
    precision: Precision = "bf16",
    etp: Etp = None,
    tp_overlap: TpOverlap = None,
    cuda_graphs: CudaGraphs = "none",
    dispatcher: Dispatcher = "alltoall",
    ep_overlap: EpOverlap = False,
    grad_overlap: GradOverlap = False,
    offload_optimizer: OffloadOptimizerChoice = False,
    options: Options = "",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the best plans for a model on a number of GPUs that keep the rules and fit in memory."""
    from itertime.planning import search as run

    objective = _objective(objective, pareto, gpus, max_gpus)
    spec = model_of(model, seq_len, attention, settings)
    machine = system_of(system, settings, framework)
    price, price_from = price_of(machine, price)
    space = _space(context.params)
    print_without_effect(spec, context.params)
    print_unpredicted(options)
    result = run(
        spec,
        global_batch,
        machine,
        gpus,
        max_gpus=max_gpus,
        space=space,
        objective=objective,
        top=top or (WHOLE_FRONT if objective == "pareto" else TOP),
        memory_headroom=memory_headroom,
    )
    stated = {"objective": objective, "price": price, "price_from": price_from}
    _print(spec, machine, result, context.params | stated)


def _print(model: ModelSpec, system: System, result: SearchResult, options: Mapping[str, Any]) -> None:
    """Prints what a search found and how far to trust it, as the options by parameter name ask."""
    from itertime.planning import judge

    objective, price, price_from = (options[name] for name in ("objective", "price", "price_from"))
    by_cost, front = objective == "cost", objective == "pareto"
    choice = None if front else judge(model, system, result, objective)
    if options["json"]:
        notes = notes_document(system, choice, price, price_from)
        print_json(document_of(model, system, result, by_cost, price) | notes)
    else:
        print_found(model, result, by_cost, price, against_best=not front, explain=options["explain"])
        print_notes(system, result, choice, f"{price:g} a GPU-hour, {price_from}")


def _objective(stated: str, pareto: bool, gpus: int | None, max_gpus: int | None) -> str:
    """The objective that `--objective` and `--pareto`, short for one of its values, state together."""
    from itertime.errors import UserError

    if pareto and stated not in ("time", "pareto"):
        raise UserError("--pareto: is short for --objective pareto; leave out --objective")
    objective = "pareto" if pareto else stated
    if objective == "pareto" and (max_gpus is None or gpus is not None):
        raise UserError("--pareto: needs --max-gpus; leave out --gpus")
    return objective


def _space(options: Mapping[str, Any]) -> Space:
    """The plans to look at, from the options by parameter name (`Context.params`)."""
    from itertime.planning import MICRO_BATCHES, Space
    from itertime.spec import parse_options

    sequence_parallel = options["sequence_parallel"]
    return Space(
        tp=_chosen("--tp", options["tp"]),
        pp=_chosen("--pp", options["pp"]),
        micro_batch=_chosen("--micro-batch", options["micro_batch"]) or MICRO_BATCHES,
        interleave=_chosen("--interleave", options["interleave"]),
        recompute=words_of(options["recompute"]),
        zero_stage=numbers_of("--zero", options["zero"]),
        sequence_parallel=(False, True) if sequence_parallel is None else (sequence_parallel,),
        grad_overlap=options["grad_overlap"],
        cp=numbers_of("--cp", options["cp"]),
        ep=_chosen("--ep", options["ep"]),
        precision=options["precision"],
        ends=True,
        offload_optimizer=options["offload_optimizer"],
        options=parse_options(options["options"], "--options"),
        **{name: options[name] for name in ("etp", "dispatcher", "cuda_graphs", "ep_overlap", "tp_overlap")},
    )


def _chosen(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option; empty for "all", which leaves the choice to the search."""
    return () if text.strip() == "all" else numbers_of(option, text)
