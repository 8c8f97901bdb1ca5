"""What is stated counts: each key of a system, a framework and a model changes some prediction, or is refused
with the key that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from itertime import ModelSpec, Plan, System, evaluate, load_model, load_system
from itertime.errors import UserError
from itertime.io import Key, construct, keys_of
from itertime.spec import (
    Framework,
    PlanBatch,
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


def plan(**values: Any) -> Plan:
    options = parse_options(values.pop("options", ""))
    small = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": 2, "global_batch": 128, "recompute": "none"}
    return Plan(**small | values, options=options)


PLANS = {
    "llama3-8b": [
        plan(tp=2, dp=64, micro_batch=1, zero_stage=1, sequence_parallel=True),
        plan(tp=2, pp=4, dp=8, interleave=2, recompute="full", tp_overlap=True),
        plan(tp=8, cp=4, dp=2, micro_batch=1, offload_layers=4, offload_optimizer=True),
        plan(tp=4, dp=4, precision="fp8", sequence_parallel=True, fp32_gradients=True),
        plan(dp=64, zero_stage=3, grad_overlap=True),
        plan(dp=64, zero_stage=1, grad_overlap=True),
        plan(dp=64, options="workers=8,local_steps=16,outer=diloco"),
    ],
    "deepseek-v2-lite": [
        plan(dp=128, micro_batch=1, ep=64, dispatcher="deepep"),
        plan(tp=2, dp=32, ep=16, sequence_parallel=True, precision="fp8", grad_overlap=True),
    ],
    "bert-large-wikipedia": [
        plan(dp=32, zero_stage=1, options="batching=unpadded,optimizer=lamb"),
        plan(tp=2, dp=16),
    ],
    "llama2-70b-lora": [plan(tp=4, dp=8, sequence_parallel=True)],
    "gemma2-9b": [plan(tp=4, dp=8, sequence_parallel=True)],
    "gpt3-6.7b": [plan(dp=32, micro_batch=4), plan(tp=4, dp=8)],
}
"""Plans that together use every feature, in a node and across nodes."""
WIDE = ["nic_gbps=40000", "gpu_nic_bytes_per_s=1e12", "gpus_per_node=4"]
BESIDE = {
    "cpu_link_bytes_per_s": [*WIDE, "nics_per_node=1"],
    "nics_per_node": WIDE,
    "nodes_per_leaf": ["nodes_per_leaf=1", "leaf_oversubscription=4"],
    "leaf_oversubscription": ["nodes_per_leaf=1"],
    "nodes_per_spine": ["nodes_per_spine=1", "spine_oversubscription=4"],
    "spine_oversubscription": ["nodes_per_spine=1"],
    "site_link_latency_s": ["site_link_bytes_per_s=1e9"],
}
"""Keys of a system that count beside others."""
ELSEWHERE = {"usd_per_gpu_hour", "site.measured_over_predicted"}
"""Keys of dollars and of intervals, which other tests change."""
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
        if key.name in ELSEWHERE:
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
        changes = [*BESIDE.get(key, []), *(f"{key}={value!r}" for value in values)]
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
