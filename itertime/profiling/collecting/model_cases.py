"""The kernels that trainings of some models launch: a grid of the sizes that their predictions ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from itertime.errors import UserError
from itertime.spec import ModelSpec

from .cases import (
    LAYOUTS,
    LOSS,
    KernelCase,
    adam_case,
    attention_cases,
    gemm_case,
    pass_shapes,
    row_cases,
)

MICRO_BATCHES = (1, 2, 4, 8)
LARGEST_STEP = 2**28  # parameters of one kernel of the optimizer; a longer step takes as long for each


def model_cases(models: Sequence[ModelSpec], splits: Sequence[int] = (1,)) -> Iterator[KernelCase]:
    """The kernels of micro-batches of `MICRO_BATCHES` sequences of each model, in 16 bit (32 on a CPU), on
    one of `splits` tensor-parallel ranks. A kernel that several models share comes more than once.

    Raises UserError for a model whose layers are not all alike (a mixture, compressed keys and values,
    windows), and for a split that does not divide the heads.
    """
    for model, ranks in itertools.product(models, splits):
        _check(model, ranks)
        for micro_batch in MICRO_BATCHES:
            yield from _products(model, ranks, micro_batch)
            yield from _attention(model, ranks, micro_batch)
            yield from _rows(model, ranks, micro_batch)
        for parameters in (model.layer_parameters, model.parameters):
            yield adam_case(min(parameters // ranks, LARGEST_STEP))


def _check(model: ModelSpec, ranks: int) -> None:
    for name, plain in (("experts", 1), ("latent_kv", 0), ("window", 0), ("lora_rank", 0)):
        if getattr(model, name) != plain:
            raise UserError(
                f"--for {model.name}: {name}={getattr(model, name)}: only models of equal dense layers "
                "have a grid of their own; take --grid full"
            )
    if model.heads % ranks or model.kv_heads % ranks or model.ffn_hidden % ranks:
        raise UserError(f"--for {model.name}: --tp {ranks}: must divide heads, kv_heads and ffn_hidden")


def _products(model: ModelSpec, ranks: int, micro_batch: int) -> Iterator[KernelCase]:
    """The linear layers of a rank, both passes: y[tokens, n] = x[tokens, k] w[k, n]."""
    tokens, mlp = micro_batch * model.seq_len, model.ffn_hidden // ranks
    widths = (
        ((model.q_hidden + 2 * model.kv_hidden) // ranks, model.hidden),
        (model.hidden, model.v_hidden // ranks),
        ((2 if model.gated_mlp else 1) * mlp, model.hidden),
        (model.hidden, mlp),
        (_vocabulary(model, ranks), model.hidden),
    )
    for n, k in widths:
        shapes = pass_shapes(tokens, n, k)
        for layout in LAYOUTS:
            yield gemm_case(layout, *shapes[layout])


def _vocabulary(model: ModelSpec, ranks: int) -> int:
    """Columns of the projection on a rank, padded."""
    multiple = model.vocab_multiple
    return -(-model.vocab // (multiple * ranks)) * multiple


def _attention(model: ModelSpec, ranks: int, micro_batch: int) -> Iterator[KernelCase]:
    """One kernel, or the two products and the softmax of attention that writes its scores."""
    heads, seq, width = model.heads // ranks, model.seq_len, model.head_width
    if model.attention == "core":
        yield gemm_case("batched", seq, seq, width, micro_batch * heads)
        yield gemm_case("batched", seq, width, seq, micro_batch * heads)
        yield from row_cases("softmax", micro_batch * heads * seq, seq)
        return
    kv_heads = model.kv_heads // ranks
    shape = {"batch": micro_batch, "heads": heads, "kv_heads": kv_heads, "head_dim": width, "seq": seq}
    yield from attention_cases(shape, causal=not model.encoder)


def _rows(model: ModelSpec, ranks: int, micro_batch: int) -> Iterator[KernelCase]:
    """The memory-bound kernels of a layer, of the embedding and of the loss."""
    tokens = micro_batch * model.seq_len
    hidden_ops = [model.norm, "add", "embedding", *(["dropout"] if model.dropout else [])]
    widths = dict.fromkeys(hidden_ops, model.hidden)
    widths |= {"silu_mul" if model.gated_mlp else "gelu": model.ffn_hidden // ranks}
    if model.positions == "rotary":
        widths |= {"rope_qk": model.q_hidden // ranks}
    for op, cols in (widths | {LOSS: _vocabulary(model, ranks)}).items():
        yield from row_cases(op, tokens, cols)
