"""`itertime`: the command line. Thin: each command reads names, calls the library, prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import new_app, print_json, run_app

if TYPE_CHECKING:
    from itertime.model import ModelSpec
    from itertime.plan import Plan
    from itertime.prediction import Prediction

__all__ = ["app", "main"]

app = new_app(
    "Predict the time of one training iteration of a large language model, and search for the best plan."
)

ModelName = Annotated[str, typer.Option("--model", help="A name (see `itertime models`) or a YAML file.")]
SystemName = Annotated[str, typer.Option("--system", help="A name (see `itertime systems`) or a YAML file.")]
SeqLen = Annotated[
    int | None, typer.Option("--seq-len", min=1, help="Tokens per sequence, instead of the model's own.")
]
Attention = Annotated[
    str | None, typer.Option("--attention", help="core or flash, instead of the model's own.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor parallelism.")]
Pp = Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")]
Dp = Annotated[int, typer.Option("--dp", min=1, help="Data parallelism.")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences per micro-batch.")]
GlobalBatch = Annotated[int, typer.Option("--global-batch", min=1, help="Sequences per iteration.")]
Interleave = Annotated[int, typer.Option("--interleave", min=1, help="Model chunks per stage.")]
Recompute = Annotated[str, typer.Option("--recompute", help="full, selective or none.")]
Zero = Annotated[int, typer.Option("--zero", min=0, max=3, help="ZeRO stage.")]
ZeroGroup = Annotated[
    int | None, typer.Option("--zero-group", min=1, help="Ranks per ZeRO group; all of dp if left out.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Split norms and dropout over tp.")
]
GradOverlap = Annotated[
    bool, typer.Option("--grad-overlap", help="Exchange gradients during the backward pass.")
]
Fp32Gradients = Annotated[
    bool, typer.Option("--fp32-gradients", help="Accumulate and exchange gradients in 32 bit.")
]
Schedule = Annotated[str, typer.Option("--schedule", help="1f1b or gpipe.")]
Split = Annotated[str, typer.Option("--split", help="even, or balanced where pp does not divide the layers.")]


@app.command()
def predict(
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    micro_batch: MicroBatch = 1,
    seq_len: SeqLen = None,
    attention: Attention = None,
    interleave: Interleave = 1,
    recompute: Recompute = "full",
    zero: Zero = 0,
    zero_group: ZeroGroup = None,
    sequence_parallel: SequenceParallel = False,
    grad_overlap: GradOverlap = False,
    schedule: Schedule = "1f1b",
    split: Split = "even",
    fp32_gradients: Fp32Gradients = False,
    json: Json = False,
) -> None:
    """Seconds of one iteration, where they go, memory, and whether the plan fits."""
    from itertime.plan import Plan
    from itertime.prediction import predict as run
    from itertime.system import load_system

    spec = _model(model, seq_len, attention)
    plan = Plan(
        tp, pp, dp, micro_batch, global_batch, interleave, recompute, zero, zero_group,
        sequence_parallel, grad_overlap, schedule, split, fp32_gradients,
    )  # fmt: skip
    prediction = run(spec, plan, load_system(system))
    if json:
        print_json(_document(spec, plan, prediction))
    else:
        _print_prediction(spec, plan, prediction)


@app.command()
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
    grad_overlap: GradOverlap = False,
    json: Json = False,
) -> None:
    """The best plans for a model on a number of GPUs."""
    from itertime.plansearch import Space
    from itertime.plansearch import search as run
    from itertime.system import load_system

    spec = _model(model, seq_len, attention)
    space = Space(
        interleave=_numbers("--interleave", interleave),
        recompute=tuple(word.strip() for word in recompute.split(",")),
        zero_stage=_numbers("--zero", zero),
        sequence_parallel=(False, True) if sequence_parallel else (False,),
        grad_overlap=grad_overlap,
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
        plans = [_document(spec, found.plan, found.prediction) for found in result.plans]
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


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Iteration tables (CSV).", show_default=False)],
    system: Annotated[
        str | None, typer.Option("--system", help="Add the site constants of this system.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Write measured and predicted values here.")
    ] = None,
    json: Json = False,
) -> None:
    """Predicted against measured seconds, for every row of iteration tables."""
    from itertime import validation
    from itertime.system import load_system

    site = load_system(system).site if system else None
    results = [validation.validate(path, site) for path in files]
    if rows is not None:
        validation.write_rows(results, rows)
    document = validation.summary(results)
    if json:
        print_json(document)
        return
    print(f"{'rows':>6} {'skipped':>8} {'MAPE %':>8} {'median':>8} {'p95':>8} {'bias':>8} {'R2':>8}  file")
    for entry in document["files"]:
        _print_errors({**entry, "skipped": len(entry["skipped"])}, entry["file"])
        for skipped in entry["skipped"]:
            print(f"  skipped {skipped['id']}: {skipped['why']}", file=sys.stderr)
    if len(results) > 1:
        _print_errors(document["all"], "all")


@app.command()
def timeline(
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The trace to write (JSON).", show_default=False)
    ],
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    micro_batch: MicroBatch = 1,
    seq_len: SeqLen = None,
    attention: Attention = None,
    interleave: Interleave = 1,
    recompute: Recompute = "full",
    zero: Zero = 0,
    zero_group: ZeroGroup = None,
    sequence_parallel: SequenceParallel = False,
    grad_overlap: GradOverlap = False,
    schedule: Schedule = "1f1b",
    split: Split = "even",
    fp32_gradients: Fp32Gradients = False,
) -> None:
    """One iteration, task by task, as a trace for chrome://tracing or ui.perfetto.dev."""
    from itertime.plan import Plan
    from itertime.system import load_system
    from itertime.timeline import iteration_graph, write_chrome_trace

    plan = Plan(
        tp, pp, dp, micro_batch, global_batch, interleave, recompute, zero, zero_group,
        sequence_parallel, grad_overlap, schedule, split, fp32_gradients,
    )  # fmt: skip
    graph = iteration_graph(_model(model, seq_len, attention), plan, load_system(system))
    write_chrome_trace(graph, output)
    print(f"{len(graph.tasks)} tasks written to {output}; open it in chrome://tracing or ui.perfetto.dev")


@app.command()
def models(json: Json = False) -> None:
    """The models that have a name."""
    from itertime.model import list_models, load_model

    specs = [load_model(name) for name in list_models()]
    if json:
        print_json({"models": [{**vars(spec), "parameters": spec.parameters} for spec in specs]})
        return
    for spec in specs:
        shape = f"{spec.layers:4} layers  h {spec.hidden:6}  {spec.heads:4} heads  s {spec.seq_len:5}"
        print(f"{spec.name:18} {spec.parameters / 1e9:8.1f}B {shape}  {spec.source}")


@app.command()
def systems(json: Json = False) -> None:
    """The systems that have a name."""
    from itertime.system import list_systems, load_system

    found = [load_system(name) for name in list_systems()]
    if json:
        keys = ("name", "profile", "gpus_per_node", "nic_bytes_per_s", "nvlink_bytes_per_s", "source")
        print_json({"systems": [{key: getattr(system, key) for key in keys} for system in found]})
        return
    for system in found:
        nics = f"{system.nic_bytes_per_s * 8 / 1e9:6.0f} Gb/s per node"
        print(f"{system.name:18} {system.gpus_per_node} x {system.profile:12} {nics}  {system.source}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code of the contract (0, 1, 2, 3 or 130)."""
    return run_app(app, "itertime", arguments)


def _model(name: str, seq_len: int | None, attention: str | None) -> ModelSpec:
    from dataclasses import replace

    from itertime.model import load_model

    model = load_model(name).with_seq_len(seq_len)
    return model if attention is None else replace(model, attention=attention)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    from itertime.errors import UserError

    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UserError(
            f"{option}={text}: must be whole numbers with commas between them, such as 1,2"
        ) from None
    if min(numbers) < 0:
        raise UserError(f"{option}={text}: must not be negative")
    return numbers


def _document(model: ModelSpec, plan: Plan, prediction: Prediction) -> dict[str, Any]:
    return {
        "model": model.name,
        **vars(plan),
        "gpus": plan.gpus,
        "iteration_s": prediction.iteration_s,
        "memory_gb": prediction.memory_bytes / 1e9,
        "fits": prediction.fits,
        "reason": prediction.reason,
        "mfu": prediction.mfu,
        "breakdown": prediction.breakdown,
        "memory_parts_gb": {name: size / 1e9 for name, size in prediction.memory_parts.items()},
    }


def _print_prediction(model: ModelSpec, plan: Plan, prediction: Prediction) -> None:
    print(f"{model.name} on {plan.gpus} GPUs: {plan.label}")
    print(f"{prediction.iteration_s:.4f} s per iteration, MFU {prediction.mfu:.1%}")
    for name, seconds in prediction.breakdown.items():
        if seconds > 0:
            print(f"  {name:18} {seconds:10.4f} s {seconds / prediction.iteration_s:6.1%}")
    print(f"{prediction.memory_bytes / 1e9:.1f} GB on the fullest GPU")
    for name, size in prediction.memory_parts.items():
        if size > 0:
            print(f"  {name:18} {size / 1e9:10.1f} GB")
    if not prediction.fits:
        print(f"does not fit: {prediction.reason}", file=sys.stderr)


def _print_errors(entry: dict[str, Any], name: str) -> None:
    cells = [f"{entry['rows']:6} {entry['skipped']:8}"]
    for key, width in (("mape", 2), ("median_ape", 2), ("p95_ape", 1), ("bias", 2), ("r2", 4)):
        cells.append(f"{'-':>8}" if entry[key] is None else f"{entry[key]:8.{width}f}")
    print(" ".join(cells), "", name)


if __name__ == "__main__":
    sys.exit(main())
