"""Options that several commands share, and the values that they turn into."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from itertime.prediction import Prediction
    from itertime.spec import ModelSpec, Plan, System

__all__ = [
    "MEMORY_HEADROOM",
    "Attention",
    "BucketMb",
    "Cp",
    "CpExchange",
    "CudaGraphs",
    "Dispatcher",
    "Dp",
    "Ep",
    "EpOverlap",
    "Etp",
    "Fp32Gradients",
    "FrameworkName",
    "GlobalBatch",
    "GradOverlap",
    "Headroom",
    "Interleave",
    "Json",
    "MicroBatch",
    "ModelName",
    "OffloadLayers",
    "OffloadOptimizer",
    "Options",
    "Pp",
    "Precision",
    "Prefetch",
    "RankOrder",
    "Recompute",
    "RecomputeFraction",
    "Schedule",
    "SeqLen",
    "SequenceParallel",
    "Settings",
    "Split",
    "SystemName",
    "Tp",
    "TpOverlap",
    "Zero",
    "ZeroGroup",
    "error_note",
    "model_of",
    "numbers_of",
    "plan_document",
    "plan_of",
    "print_without_effect",
    "system_of",
    "words_of",
    "wrapped",
]

LINE = 100  # characters of a line of words in the output
OWNERS = ("model.", "system.")

ModelName = Annotated[str, typer.Option("--model", help="A name (see `itertime models`) or a YAML file.")]
SystemName = Annotated[str, typer.Option("--system", help="A name (see `itertime systems`) or a YAML file.")]
SeqLen = Annotated[
    int | None, typer.Option("--seq-len", min=1, help="Tokens per sequence; default: the model's own.")
]
Attention = Annotated[
    str | None, typer.Option("--attention", help="core or flash; default: the model's own.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="system.KEY=VALUE or model.KEY=VALUE, as in system.nic_gbps=400; repeatable."),
]
MEMORY_HEADROOM = 0.1  # as in itertime.costs, which takes long to import
Headroom = Annotated[
    float,
    typer.Option(
        "--memory-headroom", help="Share of the GPU's memory that a plan must leave free to fit, below 1."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor parallelism.")]
Pp = Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")]
Dp = Annotated[int, typer.Option("--dp", min=1, help="Data parallelism.")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences per micro-batch.")]
GlobalBatch = Annotated[int, typer.Option("--global-batch", min=1, help="Sequences per iteration.")]
Interleave = Annotated[int, typer.Option("--interleave", min=1, help="Model chunks per stage.")]
Recompute = Annotated[
    str, typer.Option("--recompute", help="full, early-stop, selective, elementwise or none.")
]
Zero = Annotated[int, typer.Option("--zero", min=0, max=3, help="ZeRO stage.")]
ZeroGroup = Annotated[
    int | None, typer.Option("--zero-group", min=1, help="Ranks per ZeRO group; default: all of dp.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Split norms and dropout over tp.")
]
GradOverlap = Annotated[
    bool, typer.Option("--grad-overlap", help="Exchange gradients during the backward pass.")
]
Fp32Gradients = Annotated[
    bool, typer.Option("--fp32-gradients", help="Accumulate and exchange gradients in 32 bits.")
]
Cp = Annotated[int, typer.Option("--cp", min=1, help="Context parallelism: ranks that share a sequence.")]
CpExchange = Annotated[
    str, typer.Option("--cp-exchange", help="How keys and values are exchanged: ring or gather.")
]
Ep = Annotated[int, typer.Option("--ep", min=1, help="Expert parallelism: ranks that share the experts.")]
RankOrder = Annotated[
    str, typer.Option("--rank-order", help="Order in which ranks are numbered: tp-cp-dp-pp or tp-cp-pp-dp.")
]
Prefetch = Annotated[
    bool, typer.Option("--prefetch/--no-prefetch", help="ZeRO-3 gathers the next layer's weights ahead.")
]
BucketMb = Annotated[
    int | None, typer.Option("--bucket-mb", min=1, help="Exchange gradients in buckets of this size, in MB.")
]
Schedule = Annotated[str, typer.Option("--schedule", help="1f1b or gpipe.")]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        help="Layers per stage: even; balanced, compute, ends or remainder where pp does not divide them.",
    ),
]


Precision = Annotated[
    str, typer.Option("--precision", help="Of the layers' matrices: bf16, fp8, fp8_block, mxfp8 or nvfp4.")
]
FrameworkName = Annotated[
    str | None,
    typer.Option(
        "--framework", help="A name (see `itertime frameworks`) or a YAML file; default: the system's."
    ),
]
Etp = Annotated[
    int | None, typer.Option("--etp", min=1, help="Tensor parallelism of the experts; default: as --tp.")
]
TpOverlap = Annotated[
    bool | None,
    typer.Option(
        "--tp-overlap/--no-tp-overlap",
        help="Hide tensor-parallel communication behind matrix products; default: as the framework does.",
    ),
]
CudaGraphs = Annotated[
    str, typer.Option("--cuda-graphs", help="Launch at once: none, the kernels of layers, or full.")
]
Dispatcher = Annotated[
    str, typer.Option("--dispatcher", help="Of tokens to their experts: alltoall, deepep or hybridep.")
]
EpOverlap = Annotated[
    bool, typer.Option("--ep-overlap", help="Hide expert-parallel communication behind computation.")
]
RecomputeFraction = Annotated[
    float, typer.Option("--recompute-fraction", help="Share of the layers that --recompute applies to.")
]
OffloadLayers = Annotated[
    int,
    typer.Option("--offload-layers", min=0, help="Layers of a stage with activations in the CPU's memory."),
]
OffloadOptimizer = Annotated[
    bool, typer.Option("--offload-optimizer", help="Keep and run the optimizer on the CPU.")
]
Options = Annotated[
    str,
    typer.Option(
        "--options",
        help="KEY=VALUE,...: batches, balance, clipping, optimizer, ...; see `itertime plan-options`.",
    ),
]


def model_of(
    name: str, seq_len: int | None, attention: str | None, settings: Sequence[str] | None = None
) -> ModelSpec:
    """The model of `--model`, `--set model.KEY=VALUE`, `--seq-len` and `--attention`.

    Says on stderr what predictions of this model leave out. UserError for a model that cannot be predicted.
    """
    from dataclasses import replace

    from itertime.errors import printable
    from itertime.spec import approximations_of, check_predictable, model_of, model_reference

    reference = model_reference(name).changed(_settings_of("model", settings), "--set model.")
    chosen: dict[str, Any] = {} if attention is None else {"attention": attention}
    model = replace(model_of(reference).with_seq_len(seq_len), **chosen)
    check_predictable(model)
    for text in approximations_of(model):
        print(wrapped(printable(f"note: {model.name}: {text}")), file=sys.stderr)
    return model


def system_of(name: str, settings: Sequence[str] | None = None, framework: str | None = None) -> System:
    """The system of `--system`, `--set system.KEY=VALUE` and `--framework`, whose file is read."""
    from dataclasses import replace

    from itertime.spec import load_framework, system_of, system_reference

    system = system_of(system_reference(name).changed(_settings_of("system", settings), "--set system."))
    system = system if framework is None else replace(system, framework=framework)
    load_framework(system.framework)
    return system


def _settings_of(owner: str, settings: Sequence[str] | None) -> list[str]:
    """The settings of `--set` that begin with `owner` and a dot, without these; UserError for any that begin
    with neither owner.
    """
    from itertime.errors import UserError

    for text in settings or ():
        if not text.startswith(OWNERS):
            raise UserError(f"--set {text}: write model.KEY=VALUE or system.KEY=VALUE")
    return [text.removeprefix(f"{owner}.") for text in settings or () if text.startswith(f"{owner}.")]


def plan_of(options: Mapping[str, Any]) -> Plan:
    """The plan of the options that `predict` and `timeline` share, by parameter name (`Context.params`)."""
    from dataclasses import fields

    from itertime.spec import Plan, parse_options

    same_name = {field.name: options[field.name] for field in fields(Plan) if field.name in options}
    same_name["options"] = parse_options(options["options"], "--options")
    bucket_mb = options["bucket_mb"]
    return Plan(
        **same_name,
        zero_stage=options["zero"],
        bucket_bytes=None if bucket_mb is None else bucket_mb * 1_000_000,
    )


def print_without_effect(model: ModelSpec, options: Mapping[str, Any]) -> None:
    """Says on stderr which options of a plan, or of a search for plans, change nothing for this model beside
    the others, by parameter name (`Context.params`).
    """
    for text in _without_effect(model, options):
        print(f"note: {text}", file=sys.stderr)


def _without_effect(model: ModelSpec, options: Mapping[str, Any]) -> list[str]:
    def always(name: str, value: str) -> bool:
        return words_of(str(options[name])) == (value,)

    one_rank = model.experts == 1 or always("ep", "1")
    # ranks that share an expert exchange tokens too
    whole_experts = model.experts == 1 or (
        always("tp", "1") if options["etp"] is None else options["etp"] == 1
    )
    share, dispatcher = options.get("recompute_fraction", 1), options["dispatcher"]
    overlap = "--tp-overlap" if options["tp_overlap"] else "--no-tp-overlap"
    idle = [
        (
            dispatcher != "alltoall" and one_rank,
            f"--dispatcher {dispatcher} changes nothing without expert parallelism",
        ),
        (
            options["ep_overlap"] and one_rank and whole_experts,
            "--ep-overlap changes nothing without expert parallelism",
        ),
        (
            options["tp_overlap"] is not None and always("tp", "1"),
            f"{overlap} changes nothing without tensor parallelism",
        ),
        (
            share != 1 and always("recompute", "none"),
            f"--recompute-fraction {share:g} changes nothing with --recompute none",
        ),
        (
            options.get("bucket_mb") is not None and not options["grad_overlap"],
            "--bucket-mb hides nothing without --grad-overlap: buckets add latency at most",
        ),
    ]
    return [text for without, text in (*idle, *_idle_options(model, options)) if without]


def _idle_options(model: ModelSpec, options: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """Of `--options`: which change nothing beside the other options, and the sentence that says so."""
    from itertime.spec import DEFAULT_OPTIONS, ONE_BIT, parse_options

    chosen = parse_options(options["options"], "--options")
    alone = options.get("dp", 0) * options.get("cp", 1) == 1  # a search has no dp
    names = ("balance", "clipping", "compression", "quantized_weights")
    texts = {name: f"{name}={str(getattr(chosen, name)).lower()}" for name in names}
    stated = {name: getattr(chosen, name) != getattr(DEFAULT_OPTIONS, name) for name in names}
    exchanged = stated | {"clipping": chosen.clipping in ("before", "bucket")}
    exchanged["compression"] &= chosen.compression not in ONE_BIT  # these are optimizers too
    return [
        *(
            (alone and exchanged[name], f"--options {texts[name]} changes nothing without data parallelism")
            for name in ("balance", "clipping", "compression")
        ),
        (
            chosen.clipping == "bucket" and not alone and not options["grad_overlap"],
            f"--options {texts['clipping']} hides nothing without --grad-overlap",
        ),
        (
            stated["quantized_weights"] and words_of(str(options["zero"])) == ("0",),
            f"--options {texts['quantized_weights']} changes nothing with --zero 0, where none are gathered",
        ),
        (
            chosen.compression == "fp16" and not (alone or options["fp32_gradients"]),
            "--options compression=fp16 changes nothing without --fp32-gradients: gradients have 16 bit",
        ),
        (
            chosen.workers > 1 and chosen.local_steps == 1,
            f"--options workers={chosen.workers} exchanges in every iteration; state local_steps too",
        ),
    ]


def wrapped(text: str) -> str:
    """Words in lines of at most `LINE` characters, further ones indented."""
    return textwrap.fill(text, LINE, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list, each once; otherwise UserError naming the option."""
    from itertime.errors import UserError

    try:
        numbers = tuple(dict.fromkeys(map(int, words_of(text))))
    except ValueError:
        raise UserError(
            f"{option}={text}: must be whole numbers separated by commas, for example 1,2"
        ) from None
    if min(numbers) < 0:
        raise UserError(f"{option}={text}: must not be negative")
    return numbers


def error_note(system: System) -> str:
    """How wrong predictions on a system were; empty if errors are small or its site is calibrated."""
    from itertime.accuracy import errors_on, measured_relatives

    if system.site.measured_over_predicted is not None:
        return ""
    known = errors_on(system.profile, system.framework)
    if known is None:
        relatives = ", ".join(measured_relatives(system.profile))
        borrowed = f"; intervals are those of {relatives}, widened" if relatives else ""
        return (
            f"no measured run on profile {system.profile} is known: how wrong predictions are is unknown"
            f"{borrowed}"
        )
    if not known.large:
        return ""
    sources = ", ".join(f"{name} {error:.0f} %" for name, error in known.sources.items())
    software = f" with framework {known.framework}" if known.framework else ""
    return (
        f"predictions on profile {system.profile}{software} are unreliable: off by {known.mape_pct:.0f} % on "
        f"average over {known.rows:,} measured runs ({sources}), half of which took over {known.median:.2g} "
        "times the prediction; calibrate the site (itertime calibrate), and compare plans by measuring them"
    )


def plan_document(model: ModelSpec, plan: Plan, system: System, prediction: Prediction) -> dict[str, Any]:
    """One plan and its prediction, as `--json` prints it. `power_w` is the system's; null: the profile's."""
    from dataclasses import asdict

    from itertime.spec import approximations_of

    return {
        "model": model.name,
        "system": system.name,
        "framework": system.framework,
        "power_w": system.power_w,
        **vars(plan),
        "options": asdict(plan.options),
        "plan_options": plan.options.text,
        "gpus": plan.gpus,
        "iteration_s": prediction.iteration_s,
        "interval_s": prediction.interval_s,
        "spread_s": prediction.spread_s,
        "memory_gb": prediction.memory_bytes / 1e9,
        "gpu_memory_gb": prediction.capacity_bytes / 1e9,
        "memory_headroom": prediction.memory_headroom,
        "fits": prediction.fits,
        "reason": prediction.reason,
        "mfu": prediction.mfu,
        "extrapolated": list(prediction.extrapolated),
        "approximations": list(approximations_of(model)),
        "breakdown": prediction.breakdown,
        "memory_parts_gb": {name: size / 1e9 for name, size in prediction.memory_parts.items()},
    }
