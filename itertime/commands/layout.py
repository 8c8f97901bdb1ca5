"""The options that lay one plan out, and the plan that they state.

`chosen_plan` goes from options to the plan, and takes the best of what they leave open. `predict_command`
goes back, from a plan to the command line that states it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

from itertime.errors import UserError

from .documents import wrapped
from .options import (
    DEGREES,
    EXECUTION,
    MEMORY,
    MEMORY_HEADROOM,
    Execution,
    Fp32Gradients,
    Subject,
    option,
)

if TYPE_CHECKING:
    from itertime.planning import RankedPlan, SearchResult, Space
    from itertime.spec import ModelSpec, Plan, System


def _degree(name: str, text: str) -> Any:
    return option(name, f"{text}; default: 1, or with --gpus the best.", DEGREES, min=1)


def _open(name: str, text: str, panel: str, **bounds: Any) -> Any:
    return option(name, f"{text}; default: the best.", panel, **bounds)


@dataclass(frozen=True, kw_only=True)
class PlanLayout:
    """The options that lay one plan out: degrees of parallelism, batches, and what each GPU keeps.

    None leaves a choice open. Degrees are open where `gpus` are stated, and 1 elsewhere.
    """

    gpus: Annotated[
        int | None,
        option("--gpus", "GPUs that the degrees use together; those not stated are chosen.", DEGREES, min=1),
    ] = None
    tp: Annotated[int | None, _degree("--tp", "Tensor parallelism")] = None
    pp: Annotated[int | None, _degree("--pp", "Pipeline stages")] = None
    dp: Annotated[int | None, _degree("--dp", "Data parallelism")] = None
    cp: Annotated[int | None, _degree("--cp", "Context parallelism: ranks that share a sequence")] = None
    ep: Annotated[int | None, _degree("--ep", "Expert parallelism: ranks that share the experts")] = None
    micro_batch: Annotated[
        int | None, _open("--micro-batch", "Sequences per micro-batch", DEGREES, min=1)
    ] = None
    interleave: Annotated[int | None, _open("--interleave", "Model chunks per stage", DEGREES, min=1)] = None
    schedule: Annotated[str, option("--schedule", "1f1b, gpipe, zb-h1, zb-v or dualpipe.", DEGREES)] = "1f1b"
    split: Annotated[
        str | None,
        option(
            "--split",
            "Layers per stage: even; balanced, compute, ends or remainder where pp does not divide them; a "
            "list like 7,8,9,8, or Megatron's layout string; default: even, where --pp is open also ends.",
            DEGREES,
        ),
    ] = None
    sequence_parallel: Annotated[
        bool | None,
        _open("--sequence-parallel/--no-sequence-parallel", "Split norms and dropout over tp", DEGREES),
    ] = None
    cp_exchange: Annotated[
        str, option("--cp-exchange", "How keys and values are exchanged: ring, gather or ulysses.", DEGREES)
    ] = "ring"
    rank_order: Annotated[
        str, option("--rank-order", "Order in which ranks are numbered: tp-cp-dp-pp or tp-cp-pp-dp.", DEGREES)
    ] = "tp-cp-dp-pp"
    recompute: Annotated[
        str | None,
        _open(
            "--recompute", "full, early-stop, selective, elementwise, none, or modules: moe_act,...", MEMORY
        ),
    ] = None
    recompute_fraction: Annotated[
        float, option("--recompute-fraction", "Share of the layers that --recompute applies to.", MEMORY)
    ] = 1.0
    zero: Annotated[int | None, _open("--zero", "ZeRO stage", MEMORY, min=0, max=3)] = None
    zero_group: Annotated[
        int | None, option("--zero-group", "Ranks per ZeRO group; default: all of dp.", MEMORY, min=1)
    ] = None
    offload_layers: Annotated[
        int,
        option("--offload-layers", "Layers of a stage with activations in the CPU's memory.", MEMORY, min=0),
    ] = 0
    offload_optimizer: Annotated[
        bool, option("--offload-optimizer", "Keep and run the optimizer on the CPU.", MEMORY)
    ] = False
    fp32_gradients: Fp32Gradients = False
    prefetch: Annotated[
        bool, option("--prefetch/--no-prefetch", "ZeRO-3 gathers the next layer's weights ahead.", EXECUTION)
    ] = True
    bucket_mb: Annotated[
        int | None,
        option("--bucket-mb", "Exchange gradients in buckets of this size, in MB.", EXECUTION, min=1),
    ] = None

    @classmethod
    def of(cls, plan: Plan) -> PlanLayout:
        """The layout that states a plan. Choices of which the others leave a single one stay open."""
        values = vars(plan)
        options = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        options |= {name: None for name in _DEGREES if values[name] == 1}
        alone = {
            "interleave": plan.interleave == 1 and (plan.pp == 1 or plan.schedule not in ("1f1b", "zb-v")),
            "sequence_parallel": plan.tp == 1 and not plan.sequence_parallel,
        }
        options |= {name: None for name, is_alone in alone.items() if is_alone}
        ranks = plan.dp * plan.cp
        return cls(
            **options | {"split": None if plan.split == "even" else plan.split},
            zero=None if ranks == 1 and plan.zero_stage == 0 else plan.zero_stage,
            bucket_mb=None if plan.bucket_bytes is None else plan.bucket_bytes // _MB,
        )

    @property
    def open(self) -> tuple[str, ...]:
        """The names of the choices that are left open."""
        pipeline = ("split",) if self.pp is None else ()
        names = (*_OPEN, *(() if self.gpus is None else (*_DEGREES, *pipeline)))
        return tuple(name for name in names if getattr(self, name) is None)

    def filled(self, values: Mapping[str, Any]) -> PlanLayout:
        """The same with `values` for choices that are not stated, and 1 for degrees."""
        unstated = {**dict.fromkeys(_DEGREES, 1), "split": "even", **values}
        missing = {name: value for name, value in unstated.items() if getattr(self, name) is None}
        return replace(self, **missing)


_DEGREES = ("tp", "pp", "dp", "cp", "ep")
_OPEN = ("micro_batch", "interleave", "sequence_parallel", "recompute", "zero")
"""Choices that a search makes where they are not stated, whether or not it chooses the degrees."""
_CONSTANTS = (
    *("schedule", "split", "cp_exchange", "rank_order", "zero_group", "recompute_fraction"),
    *("offload_layers", "fp32_gradients", "prefetch"),
)
"""Options that hold for all plans of a search, with the names of a space's fields."""
_MB = 1_000_000


class ChosenPlan(NamedTuple):
    """The plan of some options: `layout` states all of it. `picks`: the values of choices that were left
    open, by parameter, as those of the fastest of `rivals` plans that fit; of none if `rivals` is 0.
    `declined`: the interleaving that would be faster by less than `_LEAST_GAIN`, and by how much.
    """

    plan: Plan
    layout: PlanLayout
    picks: dict[str, Any]
    rivals: int
    declined: tuple[int, float] | None = None

    @property
    def note(self) -> str:
        """What was left open and how it was chosen; "" where there was nothing to choose."""
        from itertime.planning import SPACE_OF_RULES

        layout = PlanLayout.of(self.plan)
        values = " ".join(option_words(layout, self.picks))
        if not values:
            return ""
        if not self.rivals:
            return f"not stated: {values}; no other choice fits either"
        space = SPACE_OF_RULES[self.plan.rules]
        declined = ""
        if self.declined:
            chunks, gain = self.declined
            declined = f"; --interleave {chunks} would be {gain:.1%} faster and take more memory"
        return (
            f"not stated, so as in the fastest of {self.rivals:,} plans of space {space} that fit: "
            f"{values}{declined}"
        )

    def say(self) -> None:
        """Print what was left open and how it was chosen."""
        if self.note:
            print(wrapped(self.note))

    def replay(self, subject: Subject, memory_headroom: float) -> dict[str, Any]:
        """What `--json` says of the choice, and the command that states the plan."""
        return {"chosen": self.picks, "command": predict_command(subject, self.plan, memory_headroom)}


def chosen_plan(
    subject: Subject,
    layout: PlanLayout,
    execution: Execution,
    model: ModelSpec,
    system: System,
    memory_headroom: float = MEMORY_HEADROOM,
) -> ChosenPlan:
    """The plan that options state, and the best of what they leave open, as `search` finds it.

    Interleaving that gains less than `_LEAST_GAIN` is left out: no run would have asked for it, and it keeps
    more activations. Where none of these fits, the open choices are those of a plan that saves memory in the
    plainest way: full recomputation, micro-batches of 1. UserError for a plan that cannot train the model,
    and if the degrees are open and none fit.
    """
    from itertime.planning import search

    fallback = layout.filled(
        {
            "micro_batch": 1,
            "interleave": 1,
            "recompute": "full",
            "zero": 0,
            "sequence_parallel": model.is_mixture and (layout.tp or 1) > 1,
        }
    )
    plan = _plan_of(subject, fallback, execution)
    if not layout.open:
        return ChosenPlan(plan, fallback, {}, 1)
    gpus = plan.gpus if layout.gpus is None else layout.gpus
    try:
        result = search(
            model,
            subject.global_batch,
            system,
            gpus,
            space=_space(layout, execution),
            top=1,
            memory_headroom=memory_headroom,
        )
    except UserError:
        if layout.gpus is None:
            plan.check(model)  # which names all rules that the stated options break
        raise
    if result.plans:
        fastest, declined = result.plans[0], None
        best_plan = fastest.plan
        if layout.interleave is None and best_plan.interleave > 1:
            best_plan, declined = _worth_interleaving(model, fastest, system, memory_headroom)
        best = PlanLayout.of(best_plan).filled(_ALONE)
        picks = {name: getattr(best, name) for name in layout.open}
        layout = replace(layout.filled({}), **picks)
        picks = picks if result.evaluated > 1 else {}
        return ChosenPlan(_plan_of(subject, layout, execution), layout, picks, result.feasible, declined)
    if layout.gpus is not None:
        raise UserError(f"--gpus={gpus}: {_no_plan(result)}")
    names = layout.open if result.evaluated > 1 else ()
    return ChosenPlan(plan, fallback, {name: getattr(fallback, name) for name in names}, 0)


def _worth_interleaving(
    model: ModelSpec, fastest: RankedPlan, system: System, memory_headroom: float
) -> tuple[Plan, tuple[int, float] | None]:
    """The fastest plan, or the same without interleaving where that fits and takes less than `_LEAST_GAIN`
    longer; then what was declined.
    """
    from itertime.prediction import predict

    plain = replace(fastest.plan, interleave=1)
    if plain.broken_rules(model):
        return fastest.plan, None
    prediction = predict(model, plain, system, memory_headroom=memory_headroom)
    gain = 1 - fastest.prediction.iteration_s / prediction.iteration_s
    if gain >= _LEAST_GAIN or not prediction.fits:
        return fastest.plan, None
    return plain, (fastest.plan.interleave, gain)


_LEAST_GAIN = 0.005
"""Of an iteration: a tenth of what predictions of such plans are off by."""
_ALONE = {"interleave": 1, "sequence_parallel": False, "zero": 0}
"""What is left where a choice has a single value."""


def _no_plan(result: SearchResult) -> str:
    """Why no plan has the stated options, and what to try."""
    if result.evaluated:
        return "no plan with the stated options fits in memory; try more GPUs"
    if result.in_the_way:
        return f"no plan can have the options, most because of {result.in_the_way}"
    return "no plan with the stated options keeps the rules; try another number, or state less"


def _plan_of(subject: Subject, layout: PlanLayout, execution: Execution) -> Plan:
    """The plan of a layout that has no open choices."""
    from itertime.spec import Plan, parse_options

    values = vars(layout) | vars(execution)
    same_name = {field.name: values[field.name] for field in fields(Plan) if field.name in values}
    same_name["options"] = parse_options(execution.options, "--options")
    return Plan(
        **same_name,
        global_batch=subject.global_batch,
        zero_stage=layout.zero or 0,
        bucket_bytes=None if layout.bucket_mb is None else layout.bucket_mb * _MB,
    )


def _space(layout: PlanLayout, execution: Execution) -> Space:
    """The default space of searches, restricted to what the options state."""
    from itertime.planning import Space
    from itertime.spec import parse_options

    choices: dict[str, Any] = {name: getattr(layout, name) for name in (*_DEGREES, *_OPEN)}
    if layout.gpus is None:
        choices |= {name: choices[name] or 1 for name in _DEGREES}
        if choices["tp"] == 1:  # what is without effect is no plan of a space
            choices["sequence_parallel"] = None
        if choices["dp"] * choices["cp"] == 1:
            choices["zero"] = None
    choices["zero_stage"] = choices.pop("zero")
    values: dict[str, Any] = {name: (value,) for name, value in choices.items() if value is not None}
    values |= vars(execution) | {"options": parse_options(execution.options, "--options")}
    values |= {name: getattr(layout, name) for name in _CONSTANTS}
    values["offload_optimizer"] = (layout.offload_optimizer,)
    values["bucket_bytes"] = None if layout.bucket_mb is None else layout.bucket_mb * _MB
    return Space(**values, ends=layout.gpus is not None and layout.pp is None)


def predict_command(subject: Subject, plan: Plan, memory_headroom: float = MEMORY_HEADROOM) -> str:
    """The command line that predicts exactly this plan, with the options that are not as by default.

    >>> from itertime.spec import Plan
    >>> plan = Plan(tp=1, pp=1, dp=8, micro_batch=1, global_batch=64, recompute="none")
    >>> words = predict_command(Subject(model="my own.yaml", system="dgx-h100", global_batch=64), plan)
    >>> words.startswith("itertime predict --model 'my own.yaml' --system dgx-h100 --global-batch 64 --dp 8")
    True
    """
    values = vars(plan)
    execution = {field.name: values[field.name] for field in fields(Execution)}
    stated_subject = Subject(**{field.name: getattr(subject, field.name) for field in fields(Subject)})
    words = [
        *option_words(stated_subject),
        *option_words(PlanLayout.of(plan)),
        *option_words(Execution(**execution | {"options": plan.options.text})),
    ]
    if memory_headroom != MEMORY_HEADROOM:
        words += ["--memory-headroom", repr(memory_headroom).removesuffix(".0")]
    return shlex.join(["itertime", "predict", *words])


def option_words(group: Any, names: Collection[str] | None = None) -> list[str]:
    """The options of a group that are not as by default, with their values; if given, of `names` alone.

    >>> option_words(Execution(ep_overlap=True, dispatcher="deepep"))
    ['--ep-overlap', '--dispatcher', 'deepep']
    """
    words = []
    hints = _field_types(group.__class__)
    for field in fields(group):
        value = getattr(group, field.name)
        if value is None or value == field.default or (names is not None and field.name not in names):
            continue
        name, _, negative = hints[field.name].__metadata__[0].default.partition("/")
        if isinstance(value, bool):
            words.append(name if value else negative)
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for text in map(str, values) for word in _option_value(name, text)]
    return words


@cache
def _field_types(group: type) -> dict[str, Any]:
    """The annotations of a group's fields, read once: a search prints the options of ten plans."""
    return get_type_hints(group, include_extras=True)


def _option_value(name: str, text: str) -> list[str]:
    """An option and its value; as one word where the value would look like an option."""
    return [f"{name}={text}"] if text.startswith("-") else [name, text]
