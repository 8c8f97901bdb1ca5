"""The keys of a model file: what a published architecture states, with the bounds of each value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, described, optional
from itertime.spec.layers import Kinds, Stack

from .towers import Towers


def _as_names(value: Any) -> Any:
    """Names in a text with commas as a list; other values as they are, for pydantic."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


Size = Annotated[int, Field(strict=True, ge=1, le=10**9)]
SizeOrZero = Annotated[int, Field(strict=True, ge=0, le=10**9)]
Portion = Annotated[float, Field(gt=0, le=1)]
Extra = Annotated[int, Field(strict=True, ge=-(10**12), le=10**12)]
Imbalance = Annotated[float, Field(ge=1, le=1000)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
Published = Annotated[str, Field(pattern=r"^([0-9]+(\.[0-9]+)?[MBT])?$")]


@dataclass(frozen=True, config=CONFIG)
class ModelKeys:
    """Every key of a model, in the order of the pages; what a value means beside the others, `ModelSpec`
    checks.
    """

    name: Annotated[str, described("of the model", default="the file's")]
    layers: Annotated[Size, described("transformer layers, all of them")]
    hidden: Annotated[Size, described("width between layers")]
    heads: Annotated[Size, described("heads of queries")]
    vocab: Annotated[Size, described("entries of the vocabulary, without padding", "tokens")]
    seq_len: Annotated[Size, described("length of a training sequence", "tokens")]
    kv_heads: SizeOrZero = optional(0, "heads of keys and of values; 0: as `heads`")
    ffn_hidden: SizeOrZero = optional(0, "width of an MLP, or of one expert; 0: 4 `hidden`")
    gated_mlp: StrictBool = optional(False, "the MLP has a gate (SwiGLU, GeGLU): three matrices")
    attention: Literal["core", "flash", "flash1", "triton"] = optional(
        "core", "kernel: unfused, FlashAttention-2, the first FlashAttention, llm-foundry's form of it"
    )
    norm: Literal["layernorm", "rmsnorm"] = optional("layernorm", "kind of the norms")
    positions: Literal["learned", "rotary", "none"] = optional(
        "learned", "encoding of positions; ALiBi costs nothing: none"
    )
    tied_embeddings: StrictBool = optional(True, "the projection uses the weights of the token embedding")
    biases: StrictBool = optional(True, "all linear layers have biases")
    dropout: StrictBool = optional(True, "trained with dropout")
    embedding_width: SizeOrZero = optional(
        0, "width of the token embedding, which a matrix brings to `hidden` and back (ALBERT); 0: `hidden`"
    )
    encoder: StrictBool = optional(
        False, "attends in both directions, and transforms tokens before the projection"
    )
    encoder_seq_len: SizeOrZero = optional(
        0, "length of the sequence in layers of a kind with `encoder`; 0: as `seq_len`", "tokens"
    )
    cross_attention: StrictBool = optional(
        False, "a layer attends to the output of the encoder too, after its own attention (T5)"
    )
    fused_loss: StrictBool = optional(False, "cross-entropy in one kernel that keeps no copy of the logits")
    vocab_multiple: Size = optional(
        128, "the vocabulary of every tensor-parallel rank is padded to a multiple of it", "tokens"
    )
    experts: Size = optional(1, "MLPs of a layer to choose from; 1: no mixture")
    experts_per_token: Size = optional(1, "experts that the router picks for a token")
    predicted_share: Portion = optional(
        1.0, "share of the tokens that reach the projection (BERT: 0.15)", "1"
    )
    head_dim: SizeOrZero = optional(0, "width of a head, without `rope_head_dim`; 0: `hidden` / `heads`")
    qkv_biases: StrictBool = optional(False, "queries, keys and values alone have biases")
    qk_norm: StrictBool = optional(False, "queries and keys pass a norm, head by head")
    norms_per_layer: Size = optional(
        2, "norms of a layer, without those of queries and keys; 4 if outputs pass one too"
    )
    parallel_block: StrictBool = optional(
        False, "attention and MLP read the same input, and their outputs are added at once"
    )
    window: SizeOrZero = optional(
        0, "tokens that attention reaches back in a limited layer; 0: all", "tokens"
    )
    full_attention_every: SizeOrZero = optional(
        0, "one layer in so many has no window; 0: every layer has it"
    )
    latent_kv: SizeOrZero = optional(0, "width of the compressed keys and values (MLA); 0: not compressed")
    latent_q: SizeOrZero = optional(0, "width of the compressed queries (MLA); 0: not compressed")
    rope_head_dim: SizeOrZero = optional(
        0, "width that rotary positions add to a head of queries and keys (MLA)"
    )
    value_head_dim: SizeOrZero = optional(0, "width of a head of values (MLA); 0: as `head_dim`")
    shared_ffn_hidden: SizeOrZero = optional(0, "width of the MLP that every token passes beside its experts")
    dense_layers: SizeOrZero = optional(0, "layers of a mixture that have one MLP, no experts")
    dense_ffn_hidden: SizeOrZero = optional(0, "width of the MLP in these layers")
    load_imbalance: Imbalance = optional(
        1.0, "tokens of the busiest rank of experts over the mean of all ranks", "1"
    )
    lora_rank: SizeOrZero = optional(
        0, "rank of trained low-rank matrices (LoRA) beside frozen weights; 0: none"
    )
    lora_targets: Literal["attention", "linear"] = optional(
        "attention", "layers beside which these matrices are: queries, keys, values and projection, or all"
    )
    frozen_bits: Literal[4, 16] = optional(
        16, "bits of a frozen weight of the layers; 4: NF4 with double quantisation (QLoRA)"
    )
    frozen: Names = optional(
        (), "what is not trained: `layers`, kinds and towers by name, `projector`, `embedding`, `head`"
    )
    mixer: Literal["attention", "mamba2", "delta", "mamba", "linear", "conv", "none"] = optional(
        "attention",
        "what mixes the tokens of a layer: attention, Mamba-2, a gated delta net, Mamba, linear attention, a "
        "gated short convolution",
    )
    mlp: StrictBool = optional(True, "a layer has an MLP, or experts")
    state_heads: SizeOrZero = optional(0, "heads of values of a mixer with a state")
    state_head_dim: SizeOrZero = optional(0, "width of such a head")
    state_groups: SizeOrZero = optional(0, "heads of keys and of queries of a mixer with a state")
    state_size: SizeOrZero = optional(0, "width of such a key: rows of a head's state")
    conv_width: SizeOrZero = optional(0, "tokens that a mixer's causal convolution reaches back", "tokens")
    step_rank: SizeOrZero = optional(
        0, "rank of the step sizes (Mamba), or of both gates of a delta net (Kimi Delta Attention); 0: full"
    )
    output_gate: StrictBool = optional(False, "the attention's output has a gate, as wide, from its input")
    index_heads: SizeOrZero = optional(0, "heads of the indexer of sparse attention; 0: not sparse")
    index_head_dim: SizeOrZero = optional(0, "width of such a head")
    index_keys: SizeOrZero = optional(0, "keys that the indexer picks for a query", "tokens")
    layer_extra_parameters: Extra = optional(
        0, "parameters of a layer that no other key counts; below 0 where others count too many"
    )
    extra_parameters: Extra = optional(0, "the same beside the layers")
    shared_weights: StrictBool = optional(
        False, "all layers, or all of a kind, use the same weights (ALBERT)"
    )
    mtp_layers: SizeOrZero = optional(
        0, "heads that predict further tokens (MTP): of each a layer as the last one, a projection and a loss"
    )
    not_predicted: str = optional(
        "", "what no key describes and a prediction would misstate; the model is counted, not predicted"
    )
    kinds: Kinds = optional(
        (),
        "kinds of layers by name: of each the keys of a layer that differ from those of the model",
        values="mapping of names to keys of a layer",
    )
    stack: Stack = optional(
        (),
        "the kinds of the layers in their order, each `KIND` or `N KIND`; repeated until all layers have one",
    )
    towers: Towers = optional(
        (),
        "towers for images by name, each with the keys of a tower",
        values="mapping of names to keys of a tower",
    )
    images: Size = optional(1, "images of a sequence, each of which passes every tower", "images")
    parameters_published: Published = optional("", "the number of parameters as published, for example 8.03B")
    active_parameters_published: Published = optional("", "parameters that a token passes, as published")
    approximations: tuple[str, ...] = optional(
        (), "sentences on what no key can state, and no prediction charges"
    )
    source: str = optional("", "where the figures come from")
    lengths: str = optional(
        "",
        "lengths of the samples: a shipped table (`itertime lengths`), or a CSV file beside this one; by "
        "default every sample has `seq_len` tokens",
    )
