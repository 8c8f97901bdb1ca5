"""The rules of a plan for what a model has beside one stack of layers, for one plan and for many at once."""

from __future__ import annotations

import numpy as np

from itertime.arrays import Flags
from itertime.spec.model import ModelSpec

from .option_rules import Degrees, Rules


def broken_stacks(model: ModelSpec, plans: Degrees) -> Rules:
    """Every such rule; an empty list for a model that has nothing of the kind."""
    rules = _shared_weight_rules(model, plans) if model.shares_weights else []
    if model.towers:
        rules += _tower_rules(model, plans)
    if model.has_encoder:
        rules += _encoder_rules(model, plans)
    return [*rules, *_frozen_rules(model, plans)] if model.frozen else rules


def _tower_rules(model: ModelSpec, plans: Degrees) -> Rules:
    """Those of towers, which the first stage runs ahead of its layers."""
    splits, options = _splits_backward(plans), plans.options
    widths = [
        (f"towers.{name}: {key}", value)
        for name, tower in model.towers
        for key, value in (("heads", tower.heads), ("ffn_hidden", tower.ffn_hidden or 4 * tower.hidden))
    ]
    return [
        *(
            (value % plans.tp != 0, f"tp: must divide {key}={value}; take a smaller tp")
            for key, value in widths
        ),
        (splits, "schedule: towers need whole backward passes; take schedule=1f1b or gpipe"),
        (options.optimizer == "muon", "optimizer=muon: is not modelled with towers; take optimizer=adam"),
        (
            options.compression == "powersgd" or options.quantized_weights or bool(options.secondary_shards),
            "towers: are not modelled with powersgd, quantized_weights and secondary_shards; leave them out",
        ),
    ]


def _splits_backward(plans: Degrees) -> bool | Flags:
    if isinstance(plans.pp, int):
        return bool(plans.schedule not in ("1f1b", "gpipe"))
    return np.asarray(plans.zero_bubble > 0)


def _encoder_rules(model: ModelSpec, plans: Degrees) -> Rules:
    """Those of an encoder beside a decoder, whose stages Megatron-LM divides in this way
    (`--pipeline-model-parallel-split-rank`).
    """
    encoders = [form for form, kind in enumerate(model.forms) if kind.encoder]
    order = [form in encoders for form in model.form_order]
    depth, sequence = sum(order), model.encoder_seq_len or model.seq_len
    if plans.chunk_layers:
        ends = [sum(plans.chunk_layers[:chunk]) for chunk in range(len(plans.chunk_layers) + 1)]
        mixed: bool | Flags = (plans.pp > 1) & (depth not in ends)
    else:
        mixed = (plans.pp > 1) & (depth * plans.pp % model.layers != 0)
    splits = _splits_backward(plans)
    return [
        (plans.cp > 1, "cp: is not modelled for an encoder beside a decoder; take cp=1"),
        (
            (plans.interleave > 1) | splits,
            "interleave, schedule: an encoder beside a decoder needs interleave=1 and schedule=1f1b or gpipe",
        ),
        (
            mixed,
            f"pp: a stage must have layers of the encoder or of the decoder alone, the first {depth} or the "
            "others; list the layers of stages, as in split=12,12,12,12, or take pp=1",
        ),
        (
            plans.sequence_parallel & (sequence % plans.tp != 0),
            f"tp: must divide encoder_seq_len={sequence} with sequence_parallel",
        ),
    ]


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
