"""Notes on options that have no effect on the plans at hand, and on what is unpredicted.

Whether an option has an effect is tried, not argued: the plans are predicted once more without it. The
reasons below only say why it has none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from itertime.errors import UserError, shown

from .documents import wrapped
from .layout import PlanLayout, option_words
from .options import Conditions, Execution, Subject, changed_model, system_of

if TYPE_CHECKING:
    from itertime.arrays import Array
    from itertime.spec import ModelSpec, Plan, System

Test = Callable[["Plan"], bool]
Reason = tuple[Test, str]
"""What holds for all plans on which an option has no effect, and the words for it in a note."""

_OF_SIZE = ("gpus", "tp", "pp", "dp", "cp", "ep", "micro_batch", "options")
"""Options that say how large a plan is, and the one that holds others."""
_PLAN_FIELDS = {"zero": "zero_stage", "bucket_mb": "bucket_bytes"}
"""Fields of plans that options of other names set."""
_FOR_READERS = ("name", "source", "usd_per_gpu_hour", "parameters_published", "active_parameters_published")
"""Keys of models and systems that no prediction reads."""
_SAME = 1e-12  # relative: sums of the same numbers in another order

_NO_CONTEXT: Reason = (lambda plan: plan.cp == 1, "without context parallelism")
_NO_DATA: Reason = (lambda plan: plan.dp * plan.cp == 1, "without data parallelism")
_NO_EXPERT: Reason = (lambda plan: plan.ep == 1, "without expert parallelism")
_NO_PIPELINE: Reason = (lambda plan: plan.pp == 1, "without a pipeline")
_NO_TENSOR: Reason = (lambda plan: plan.tp == 1, "without tensor parallelism")
_NO_ZERO: Reason = (lambda plan: plan.zero_stage == 0, "with --zero 0")
_REASONS: dict[str, tuple[Reason, ...]] = {
    "balance": (_NO_DATA,),
    "bucket_bytes": (_NO_DATA,),
    "clipping": (_NO_DATA,),
    "compression": (
        _NO_DATA,
        (lambda plan: not plan.fp32_gradients, "without --fp32-gradients: gradients have 16 bit"),
    ),
    "cp_exchange": (_NO_CONTEXT,),
    "dispatcher": (_NO_EXPERT,),
    "ep_overlap": (_NO_EXPERT,),
    "etp": ((lambda plan: plan.etp == plan.tp, "as it is the same as --tp"),),
    "grad_overlap": (_NO_DATA,),
    "interleave": (_NO_PIPELINE,),
    "prefetch": (_NO_DATA, (lambda plan: plan.zero_stage < 3, "without --zero 3, which gathers weights")),
    "rank_order": (_NO_PIPELINE, _NO_DATA),
    "recompute_fraction": ((lambda plan: plan.recompute == "none", "with --recompute none"),),
    "schedule": (_NO_PIPELINE, (lambda plan: plan.microbatches == 1, "with a single micro-batch")),
    "sequence_parallel": (_NO_TENSOR,),
    "split": (_NO_PIPELINE, (lambda plan: True, "as the layers are divided so anyway")),
    "tp_overlap": (
        _NO_TENSOR,
        (lambda plan: not plan.sequence_parallel, "without sequence parallelism"),
        (lambda plan: True, "as the framework does so anyway"),
    ),
    "zero_group": (_NO_DATA, _NO_ZERO, (lambda plan: True, "as these are all ranks")),
    "zero_stage": (_NO_DATA,),
}
_ADVICE: tuple[tuple[str, Test, str], ...] = (
    (
        "bucket_bytes",
        lambda plan: plan.bucket_bytes is not None and not plan.grad_overlap,
        "--bucket-mb hides nothing without --grad-overlap: buckets add latency at most",
    ),
    (
        "clipping",
        lambda plan: plan.options.clipping == "bucket" and not plan.grad_overlap,
        "--options clipping=bucket hides nothing without --grad-overlap",
    ),
    (
        "workers",
        lambda plan: plan.options.workers > 1 and plan.options.local_steps == 1,
        "--options workers={workers} exchanges in every iteration; state local_steps too",
    ),
)
"""Options that cost something and bring nothing: the option, when it is so, and the note."""


@dataclass(frozen=True)
class _Stated:
    """An option as the user stated it, the field of plans or of their options that it sets, and what makes a
    plan without it of a plan.
    """

    text: str
    field: str
    without: Callable[[Plan], Plan]


def print_without_effect(
    subject: Conditions,
    model: ModelSpec,
    system: System,
    plans: Sequence[Plan],
    *groups: PlanLayout | Execution,
    used_elsewhere: Collection[str] = (),
) -> None:
    """Prints on stderr which options have no effect on any of the plans, and why.

    `plans`: those that a command predicts for `model` on `system`, which `subject` states. `groups`: the
    other options, as the user stated them. `used_elsewhere`: fields of plans and of their options that have
    an effect beyond the iteration.
    """
    for text in notes_on(subject, model, system, plans, *groups, used_elsewhere=used_elsewhere):
        print(wrapped(f"note: {text}"), file=sys.stderr)


def notes_on(
    subject: Conditions,
    model: ModelSpec,
    system: System,
    plans: Sequence[Plan],
    *groups: PlanLayout | Execution,
    used_elsewhere: Collection[str] = (),
) -> list[str]:
    """The notes of `print_without_effect`; none without a plan, and none of plans that break a rule."""
    if not plans or any(plan.broken_rules(model) for plan in plans):
        return []
    figures = _figures(model, system, plans)
    at_hand = "for this plan" if len(plans) == 1 else "for these plans"
    notes, idle = [], set()
    for option in _stated(groups):
        changed = [option.without(plan) for plan in plans]
        if option.field in used_elsewhere or any(plan.broken_rules(model) for plan in changed):
            continue  # it decides on other things, or the plans need it
        if _same(figures, _figures(model, system, changed)):
            idle.add(option.field)
            reasons = (words for test, words in _REASONS.get(option.field, ()) if all(map(test, plans)))
            notes.append(f"{option.text} changes nothing {next(reasons, at_hand)}")
    notes += [
        text.format(workers=plans[0].options.workers)
        for name, test, text in _ADVICE
        if name not in idle and all(map(test, plans))
    ]
    for text, other_model, other_system in _without_settings(subject, model, system):
        if _same(figures, _figures(other_model, other_system, plans)):
            notes.append(f"--set {shown(text)} changes nothing {at_hand}")
    return notes


def _stated(groups: Sequence[PlanLayout | Execution]) -> Iterator[_Stated]:
    """The options that say how plans run, and that are not as if they were left out."""
    from itertime.spec import DEFAULT_OPTIONS, Plan, PlanOptions, parse_options

    defaults = {field.name: field.default for field in fields(Plan)} | {"recompute": "none"}
    for group in groups:
        for field in fields(group):
            name, value = _PLAN_FIELDS.get(field.name, field.name), getattr(group, field.name)
            if field.name not in _OF_SIZE and value not in (None, defaults.get(name)):
                text = " ".join(option_words(group, [field.name]))
                yield _Stated(text, name, partial(_with, name=name, value=defaults[name]))
        options = parse_options(getattr(group, "options", ""), "--options")
        for field in fields(PlanOptions):
            name, value = field.name, getattr(options, field.name)
            default = getattr(DEFAULT_OPTIONS, name)
            if value != default:
                text = f"--options {replace(DEFAULT_OPTIONS, **{name: value}).text}"
                yield _Stated(text, name, partial(_with_option, name=name, value=default))


def _with(plan: Plan, name: str, value: Any) -> Plan:
    return replace(plan, **{name: value})


def _with_option(plan: Plan, name: str, value: Any) -> Plan:
    return replace(plan, options=replace(plan.options, **{name: value}))


def _without_settings(
    subject: Conditions, model: ModelSpec, system: System
) -> Iterator[tuple[str, ModelSpec, System]]:
    """Each `--set`, with the model and the system without it."""
    from itertime.spec import model_reference

    settings = subject.settings or []
    for place, text in enumerate(settings):
        owner, _, key = text.partition("=")[0].strip().partition(".")
        remaining_settings = [*settings[:place], *settings[place + 1 :]]
        try:
            if key in _FOR_READERS:
                continue
            if owner == "system":
                yield text, model, system_of(subject.system, remaining_settings, subject.framework)
            elif isinstance(subject, Subject):
                reference = model_reference(subject.model)
                changes = subject.seq_len, subject.attention, remaining_settings, subject.freeze
                yield text, changed_model(reference, *changes), system
        except UserError:
            continue  # the others need it


def _figures(model: ModelSpec, system: System, plans: Sequence[Plan]) -> Mapping[str, Array] | None:
    """What is predicted of the plans: seconds and bytes by part, whether they fit, (plans,) each; None where
    they cannot be predicted.
    """
    from itertime.prediction import evaluate
    from itertime.spec import PlanBatch

    try:
        result = evaluate(model, PlanBatch.of(plans), system)
    except UserError:
        return None
    memory = {f"{name}, bytes": size for name, size in result.memory.parts.items()}
    return {**result.breakdown, **memory, "fits": result.memory.fits.astype(float)}


def _same(figures: Mapping[str, Array] | None, alternative: Mapping[str, Array] | None) -> bool:
    """Whether two predictions agree in every part; what cannot be predicted agrees with nothing."""
    import numpy as np

    if figures is None or alternative is None:
        return False
    names = {*figures, *alternative}
    pairs = ((figures.get(name, 0.0), alternative.get(name, 0.0)) for name in names)
    return all(
        np.allclose(value, alternative_value, rtol=_SAME, atol=0.0) for value, alternative_value in pairs
    )


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
