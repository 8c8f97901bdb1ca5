"""The rules that a plan's options must keep, for one plan and for many at once."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from itertime.spec.model import ModelSpec

from .options import DEFAULT_OPTIONS, ONE_BIT, PlanOptions

__all__ = ["Degrees", "broken_options"]

Broken = bool | NDArray[np.bool_]
_ADAMS = ("adam", "adamw", "fused-adam")
_STATES_OF = {"onebit-adam": _ADAMS, "zeroone-adam": _ADAMS, "onebit-lamb": ("lamb",)}


class Degrees(Protocol):
    """What the rules ask of a plan: numbers of one, or arrays of many."""

    @property
    def pp(self) -> Any: ...

    @property
    def dp(self) -> Any: ...

    @property
    def cp(self) -> Any: ...

    @property
    def zero_stage(self) -> Any: ...

    @property
    def offload_optimizer(self) -> Any: ...


def broken_options(options: PlanOptions, model: ModelSpec, plans: Degrees) -> list[tuple[Broken, str]]:
    """Every rule: whether it is broken, for a plan as a bool and for a `PlanBatch` as an array, and the rule
    with its remedy in a sentence.
    """
    if options == DEFAULT_OPTIONS:
        return []
    return [
        *_batch_rules(options, model, plans),
        *_optimizer_rules(options, plans),
        *_compression_rules(options, plans),
        *_worker_rules(options, plans),
    ]


def _batch_rules(options: PlanOptions, model: ModelSpec, plans: Degrees) -> list[tuple[Broken, str]]:
    batching, balance = options.batching, options.balance
    uneven = batching in ("longest", "unpadded")
    return [
        (
            batching != "padded" and not model.lengths,
            f"batching={batching}: needs the lengths of the samples; set the model's key lengths",
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


def _optimizer_rules(options: PlanOptions, plans: Degrees) -> list[tuple[Broken, str]]:
    clipping, optimizer, stated = options.clipping, options.optimizer, options.gradient_shards
    scattered = plans.zero_stage >= 2 if stated is None else stated > 1
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


def _compression_rules(options: PlanOptions, plans: Degrees) -> list[tuple[Broken, str]]:
    compression, optimizer = options.compression, options.optimizer
    whole = compression in (*ONE_BIT, "topk", "powersgd")
    states = _STATES_OF.get(compression, (optimizer,))
    return [
        (
            whole & (plans.zero_stage > 0),
            f"compression={compression}: needs whole gradients on every rank; take zero_stage=0",
        ),
        (
            optimizer not in states,
            f"compression={compression}: is made for optimizer={' or '.join(states)}, not {optimizer}",
        ),
        (
            compression == "none" and options.warmup_share > 0,
            f"warmup_share={options.warmup_share:g}: needs a compression; leave it out",
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


def _worker_rules(options: PlanOptions, plans: Degrees) -> list[tuple[Broken, str]]:
    workers, steps = options.workers, options.local_steps
    moments = {"momentum_steps": options.momentum_steps, "variance_steps": options.variance_steps}
    return [
        (plans.dp % workers != 0, f"workers={workers}: must divide dp"),
        (workers == 1 and steps > 1, f"local_steps={steps}: needs workers > 1"),
        (
            workers == 1 and options.outer != "average",
            f"outer={options.outer}: needs workers > 1",
        ),
        *(
            (value is not None and options.outer != "des-loc", f"{name}={value}: needs outer=des-loc")
            for name, value in moments.items()
        ),
    ]
