"""The rules that a plan's options must keep, for one plan and for many at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from itertime.arrays import Flags
from itertime.spec.model import ModelSpec

from .options import DEFAULT_OPTIONS, IN_32_BIT, ONE_BIT, PlanOptions

Rules = list[tuple[bool | Flags, str]]
"""For every rule: whether it is broken, an array for a `PlanBatch`; and the rule with its remedy as text."""
Degrees = Any
"""A `Plan`, whose fields are numbers, or a `PlanBatch`, whose fields of the same names are arrays."""
STRATA = 4
"""Bins of lengths, of equal width, from each of which a rank takes samples under a stratified balance."""
_ADAMS = ("adam", "adamw", "fused-adam", "torch-adamw")
_WITH_MOMENTS = (*_ADAMS, "lamb")
_WITH_STATES = ("adam", "adamw", "fused-adam", "sgd", "muon")
_OF_WORKERS = ("none", "fp16", "fp8", "int8", "int4")
_SHARDS = ("weight_shards", "gradient_shards", "optimizer_shards")
_STATES_OF = {"onebit-adam": _ADAMS, "zeroone-adam": _ADAMS, "onebit-lamb": ("lamb",)}


def broken_options(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    """Every rule of a plan's options; an empty list for the default options, which break none."""
    if options == DEFAULT_OPTIONS:
        return []
    return [
        *_batch_rules(options, model, plans),
        *_optimizer_rules(options, plans),
        *_state_rules(options, plans),
        *_muon_rules(options, model, plans),
        *_compression_rules(options, model, plans),
        *_compression_keys(options, plans),
        *_precision_rules(options, model, plans),
        *_weight_rules(options, plans),
        *_worker_rules(options, model, plans),
        *_shard_rules(options, plans),
    ]


def _batch_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    batching, balance = options.batching, options.balance
    uneven = batching in ("longest", "unpadded")
    return [
        (
            batching != "padded" and not model.lengths,
            f"batching={batching}: needs the lengths of the samples; set the model's key lengths",
        ),
        (
            batching in ("unpadded", "packed") and model.attention == "core",
            f"batching={batching}: needs attention of samples of different lengths in one kernel; set the "
            "model's attention=flash, or take batching=padded or longest",
        ),
        (
            balance.startswith("stratified") & (plans.global_batch // plans.dp < STRATA),
            f"balance={balance}: needs at least {STRATA} samples on a rank, one of each stratum; enlarge "
            "global_batch or take fewer ranks",
        ),
        (uneven & (plans.pp > 1), f"batching={batching}: needs pp=1; take batching=packed or padded"),
        (
            (batching != "padded") & (plans.cp > 1),
            f"batching={batching}: needs cp=1; take batching=padded",
        ),
        (
            balance != "drawn" and not uneven,
            f"balance={balance}: needs batching=unpadded or longest, where ranks differ; leave it out",
        ),
    ]


def _optimizer_rules(options: PlanOptions, plans: Degrees) -> Rules:
    clipping, optimizer, shards = options.clipping, options.optimizer, options.gradient_shards
    scattered = plans.zero_stage >= 2 if shards is None else shards > 1
    return [
        (
            (clipping in ("before", "bucket")) & scattered,
            f"clipping={clipping}: needs a rank's whole gradients, which ZeRO-2 scatters with every "
            "micro-batch; take zero_stage=0 or 1 (gradient_shards=1), or clipping=after",
        ),
        (
            (optimizer not in _ADAMS) & plans.offload_optimizer,
            f"optimizer={optimizer}: runs on the GPU only; take offload_optimizer=false, or an Adam",
        ),
    ]


def _state_rules(options: PlanOptions, plans: Degrees) -> Rules:
    """Rules of the precision of the optimizer's states."""
    moments, optimizer = options.moments, options.optimizer
    changes = {
        f"moments={moments}": moments != DEFAULT_OPTIONS.moments,
        "master_weights=false": not options.master_weights,
    }
    single = isinstance(plans.precision, str)
    in_32_bit = plans.precision in IN_32_BIT if single else plans.in_32_bit
    precision = plans.precision if single else IN_32_BIT[0]
    return [
        *(
            rule
            for text, changed in changes.items()
            for rule in (
                (
                    changed and optimizer not in _WITH_STATES,
                    f"{text}: is not modelled for optimizer={optimizer}; take {' or '.join(_WITH_STATES)}",
                ),
                (
                    changed & plans.offload_optimizer,
                    f"{text}: the CPU keeps states in 32 bit; leave it out, or offload_optimizer",
                ),
                (
                    changed and options.compression in ONE_BIT,
                    f"{text}: compression={options.compression} keeps states in 32 bit; leave it out",
                ),
            )
        ),
        (
            (not options.master_weights) & in_32_bit,
            f"master_weights=false: weights of precision={precision} are their own master copy; leave it out",
        ),
    ]


def _muon_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    """Rules of an optimizer that needs the gradient of a whole matrix."""
    muon, steps = options.optimizer == "muon", options.newton_schulz_steps
    scatters = (plans.zero_stage >= 2) | (max(options.weight_shards or 1, options.gradient_shards or 1) > 1)
    return [
        (
            muon & scatters,
            "optimizer=muon: needs the whole gradient of a matrix, which ZeRO-2 scatters; take zero_stage=0 "
            "or 1 without shards of weights and gradients",
        ),
        (
            muon and model.lora_rank > 0,
            "optimizer=muon: is not modelled for low-rank adapters; take optimizer=adam",
        ),
        (
            not muon and steps != DEFAULT_OPTIONS.newton_schulz_steps,
            f"newton_schulz_steps={steps}: needs optimizer=muon; leave it out",
        ),
    ]


def _compression_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    compression, optimizer = options.compression, options.optimizer
    one_bit = compression in ONE_BIT
    unscattered = one_bit or compression in ("topk", "powersgd")
    states = _STATES_OF.get(compression, (optimizer,))
    shards = [getattr(options, name) or 1 for name in _SHARDS]
    return [
        (
            unscattered & ((plans.zero_stage > 0) | (max(shards) > 1)),
            f"compression={compression}: needs whole gradients on every rank; take zero_stage=0 without "
            "shards, or compression=int8",
        ),
        (
            optimizer not in states,
            f"compression={compression}: is made for optimizer={' or '.join(states)}, not {optimizer}",
        ),
        (
            one_bit & plans.offload_optimizer,
            f"compression={compression}: exchanges in the optimizer's step on the GPU; leave out "
            "offload_optimizer",
        ),
        (
            one_bit and options.clipping == "bucket",
            f"compression={compression}: exchanges the momentum at once, not gradients in buckets; "
            "take clipping=before or none",
        ),
        (
            compression == "powersgd" and options.clipping == "bucket",
            "compression=powersgd: scales what it left out of buckets of other norms; take clipping=after",
        ),
        (
            compression == "powersgd" and (model.is_mixture or bool(model.stack) or model.lora_rank > 0),
            "compression=powersgd: is not modelled for mixtures of experts, nor for low-rank adapters; "
            "take compression=topk",
        ),
    ]


def _compression_keys(options: PlanOptions, plans: Degrees) -> Rules:
    """Rules of the keys that refine a compression."""
    compression, warmup = options.compression, options.warmup_share
    scatters = (plans.zero_stage >= 2) | ((options.gradient_shards or 1) > 1)
    return [
        (
            compression == "none" and warmup > 0,
            f"warmup_share={warmup:g}: needs a compression; leave it out",
        ),
        (
            (warmup > 0) & scatters,
            f"warmup_share={warmup:g}: needs gradients that are exchanged once an iteration; "
            "take zero_stage=0 or 1, or leave it out",
        ),
        (
            compression != "powersgd" and options.compression_rank != DEFAULT_OPTIONS.compression_rank,
            f"compression_rank={options.compression_rank}: needs compression=powersgd; leave it out",
        ),
        (
            compression != "topk" and options.compression_density != DEFAULT_OPTIONS.compression_density,
            f"compression_density={options.compression_density:g}: needs compression=topk; leave it out",
        ),
    ]


def _precision_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    """Rules of what a plan below 16 bit may also have in 8 bit."""
    attention, inputs = options.attention_precision, options.activation_inputs
    wide = np.logical_not(plans.below_16_bit)
    return [
        (
            (attention == "fp8") & wide,
            f"attention_precision={attention}: needs a plan below 16 bit; take precision=fp8",
        ),
        (
            attention == "fp8" and model.attention == "core",
            f"attention_precision={attention}: needs an attention kernel; set the model's attention=flash",
        ),
        (
            (inputs == "fp8") & wide,
            f"activation_inputs={inputs}: needs a plan below 16 bit; take precision=fp8",
        ),
    ]


def _weight_rules(options: PlanOptions, plans: Degrees) -> Rules:
    """Rules of ZeRO++'s quantised and secondary weights."""
    second, shards = options.secondary_shards, options.weight_shards
    gathers = plans.zero_stage == 3 if shards is None else shards > 1
    ranks = _zero_group(options, plans) if shards is None else shards
    return [
        (
            options.quantized_weights & np.logical_not(gathers),
            "quantized_weights=true: needs weights that are gathered; take zero_stage=3, or leave it out",
        ),
        (
            (second is not None) & np.logical_not(gathers),
            f"secondary_shards={second}: needs weights that are gathered; take zero_stage=3, or leave it out",
        ),
        (
            second is not None and ranks % second != 0,
            f"secondary_shards={second}: must divide the ranks that share the weights; take those of a node",
        ),
    ]


def _worker_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> Rules:
    workers, steps, outer = options.workers, options.local_steps, options.outer
    many = workers > 1
    moments = {"momentum_steps": options.momentum_steps, "variance_steps": options.variance_steps}
    ranks = _worker_ranks(options, plans)
    return [
        (plans.dp % workers != 0, f"workers={workers}: must divide dp; take another number of workers"),
        (
            not many and steps > 1 and options.compression != "zeroone-adam",
            f"local_steps={steps}: needs workers > 1, or compression=zeroone-adam; "
            "give one of them, or leave it out",
        ),
        (
            not many and outer != "average",
            f"outer={outer}: needs workers > 1; give workers, or leave it out",
        ),
        (
            many and outer == "dreamddp" and steps > model.layers,
            f"local_steps={steps}: outer=dreamddp exchanges at least one of {model.layers} layers in each "
            "iteration; take fewer steps",
        ),
        (
            many and outer == "dreamddp" and model.shares_weights,
            "outer=dreamddp: exchanges a few layers at a time, and those with shared_weights have one set of "
            "weights; take outer=average",
        ),
        *(
            (
                value is not None and outer != "des-loc",
                f"{name}={value}: needs outer=des-loc, which exchanges moments; leave it out",
            )
            for name, value in moments.items()
        ),
        (
            many and outer == "des-loc" and options.optimizer not in _WITH_MOMENTS,
            f"outer=des-loc: needs an optimizer with two moments, {' or '.join(_WITH_MOMENTS)}, "
            f"not {options.optimizer}",
        ),
        (
            many and options.compression not in _OF_WORKERS,
            f"compression={options.compression}: workers exchange weights, not gradients; "
            f"take workers=1, or compression={' or '.join(_OF_WORKERS[1:])}",
        ),
        (
            many and ranks % _zero_group(options, plans) != 0,
            f"workers={workers}: zero_group must divide dp x cp / workers, the ranks of a worker; "
            "give another one, or none for all of them",
        ),
        (
            many and model.is_mixture and ranks * plans.tp % (plans.ep * _etp(plans)) != 0,
            f"workers={workers}: ep x etp must divide dp x cp x tp / workers, those of a worker's stage; "
            "take a smaller ep",
        ),
    ]


def _shard_rules(options: PlanOptions, plans: Degrees) -> Rules:
    """Rules on the ranks that share one copy of weights, gradients and states: each a multiple of the one
    before, and a divisor of all.
    """
    shards = {name: getattr(options, name) for name in _SHARDS}
    if all(value is None for value in shards.values()):
        return []
    group = _zero_group(options, plans)
    weights, gradients, states = (
        np.where(plans.zero_stage >= stage, group, 1) if value is None else value
        for stage, value in zip((3, 2, 1), shards.values(), strict=True)
    )
    ranks = _worker_ranks(options, plans)
    written = ", ".join(f"{name}={value}" for name, value in shards.items() if value is not None)
    return [
        *(
            (
                value is not None and ranks % value != 0,
                f"{name}={value}: must divide dp x cp / workers, the ranks of a worker; take a divisor",
            )
            for name, value in shards.items()
        ),
        (
            (gradients % weights != 0) | (states % gradients != 0),
            f"{written}: gradient_shards must be a multiple of weight_shards, and optimizer_shards of "
            "gradient_shards; give all three (those left out are as zero_stage and zero_group say)",
        ),
    ]


def _worker_ranks(options: PlanOptions, plans: Degrees) -> Any:
    """Data-parallel ranks of one worker; at least 1, also where workers do not divide dp."""
    return np.maximum(plans.dp // options.workers, 1) * plans.cp


def _zero_group(options: PlanOptions, plans: Degrees) -> Any:
    """Ranks over which ZeRO shards; all of a worker where none are stated."""
    ranks, group = _worker_ranks(options, plans), plans.zero_group
    return ranks if group is None else np.where(group == plans.dp * plans.cp, ranks, group)


def _etp(plans: Degrees) -> Any:
    """Ranks that share each matrix of an expert, which a batch always states."""
    return plans.etp if isinstance(plans.etp, np.ndarray) else plans.expert_tp
