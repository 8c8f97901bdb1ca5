"""Questions to the predictor and to the search, drawn over models, systems and plans by a fixed seed."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from itertime.errors import UserError
from itertime.planning import VTRAIN, Space
from itertime.spec import (
    ModelSpec,
    Plan,
    list_models,
    list_systems,
    load_model,
    load_system,
    parse_options,
    profile_of,
)
from tests.tables import TABLES

__all__ = ["drawn_plan", "prediction_queries", "search_queries"]

PREDICTIONS, SEARCHES = 2500, 300
OPTIONS = TABLES["options of drawn plans"]
BATCHES = TABLES["options of drawn plans of a model with lengths"]
WITH_LENGTHS = "bert-large-wikipedia"

Query = tuple[str, str, Plan]
Search = tuple[str, str, int, int, str, Space]


LATER = {"moonlight-16b"}
"""Models shipped since the queries were drawn: with them, every query would be another."""


def _drawn_models() -> list[str]:
    return [name for name in list_models() if name not in LATER]


def _drawn_systems() -> list[str]:
    """Likewise without the systems shipped since: those by data sheets, and other nodes of the H100's die."""
    later = {"dgx-h800", "gh200", "h20"}
    names = [name for name in list_systems() if name not in later]
    return [name for name in names if not profile_of(load_system(name)).chip_class]


def prediction_queries() -> Iterator[tuple[str, Query]]:
    """Over 2,000 predictions that are answered, and some whose answer is the rule that the plan breaks: a
    label, and the model, system and plan.
    """
    dice = random.Random(20261128)
    models, systems = [*_drawn_models(), *[WITH_LENGTHS] * 8], _drawn_systems()
    for number in range(PREDICTIONS):
        model, system = dice.choice(models), dice.choice(systems)
        plan = _plan(dice, load_model(model), system)
        yield f"{number} {model} {system}", (model, system, plan)


def _plan(dice: random.Random, model: ModelSpec, system: str) -> Plan:
    while True:
        try:
            return drawn_plan(dice, model, system)
        except UserError:  # a plan that no model could have
            continue


def drawn_plan(dice: random.Random, model: ModelSpec, system: str) -> Plan:
    """A plan that keeps the most frequent rules."""
    mixture, ampere = model.experts > 1, system.startswith(("a", "d", "leonardo", "v100"))
    tp = dice.choice([n for n in (1, 1, 2, 4, 8) if model.heads % n == 0 and model.kv_heads % n == 0])
    pp = dice.choice([n for n in (1, 1, 1, 2, 4, 8) if model.layers % n == 0])
    micro_batch, dp = dice.choice((1, 1, 2, 4)), dice.choice((1, 2, 4, 8, 16, 32))
    values: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "micro_batch": micro_batch,
        "global_batch": micro_batch * dp * dice.choice((1, 2, 4, 8, 16)) * dice.choice((1, pp)),
        "recompute": dice.choice(("none", "selective", "full", "full", "early-stop", "elementwise")),
        "zero_stage": dice.choice((0, 0, 1, 1, 2, 3) if pp == 1 else (0, 1)),
        "grad_overlap": dice.random() < 0.4,
        "sequence_parallel": tp > 1 and (mixture or dice.random() < 0.5),
        "ep": dice.choice([n for n in (1, 2, 4, 8) if dp % n == 0]) if mixture else 1,
    }
    values["options"] = parse_options(_options(dice, model, values))
    rare: dict[str, tuple[bool, Callable[[], Any]]] = {
        "interleave": (pp > 1, lambda: 2),
        "schedule": (True, lambda: "gpipe"),
        "split": (pp > 1, lambda: dice.choice(("balanced", "compute", "ends", "remainder"))),
        "cp": (True, lambda: 2),
        "etp": (mixture, lambda: 1),
        "precision": (
            True,
            lambda: "tf32" if ampere else dice.choice(("fp8", "fp8_block", "mxfp8", "nvfp4")),
        ),
        "cuda_graphs": (True, lambda: dice.choice(("layers", "full"))),
        "dispatcher": (mixture and not ampere, lambda: dice.choice(("deepep", "hybridep"))),
        "ep_overlap": (mixture, lambda: True),
        "tp_overlap": (tp > 1, lambda: dice.random() < 0.5),
        "rank_order": (pp > 1, lambda: "tp-cp-pp-dp"),
        "cp_exchange": (True, lambda: "gather"),
        "recompute_fraction": (True, lambda: 0.5),
        "offload_layers": (True, lambda: 1),
        "offload_optimizer": (True, lambda: True),
        "bucket_bytes": (True, lambda: 40_000_000),
        "prefetch": (True, lambda: False),
        "fp32_gradients": (True, lambda: True),
        "zero_group": (True, lambda: 2),
    }
    for name, (possible, value) in rare.items():
        if possible and dice.random() < 0.08:
            values[name] = value()
    return Plan(**values)


def _options(dice: random.Random, model: ModelSpec, values: dict[str, Any]) -> str:
    if model.lengths:
        return dice.choice(BATCHES if values["pp"] == 1 else BATCHES[-2:])
    if values["zero_stage"] >= 2:
        return dice.choice(
            ("", "quantized_weights=true") if values["zero_stage"] == 3 else ("", "optimizer=lamb")
        )
    return dice.choice(OPTIONS if values["zero_stage"] == 0 else OPTIONS[:7])


def search_queries() -> Iterator[tuple[str, Search]]:
    """300 searches: a label, then model, system, GPUs, global batch, objective and space."""
    dice = random.Random(20261129)
    models = [name for name in _drawn_models() if not name.startswith(("palm-540b", "megatron-1008b"))]
    systems = _drawn_systems()
    spaces = {
        "usual": VTRAIN,
        "whole": replace(
            VTRAIN,
            interleave=(1, 2),
            zero_stage=(0, 1, 3),
            sequence_parallel=(False, True),
            grad_overlap=True,
            cp=(1, 2),
            micro_batch=(1, 2, 4),
        ),
        "few": replace(VTRAIN, micro_batch=(1, 2), recompute=("full",), zero_stage=(1,)),
    }
    for number in range(SEARCHES):
        model, system = dice.choice(models), dice.choice(systems)
        gpus, batch = dice.choice((8, 16, 32, 64, 128)), dice.choice((64, 128, 256, 512))
        space = dice.choice(sorted(spaces))
        objective = dice.choice(("time", "time", "time", "cost"))
        yield (
            f"{number} {model} {system} {gpus} {space}",
            (model, system, gpus, batch, objective, spaces[space]),
        )
