"""A framework: the software that trains, apart from the GPU and from the site.

Two runs of the same plan on the same GPUs differ by their software: its attention kernel, how far it fuses
memory-bound kernels, what it hides behind matrix products, and what its pipeline engine costs. Shipped
frameworks are data files in `itertime/frameworks/`, one YAML file each with its sources; `load_framework`
reads them by name, or a user's file of the same form by path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import StrictBool
from pydantic.dataclasses import dataclass

from itertime.io import (
    CONFIG,
    Name,
    NonNegative,
    Positive,
    Share,
    Whole,
    construct,
    described,
    optional,
)

from .references import Reference, SpecCache

FRAMEWORKS = Path(__file__).parents[1] / "frameworks"
NEUTRAL = "megatron"


@dataclass(frozen=True, config=CONFIG)
class Framework:
    """What software adds to a profile's kernels; the defaults are neutral.

    Buckets of gradients are by default those of Megatron Core: `max(40000000, 1000000 *
    get_data_parallel_world_size())` parameters (distributed_data_parallel.py).
    """

    name: Annotated[Name, described("of the framework")]
    source: Annotated[Name, described("where the values come from")]
    attention: Literal["model", "flash", "flash1", "triton", "flash3", "cudnn"] = optional(
        "model", "kernel of models with flash attention; model: the one that the model names"
    )
    elementwise: Literal["profile", "fused", "compiled", "eager"] = optional(
        "profile", "how far memory-bound kernels are fused; profile: the profile's usual kernels"
    )
    gemm_multiplier: Positive = optional(1.0, "multiplies the profile's times of matrix products", "1")
    fp8_multiplier: Positive = optional(1.0, "the same for matrix products below 16 bit, in addition", "1")
    attention_multiplier: Positive = optional(1.0, "multiplies the times of the attention kernel", "1")
    whole_rows: StrictBool = optional(
        False,
        "FMHA: every query meets `seq_len` keys, however short its sample is, and one thread block has "
        "all queries of a sample and head; half of them or fewer if a GPU has fewer than four samples",
    )
    elementwise_multiplier: Positive = optional(1.0, "multiplies the times of memory-bound kernels", "1")
    cast_multiplier: Positive = optional(1.0, "multiplies the times of casts to less than 16 bit", "1")
    expert_multiplier: Positive = optional(1.0, "multiplies the times of the experts' matrix products", "1")
    tp_overlap: StrictBool = optional(
        False, "hides tensor-parallel communication behind matrix products by default"
    )
    tp_exposed: Share = optional(
        1.0, "share of tensor-parallel communication that stays exposed where it is hidden", "1"
    )
    contention: Share = optional(
        0.0, "share of hidden communication by which computation takes longer: SMs, HBM, power", "1"
    )
    power_contention: Share | None = optional(
        None, "the same on GPUs whose matrix products run at the power limit; null: as `contention`", "1"
    )
    shard_prefetch: StrictBool = optional(
        True, "under ZeRO-3, a layer's weights are gathered beside the work of the layer ahead of it"
    )
    gather_overlap: StrictBool = optional(
        True, "where gradients overlap the backward pass, weights are gathered beside the next forward"
    )
    weight_broadcasts: StrictBool = optional(
        False, "ZeRO-1's ranks send their updated weights one rank after the other, not in one gather"
    )
    bucket_parameters: Whole = optional(
        40_000_000, "parameters of a bucket of gradients that overlaps the backward pass, at least", "1"
    )
    bucket_parameters_per_rank: Whole = optional(
        1_000_000, "the same for each data-parallel rank; the larger counts", "1"
    )
    bucket_bytes: Whole = optional(
        0, "the same in bytes; where all three are 0, a layer is a bucket, as FSDP wraps it", "bytes"
    )
    kernels: Positive = optional(1.0, "kernels issued for each one that the cost model counts", "1")
    backward_kernels: Positive | None = optional(
        None, "the same in the backward pass; null: as `kernels`", "1"
    )
    layer_s: NonNegative = optional(0.0, "added per layer and micro-batch", "s")
    pipeline_layer_s: NonNegative = optional(
        0.0, "added per layer and micro-batch of a pipeline of several stages", "s"
    )
    crossing_layer_s: NonNegative = optional(
        0.0, "least seconds of a layer and micro-batch, both passes, where tp > 1 and stages cross nodes", "s"
    )
    crossing_layer_rank_s: NonNegative = optional(
        0.0, "in addition to crossing_layer_s for each tensor-parallel rank", "s"
    )
    stalled_send_s: NonNegative = optional(
        0.0, "added per step of a pipeline and neighbour of a stage in runs with a stalling node", "s"
    )
    expert_layer_s: NonNegative = optional(
        0.0, "added per layer of experts and micro-batch: routing, synchronisation", "s"
    )
    micro_batch_s: NonNegative = optional(
        0.0, "added per micro-batch and stage of a pipeline of several stages", "s"
    )
    iteration_s: NonNegative = optional(0.0, "added per iteration", "s")
    bucket_buffer_bytes: NonNegative = optional(
        0.0, "of buffers that data-parallel ranks keep beside their gradients", "bytes"
    )
    step_parameters: Whole = optional(
        0, "under ZeRO-3, parameters of a GPU that the optimizer updates at a time; 0: all of them", "1"
    )
    kept_gathers: Share = optional(
        0.0, "share of the inputs gathered by sequence parallelism that stay for the backward pass", "1"
    )
    gradient_copies: StrictBool = optional(
        True, "16-bit gradients stay beside their 32-bit sums until the backward pass ends"
    )
    keeps_casts: StrictBool = optional(
        False, "inputs and weights of matrix products below 16 bit are kept as cast"
    )
    fused_operations: StrictBool = optional(
        False, "below 16 bit activations write casts; products scale and add low-rank results"
    )
    fused_loss: StrictBool = optional(False, "cross-entropy in one kernel, whatever the model says")
    logit_bytes: Positive = optional(
        10.0, "of a logit where the loss is not fused: in 16 bit, in 32 bit and its softmax", "bytes"
    )
    linear_loss: StrictBool = optional(
        False, "a fused cross-entropy computes its logits chunk by chunk and keeps none (Liger Kernel)"
    )
    wide_core: StrictBool = optional(
        False, "attention=core with RMS norms: both keep 32-bit results too (Hugging Face Transformers)"
    )


def list_frameworks() -> list[str]:
    """Names of the shipped frameworks, sorted."""
    return sorted(path.stem for path in FRAMEWORKS.glob("*.yaml"))


def load_framework(name_or_path: str | Path) -> Framework:
    """A shipped framework by name, or one from a YAML (or JSON) file by its path.

    Raises UnknownName for a name that is not shipped, UserError naming file and key for a wrong file.

    >>> load_framework("megatron").gemm_multiplier
    1.0
    """
    return _LOADED.load(name_or_path)


def framework_reference(name_or_path: str | Path) -> Reference:
    """The keys of a framework, and the files that they come from. Raises as `load_framework` does."""
    return Reference.read("framework", name_or_path, FRAMEWORKS, Framework)


def framework_of(reference: Reference) -> Framework:
    """The framework of these keys. UserError, naming file and key, if they are not those of a framework."""
    return construct(Framework, reference.content, reference.where)


_LOADED = SpecCache(framework_reference, framework_of)
