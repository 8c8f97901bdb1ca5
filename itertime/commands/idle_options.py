"""Notes on options that have no effect, given the other options and the model, and on what is unpredicted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from itertime.errors import shown

from .options import words_of

if TYPE_CHECKING:
    from itertime.spec import ModelSpec

IDLE_FP16 = "--options compression=fp16 changes nothing without --fp32-gradients: gradients have 16 bit"


def print_without_effect(model: ModelSpec, options: Mapping[str, Any]) -> None:
    """Prints on stderr which options of a plan, or of a search, have no effect for this model, given the
    others. `options`: values by parameter name.
    """
    for text in _without_effect(model, options):
        print(f"note: {text}", file=sys.stderr)


def print_unpredicted(text: str) -> None:
    """Says on stderr which options of `text` may cost steps to a target, of which nothing is predicted."""
    from itertime.spec import DEFAULT_OPTIONS, parse_options

    options = parse_options(text, "--options")
    names = [
        name
        for name in ("compression", "quantized_weights", "local_steps")
        if getattr(options, name) != getattr(DEFAULT_OPTIONS, name)
    ]
    if names:
        effect = f"the effect of {' and '.join(names)} on convergence"
        print(f"not predicted: {effect}; the number of steps is an input", file=sys.stderr)


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
    # Each row: whether the option has no effect, and the sentence that says so.
    idle = [
        (
            dispatcher != "alltoall" and one_rank,
            f"--dispatcher {shown(dispatcher)} changes nothing without expert parallelism",
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
    """Keys of `--options`: whether they have no effect, and the sentence that says so."""
    from itertime.spec import DEFAULT_OPTIONS, ONE_BIT, parse_options

    plan_options = parse_options(options["options"], "--options")
    single_rank = options.get("dp") == 1 and options.get("cp", 1) == 1  # a search has no dp
    names = ("balance", "clipping", "compression", "quantized_weights")
    texts = {name: f"{name}={str(getattr(plan_options, name)).lower()}" for name in names}
    is_set = {name: getattr(plan_options, name) != getattr(DEFAULT_OPTIONS, name) for name in names}
    acts_on_exchange = is_set | {"clipping": plan_options.clipping in ("before", "bucket")}
    acts_on_exchange["compression"] &= plan_options.compression not in ONE_BIT  # these are optimizers too
    return [
        *(
            (
                single_rank and acts_on_exchange[name],
                f"--options {texts[name]} changes nothing without data parallelism",
            )
            for name in ("balance", "clipping", "compression")
        ),
        (
            plan_options.clipping == "bucket" and not single_rank and not options["grad_overlap"],
            f"--options {texts['clipping']} hides nothing without --grad-overlap",
        ),
        (
            is_set["quantized_weights"] and words_of(str(options["zero"])) == ("0",),
            f"--options {texts['quantized_weights']} changes nothing with --zero 0, where none are gathered",
        ),
        (plan_options.compression == "fp16" and not (single_rank or options["fp32_gradients"]), IDLE_FP16),
        (
            plan_options.workers > 1 and plan_options.local_steps == 1,
            f"--options workers={plan_options.workers} exchanges in every iteration; state local_steps too",
        ),
    ]
