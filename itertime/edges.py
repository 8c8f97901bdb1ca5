"""Seconds of the model's two ends on one micro-batch: the embedding, and the projection with its loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.layer import LayerWork
from itertime.model import ModelSpec
from itertime.profile import Profile
from itertime.system import System

__all__ = ["embedding_s", "head_s", "padded_vocab"]

Array = NDArray[np.float64]


def padded_vocab(model: ModelSpec, tp: NDArray[np.int64]) -> NDArray[np.int64]:
    """The vocabulary rounded up to a multiple of 128 tp, as Megatron-LM pads it."""
    return -(-model.vocab // (128 * tp)) * 128 * tp


def embedding_s(
    model: ModelSpec, work: LayerWork, reduced: Array, system: System, profile: Profile
) -> tuple[Array, Array]:
    """Forward: look-up in the split table, positions, dropout, one all-reduce. Backward: a dense gradient.

    Bytes per element, forward/backward: look-up and scatter 4/6, learned positions 6/0, dropout 5/5. The
    table's gradient is written and accumulated whole.
    """
    elements = 1.0 * work.micro_batch * model.seq_len * model.hidden
    added = (6 if model.positions == "learned" else 0) + (5 if model.dropout else 0)
    dropped = 5 if model.dropout else 0
    table = padded_vocab(model, work.tp) * model.hidden / work.tp
    seconds = profile.elementwise_s
    forward = (seconds(4 * elements, "embedding") + seconds(added * elements)) / system.site.hbm_fraction
    scattered = seconds(6 * elements, "embedding") + seconds(dropped * elements)
    backward = (scattered + seconds((2 + work.accumulated) * table)) / system.site.hbm_fraction
    return forward + reduced, backward


def head_s(
    model: ModelSpec, work: LayerWork, reduced: Array, system: System, profile: Profile
) -> tuple[Array, Array]:
    """Final norm, projection onto the vocabulary (three GEMMs), cross-entropy; backward one all-reduce.

    Bytes per logit, forward/backward: in 32 bit, unfused, 36/14 (cast, maximum, subtract, exponential, sum,
    divide; multiply, cast); in one kernel 2/4.
    """
    site = system.site
    tokens = 1.0 * work.micro_batch * model.seq_len
    columns = padded_vocab(model, work.tp) / work.tp
    wide = np.full_like(tokens, model.hidden)
    shapes = (tokens, tokens, wide), (columns, wide, columns), (wide, columns, tokens)
    project, data, weight = site.gemm_multiplier * profile.gemm_s(*(np.stack(shape) for shape in shapes))
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    loss, loss_back = (2, 4) if model.fused_loss else (36, 14)
    seconds = profile.elementwise_s
    forward = seconds(4 * tokens * model.hidden, norm, model.hidden) + seconds(
        loss * tokens * columns, "cross_entropy"
    )
    backward = seconds(6 * tokens * model.hidden, norm, model.hidden) + seconds(
        loss_back * tokens * columns, "cross_entropy"
    )
    backward = (backward + seconds(work.accumulated * columns * model.hidden)) / site.hbm_fraction
    return project + forward / site.hbm_fraction, data + weight + backward + reduced
