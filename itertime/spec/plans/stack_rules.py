"""The rules of a plan for what a model has beside one stack of layers, for one plan and for many at once."""

from __future__ import annotations

from itertime.arrays import Flags
from itertime.spec.model import ModelSpec

from .option_rules import Degrees, Rules


def broken_stacks(model: ModelSpec, plans: Degrees) -> Rules:
    """Every such rule; an empty list for a model that has nothing of the kind."""
    rules = _shared_weight_rules(model, plans) if model.shares_weights else []
    if model.has_encoder:
        rules += _encoder_rules(model, plans)
    return [*rules, *_frozen_rules(model, plans)] if model.frozen else rules


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
    splits = plans.schedule not in ("1f1b", "gpipe") if isinstance(plans.pp, int) else plans.zero_bubble > 0
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
