"""What is stated counts: each key of a system, a framework and a model changes some prediction, or is refused
with the key that does; each option does, and a note says where it does not.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from itertime import ModelSpec, Plan, System, evaluate, load_model, load_system, predict
from itertime.commands.idle_options import notes_on
from itertime.commands.layout import PlanLayout, option_words
from itertime.commands.options import Conditions, Execution
from itertime.errors import UserError
from itertime.io import Key, construct, keys_of
from itertime.spec import (
    DEFAULT_OPTIONS,
    Framework,
    PlanBatch,
    PlanOptions,
    approximations_of,
    list_frameworks,
    list_systems,
    load_framework,
    model_of,
    model_reference,
    parse_options,
    system_of,
    system_reference,
)
from tests.effort import first

TABLES = yaml.safe_load(Path(__file__).with_name("influence.yaml").read_text(encoding="utf-8"))


def plan(values: dict[str, Any]) -> Plan:
    small = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": 2, "global_batch": 128, "recompute": "none"}
    return Plan(**small | values | {"options": parse_options(values.get("options", ""))})


PLANS = {name: [plan(values) for values in rows] for name, rows in TABLES["plans"].items()}
CASES = [(load_model(name), each) for name, plans in PLANS.items() for each in plans]
H100 = load_system("dgx-h100")


@cache
def said(model: ModelSpec, plan: Plan, system: System, framework: Framework | None = None) -> Any:
    """What the prediction of a plan says; of one that is refused, why; None for a plan of other models."""
    if plan.broken_rules(model):
        return None
    try:
        found = evaluate(model, PlanBatch.of([plan]), system, framework=framework)
    except UserError as error:
        return str(error)
    figures = [found.iteration_s, found.memory.total, found.memory.fits, found.mfu, *found.breakdown.values()]
    return np.concatenate(figures).tolist(), approximations_of(model)


def neighbours(key: Key, value: Any) -> list[Any]:
    """Other values of a key than its own."""
    if isinstance(value, bool):
        return [not value]
    if "whole" in key.values:
        sizes = (1, 64, 512) if not value else (2 * value, 3 * value, 4 * value, -(-value // 2), 1, 1000, 64)
        return [size for size in sizes if size != value]
    if not value:
        return [1, 0.01, 1e11, 200]
    return [value / 1000, value / 2, value * 1000, *([1.0] if value < 1 else [])]


def assert_each_counts(kind: type, make: Callable[..., Any], say: Callable[[Any], Iterator[Any]]) -> None:
    """Of each number and switch of a kind, some value changes what is said, or all that are in its bounds are
    refused with the name of another key. `make`: with another value of a key, or as it is. `say`: what
    predictions say, plan by plan.
    """
    keys = [key for key in keys_of(kind) if "number" in key.values or key.values == "true or false"]
    for key in keys:
        if key.name in TABLES["elsewhere"]:
            continue
        base, refusals = make(key.name), []
        for value in neighbours(key, attrgetter(key.name)(base)):
            try:
                pairs = zip(say(make(key.name, value)), say(base), strict=True)
                if any(new not in (None, old) for new, old in pairs):
                    break
                refusals.append("ignored")
            except UserError as error:
                refusals += [] if "input should be" in str(error) else [str(error)]
        else:
            others = [other.name for other in keys_of(kind) if other != key]
            silent = [text for text in refusals if not any(name in text for name in others)]
            assert (key.name, bool(refusals), silent) == (key.name, True, [])


@pytest.mark.parametrize("name", first(2, ["gb200-nvl72", "a100-pcie", *list_systems()]))
def test_every_number_of_a_system_counts(name: str) -> None:
    def make(key: str, *values: Any) -> System:
        changes = [*TABLES["beside"].get(key, []), *(f"{key}={value!r}" for value in values)]
        return system_of(system_reference(name).changed(changes, ""))

    assert_each_counts(System, make, lambda system: (said(*case, system) for case in CASES))


@pytest.mark.parametrize("name", first(1, list_frameworks()))
def test_every_number_and_switch_of_a_framework_counts(name: str) -> None:
    base = replace(load_framework(name), tp_exposed=0.5)

    def make(key: str, *values: Any) -> Framework:
        return construct(Framework, vars(base) | dict.fromkeys([key], *values), "x") if values else base

    assert_each_counts(Framework, make, lambda framework: (said(*case, H100, framework) for case in CASES))


@pytest.mark.parametrize("name", PLANS)
def test_every_number_and_switch_of_a_model_counts(name: str) -> None:
    def make(key: str, *values: Any) -> ModelSpec:
        return model_of(model_reference(name).changed([f"{key}={value!r}".lower() for value in values], ""))

    assert_each_counts(ModelSpec, make, lambda model: (said(model, plan, H100) for plan in PLANS[name]))


def stated_options() -> Iterator[tuple[str, ModelSpec, Plan, Plan, PlanLayout | Execution]]:
    """For each base and option: the option's words, the model, a plan with and one without it, the option."""
    for name, values in TABLES["bases"]:
        model, base = load_model(name), plan(values)
        for option, value in TABLES["options"].items():
            kind = PlanLayout if option in PlanLayout.__dataclass_fields__ else Execution
            field = {"zero": "zero_stage", "bucket_mb": "bucket_bytes"}.get(option, option)
            default = "none" if option == "recompute" else Plan.__dataclass_fields__[field].default
            with_it = replace(base, **{field: 25_000_000 if option == "bucket_mb" else value})
            group = kind(**{option: value})
            yield " ".join(option_words(group)), model, with_it, replace(with_it, **{field: default}), group
        for text in TABLES["keys_of_options"]:
            key = text.partition("=")[0]
            values = (getattr(options, key) for options in (parse_options(text), DEFAULT_OPTIONS))
            pair = (replace(base, options=replace(base.options, **{key: value})) for value in values)
            yield f"--options {text}", model, *pair, Execution(options=text)


@cache
def parts_of(model: ModelSpec, plan: Plan) -> list[dict[str, float]] | None:
    """Seconds and bytes of a prediction by part, to twelve digits; None for a plan of other models."""
    if plan.broken_rules(model):
        return None
    found = predict(model, plan, H100)
    both = found.breakdown, found.memory_parts
    return [{name: float(f"{value:.11e}") for name, value in parts.items() if value} for parts in both]


def test_an_option_counts_or_a_note_names_it() -> None:
    """Each option changes the prediction of some plan. Where it does not, a note says so, and nowhere else:
    that is looked at in every third case.
    """
    effects: dict[str, bool] = {}
    subject = Conditions(system="dgx-h100", global_batch=128)
    for place, (words, model, with_it, without, group) in enumerate(stated_options()):
        effects.setdefault(words, False)
        if (parts := parts_of(model, with_it)) is None:
            continue
        idle = parts == parts_of(model, without)
        effects[words] |= not idle
        if idle or place % 3 == 0:
            notes = notes_on(subject, model, H100, [with_it], group)
            assert any(note.startswith(f"{words} changes nothing") for note in notes) == idle, with_it.label
    assert {words: counts for words, counts in effects.items() if not counts} == {}
    stated = {*TABLES["options"], *(text.partition("=")[0] for text in TABLES["keys_of_options"]), "options"}
    names = {field.name for kind in (PlanLayout, Execution, PlanOptions) for field in fields(kind)}
    assert names - stated == {"gpus", "tp", "pp", "dp", "cp", "ep", "micro_batch"}
