"""Options of a plan: how samples become batches, the optimizer, and what saves communication.

A plan has one `PlanOptions`, and so has a batch of plans: the cost functions branch on its plain values, so
an option that is not used costs nothing.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StrictBool
from pydantic.dataclasses import dataclass

from itertime.errors import UserError
from itertime.io import CONFIG, Count, Fraction, Share, construct, key_values, optional

ONE_BIT = ("onebit-adam", "onebit-lamb", "zeroone-adam")
"""Compressions that send the signs of the momentum in place of gradients: optimizers of their own."""
IN_32_BIT = ("tf32", "fp32")
"""Precisions in which weights, gradients, activations and messages have 32 bit."""
Compression = Literal[
    "none", "fp16", "fp8", "int8", "int4", "topk", "powersgd", "onebit-adam", "onebit-lamb", "zeroone-adam"
]  # fmt: skip
Rank = Annotated[Count, Field(le=10_000)]


@dataclass(frozen=True, config=CONFIG)
class PlanOptions:
    """How a plan trains beyond its degrees of parallelism; the defaults change nothing.

    What an option does to convergence is not predicted anywhere: the number of steps is an input. Rules that
    depend on the model and on the plan are in `option_rules.py`.

    >>> PlanOptions(clipping="bucket", optimizer="lamb").text
    'clipping=bucket,optimizer=lamb'
    """

    batching: Literal["padded", "longest", "unpadded", "packed"] = optional(
        "padded",
        "tokens that a sample of a model with `lengths` takes: the sequence length, those of the longest "
        "in its micro-batch, its own, or its own in a row that samples share",
    )
    balance: Literal["drawn", "sorted", "exchanged", "stratified", "stratified-exchanged"] = optional(
        "drawn",
        "how samples of different lengths are dealt to data-parallel ranks: as drawn, sorted over all "
        "ranks, exchanged within a node, in fixed numbers by length, or the last two together",
    )
    clipping: Literal["after", "none", "before", "bucket"] = optional(
        "after",
        "gradient clipping: by the norm of the reduced gradients, none, by a rank's own norm before the "
        "reduction, or bucket by bucket before each reduction",
    )
    optimizer: Literal["adam", "adamw", "fused-adam", "torch-adamw", "lamb", "came", "sgd", "muon"] = (
        optional(
            "adam",
            "decides states and what a step moves; lamb with ZeRO-1 is distributed LAMB; adam8bit stands for "
            "adam with moments=int8",
        )
    )
    moments: Literal["fp32", "bf16", "int8"] = optional(
        "fp32", "form in which the optimizer's moments are kept; int8 is quantised in blocks of 256"
    )
    master_weights: StrictBool = optional(
        True, "32-bit weights beside those of 16 bit; false: the step rounds to 16 bit"
    )
    newton_schulz_steps: Annotated[Count, Field(le=100)] = optional(
        5, "steps by which Muon makes a matrix orthogonal", "1"
    )
    compression: Compression = optional(
        "none", "form in which gradients are sent, or with `workers` what these exchange"
    )
    compression_rank: Rank = optional(4, "rank of PowerSGD's factors", "1")
    compression_density: Fraction = optional(0.01, "share of a gradient's entries that top-k sends", "1")
    warmup_share: Share = optional(0.0, "share of the iterations that exchange everything uncompressed", "1")
    attention_precision: Literal["bf16", "fp8"] = optional(
        "bf16", "of the attention kernel, its inputs and its output; fp8 is cuDNN's kernel"
    )
    activation_inputs: Literal["bf16", "fp8"] = optional(
        "bf16", "form in which inputs of an MLP's activation are kept for the backward pass"
    )
    loss_chunks: Annotated[Count, Field(le=1_000_000)] = optional(
        1, "parts of a micro-batch whose logits exist one after the other (chunked linear cross-entropy)", "1"
    )
    quantized_weights: StrictBool = optional(False, "ZeRO gathers weights in 8 bit (ZeRO++, qwZ)")
    weight_shards: Count | None = optional(
        None, "ranks that share one copy of the weights; by default as ZeRO says"
    )
    gradient_shards: Count | None = optional(
        None, "ranks that share one copy of the gradients; by default as ZeRO says"
    )
    optimizer_shards: Count | None = optional(
        None, "ranks that share the optimizer's states; by default as ZeRO says"
    )
    secondary_shards: Count | None = optional(
        None, "ranks that share a second copy of the weights for the backward pass (ZeRO++, hpZ)"
    )
    workers: Count = optional(
        1, "groups of data-parallel ranks that exchange only every `local_steps` iterations"
    )
    local_steps: Count = optional(
        1, "iterations between two exchanges of the workers, or of 0/1 Adam on average"
    )
    outer: Literal["average", "dreamddp", "diloco", "des-loc"] = optional(
        "average",
        "what workers exchange: weights (Local SGD), those of some layers in each iteration, outer "
        "gradients, or weights and moments",
    )
    momentum_steps: Count | None = optional(None, "of des-loc, for first moments; by default `local_steps`")
    variance_steps: Count | None = optional(None, "of des-loc, for second moments; by default `local_steps`")

    @property
    def text(self) -> str:
        """The options that differ from the defaults as `parse_options` reads them; "" for none."""
        if self == DEFAULT_OPTIONS:
            return ""
        changed = ((name, getattr(self, name)) for name in _NAMES)
        return ",".join(
            f"{name}={_written(value)}" for name, value in changed if value != getattr(DEFAULT_OPTIONS, name)
        )


_OF_WORKERS = (
    *("workers", "local_steps", "outer", "momentum_steps", "variance_steps"),
    *("compression", "warmup_share"),
)
"""Options of the exchange between workers. With workers, a compression is that of their exchange alone."""
DEFAULT_OPTIONS = PlanOptions()
"""The options of a plan that states none."""
_NAMES = tuple(field.name for field in fields(PlanOptions))


@cache
def within_worker(options: PlanOptions) -> PlanOptions:
    """The options of the iterations of one worker, which is a job of its own."""
    return replace(options, **{name: getattr(DEFAULT_OPTIONS, name) for name in _OF_WORKERS})


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_options(text: str, where: str = "options") -> PlanOptions:
    """The options in a text like "clipping=bucket,optimizer=lamb"; "" is the defaults.

    Raises UserError, beginning with `where`, for text of another form, and for an unknown or repeated key or
    a wrong value.

    >>> parse_options("workers=4, local_steps=500, outer=diloco").local_steps
    500
    >>> parse_options("optimizer=adam8bit").text
    'moments=int8'
    """
    values = key_values(text, where, "clipping=bucket")
    if values.get("optimizer") == "adam8bit":
        values = {"moments": "int8", **values, "optimizer": "adam"}
        if values["moments"] != "int8":
            raise UserError(
                f"{where}: optimizer=adam8bit: keeps moments=int8, not {values['moments']}; keep one"
            )
    return construct(PlanOptions, values, where)
