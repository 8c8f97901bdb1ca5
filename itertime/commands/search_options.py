"""Options of `itertime search` alone: what it searches, and what it shows."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "CpChoices",
    "EpChoices",
    "Explain",
    "Gpus",
    "InterleaveChoices",
    "MaxGpus",
    "MicroBatchChoices",
    "Objective",
    "Pareto",
    "PpChoices",
    "Price",
    "RecomputeChoices",
    "SequenceParallelChoice",
    "Top",
    "TpChoices",
    "ZeroChoices",
]

Gpus = Annotated[int | None, typer.Option("--gpus", min=1, help="Use exactly this many GPUs.")]
MaxGpus = Annotated[int | None, typer.Option("--max-gpus", min=1, help="Use at most this many GPUs.")]
Objective = Annotated[str, typer.Option("--objective", help="time, cost (dollars per iteration), or pareto.")]
Price = Annotated[float, typer.Option("--price", help="Dollars per GPU-hour.")]
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
PpChoices = Annotated[str, typer.Option("--pp", help="Degrees to try; all: those that divide the layers.")]
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
