"""Seconds of the model's two ends on one micro-batch: the embedding, and the projection with its loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.model import ModelSpec
from itertime.planbatch import PlanBatch
from itertime.profile import Profile
from itertime.system import System

__all__ = ["embedding_s", "head_s", "padded_vocab"]

Array = NDArray[np.float64]


def padded_vocab(model: ModelSpec, tp: NDArray[np.int64]) -> NDArray[np.int64]:
    """The vocabulary rounded up to a multiple of tp times the model's, as Megatron-LM pads it."""
    multiple = model.vocab_multiple * tp
    return -(-model.vocab // multiple) * multiple


def embedding_s(
    model: ModelSpec, plans: PlanBatch, reduced: Array, system: System, profile: Profile
) -> tuple[Array, Array]:
    """Forward: look-up in the split table, positions, dropout, one all-reduce. Backward: a dense gradient.

    Bytes per element, forward/backward: look-up and scatter 4/6, learned positions 6/0, dropout 5/5. The
    table's gradient is written and accumulated whole.
    """
    elements = plans.tokens(model.seq_len) * model.hidden
    added = (6 if model.positions == "learned" else 0) + (5 if model.dropout else 0)
    dropped = 5 if model.dropout else 0
    table = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    looked_up = profile.elementwise_s(np.array([4 * elements, 6 * elements]), "embedding")
    rest = np.array([added * elements, dropped * elements, (2 + plans.accumulated) * table])
    others = profile.elementwise_s(rest)
    forward = (looked_up[0] + others[0]) / system.site.hbm_fraction
    backward = (looked_up[1] + others[1] + others[2]) / system.site.hbm_fraction
    return forward + reduced, backward


def head_s(
    model: ModelSpec, plans: PlanBatch, reduced: Array, system: System, profile: Profile
) -> tuple[Array, Array]:
    """Final norm, projection onto the vocabulary (three GEMMs), cross-entropy; backward one all-reduce.

    Bytes per logit, forward/backward: in 32 bit, unfused, 36/14 (cast, maximum, subtract, exponential, sum,
    divide; multiply, cast); in one kernel 2/4. Only the predicted tokens come this far. An encoder transforms
    them first: a matrix h x h on every rank, GELU, norm (Devlin et al. 2019; Megatron-LM's BertLMHead).
    """
    site = system.site
    tokens = plans.tokens(model.seq_len) * model.predicted_share
    h = model.hidden
    columns = padded_vocab(model, plans.tp) / plans.tp
    wide = np.full(len(plans), float(h))
    m, n, k = (
        np.array([tokens, tokens, wide]),
        np.array([columns, wide, columns]),
        np.array([wide, columns, tokens]),
    )
    if model.encoder:
        square = np.array([wide, wide, wide])
        m, n = np.concatenate([m, m]), np.concatenate([n, square])
        k = np.concatenate([k, np.array([wide, wide, tokens])])
        m[5], k[5] = wide, tokens
    times = site.gemm_multiplier * profile.gemm_s(m, n, k)
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    loss, loss_back = (2, 4) if model.fused_loss else (36, 14)
    normed = profile.elementwise_s(np.array([4 * tokens * h, 6 * tokens * h]), norm, h)
    crossed = profile.elementwise_s(
        np.array([loss * tokens * columns, loss_back * tokens * columns]), "cross_entropy"
    )
    memory = normed + crossed
    if model.encoder:
        memory = memory + normed + profile.elementwise_s(np.array([4 * tokens * h, 6 * tokens * h]), "gelu")
    summed = profile.elementwise_s(plans.accumulated * columns * h)
    forward = times[::3].sum(axis=0) + memory[0] / site.hbm_fraction
    data_and_weight = times.sum(axis=0) - times[::3].sum(axis=0)
    return forward, data_and_weight + (memory[1] + summed) / site.hbm_fraction + reduced
