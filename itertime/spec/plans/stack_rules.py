"""The rules of a plan for what a model has beside one stack of layers, for one plan and for many at once."""

from __future__ import annotations

from itertime.spec.model import ModelSpec

from .option_rules import Degrees, Rules


def broken_stacks(model: ModelSpec, plans: Degrees) -> Rules:
    """Every such rule; an empty list for a model that has nothing of the kind."""
    rules = _shared_weight_rules(model, plans) if model.shares_weights else []
    return [*rules, *_frozen_rules(model, plans)] if model.frozen else rules


def _frozen_rules(model: ModelSpec, plans: Degrees) -> Rules:
    frozen, options = f"frozen={','.join(model.frozen)}", plans.options
    return [
        (options.optimizer == "muon", f"{frozen}: is not modelled with optimizer=muon; take optimizer=adam"),
        (
            options.compression == "powersgd",
            f"{frozen}: is not modelled with compression=powersgd; take compression=topk",
        ),
    ]


def _shared_weight_rules(model: ModelSpec, plans: Degrees) -> Rules:
    shards = max(plans.options.weight_shards or 1, plans.options.gradient_shards or 1)
    return [
        (
            plans.pp > 1,
            "shared_weights=true: layers with the same weights lie on one stage; take pp=1",
        ),
        (
            (plans.zero_stage >= 2) | (shards > 1),
            "shared_weights=true: gradients are whole only after the last of these layers; take zero_stage=0 "
            "or 1 without shards of weights and gradients",
        ),
        (
            plans.options.compression == "powersgd",
            "shared_weights=true: is not modelled with compression=powersgd; take compression=topk",
        ),
    ]
