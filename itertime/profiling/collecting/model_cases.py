"""The kernels that trainings of some models launch: a grid of the sizes that their predictions ask for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
SMALLEST_ADDITION = 2**12  # elements; larger ones follow in steps of four
LARGEST_STEP = 2**28  # parameters of one kernel of the optimizer; a longer step takes as long for each


@dataclass(frozen=True)
class ModelGrid:
    """The kernels that trainings of `models` launch: micro-batches of so many sequences, on one of so many
    tensor-parallel ranks each.
    """

    models: tuple[ModelSpec, ...]
    splits: tuple[int, ...] = (1,)
    micro_batches: tuple[int, ...] = MICRO_BATCHES

    def cases(self) -> list[KernelCase]:
        """The kernels, each once. Raises as `model_cases`."""
        found_cases = model_cases(self.models, self.splits, self.micro_batches)
        return list({json.dumps(case.columns, sort_keys=True): case for case in found_cases}.values())


def model_cases(
    models: Sequence[ModelSpec],
    splits: Sequence[int] = (1,),
    micro_batches: Sequence[int] = MICRO_BATCHES,
) -> Iterator[KernelCase]:
    """The kernels of a `ModelGrid`, in 16 bit, or in 32 on a CPU. A kernel that several models share comes
    more than once.

    Raises UserError for a model whose layers are not all alike (a mixture, compressed keys and values,
    windows), and for a split that does not divide the heads.
    """
    for model, ranks in itertools.product(models, splits):
        _check(model, ranks)
        for micro_batch in micro_batches:
            yield from _products(model, ranks, micro_batch)
            yield from _attention(model, ranks, micro_batch)
            yield from _rows(model, ranks, micro_batch)
        parameters = model.parameters // ranks
        for count in (model.layer_parameters // ranks, parameters // 2, parameters):
            yield adam_case(min(count, LARGEST_STEP))
        elements = SMALLEST_ADDITION
        while elements < min(parameters, LARGEST_STEP):  # copies, and sums of gradients
            yield from row_cases("add", 1, elements)
            elements *= 4


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
        for op in ("softmax", "dropout") if model.dropout else ("softmax",):
            yield from row_cases(op, micro_batch * heads * seq, seq)
        return
    kv_heads = model.kv_heads // ranks
    shape = {"batch": micro_batch, "heads": heads, "kv_heads": kv_heads, "head_dim": width, "seq": seq}
    yield from attention_cases(shape, causal=not model.encoder)


def _rows(model: ModelSpec, ranks: int, micro_batch: int) -> Iterator[KernelCase]:
    """The memory-bound kernels of a layer, of the embedding and of the loss."""
    tokens = micro_batch * model.seq_len
    hidden_ops = [model.norm, "add", "embedding", *(["dropout", "dropout_add"] if model.dropout else [])]
    widths = dict.fromkeys(hidden_ops, model.hidden)
    widths |= {"silu_mul" if model.gated_mlp else "gelu": model.ffn_hidden // ranks}
    if model.positions == "rotary":
        widths |= {"rope_qk": model.q_hidden // ranks}
    for op, cols in (widths | {LOSS: _vocabulary(model, ranks)}).items():
        yield from row_cases(op, tokens, cols)
