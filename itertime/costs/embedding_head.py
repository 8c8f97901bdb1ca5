"""Seconds of the model's two ends on one micro-batch: the embedding, and the projection with its loss."""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, any_of
from itertime.spec import Elementwise

from .memory_bound import PASSES
from .partition import Workload


def embedding_s(workload: Workload, reduced: Array) -> tuple[Array, Array]:
    """Forward: look-up in the split table, positions, dropout, one all-reduce. Backward: a dense gradient.

    Bytes per element, forward/backward: look-up and scatter 4/6, learned positions 6/0, dropout 5/5. The
    table's gradient is written and accumulated whole. `reduced`: `activation_all_reduce_s`.
    """
    model, plans, profile = workload.model, workload.plans, workload.profile
    elements = workload.tokens * model.table_width * plans.width
    if model.has_encoder:  # whose tokens are looked up and summed too
        elements, reduced = (1 + model.encoder_share) * elements, (1 + model.encoder_share) * reduced
    dropped = 5 if model.dropout else 0
    added = dropped + (6 if model.positions == "learned" else 0)
    frozen = not model.trains_embedding  # no gradient
    looked_up = profile.seconds(
        Elementwise(np.array([4 * elements, 6 * elements]), "embedding", backward=PASSES)
    )
    gradient = plans.width * (2 + plans.accumulated) * workload.partition.table
    elementwise = profile.seconds(Elementwise(np.array([added * elements, dropped * elements, gradient])))
    hbm_fraction = workload.system.site.hbm_fraction
    forward = (looked_up[0] + elementwise[0]) / hbm_fraction
    backward = (elementwise[1] if frozen else looked_up[1] + elementwise[1] + elementwise[2]) / hbm_fraction
    if model.narrow_embedding:  # a matrix brings the entries to the width of the layers
        rows, narrow, wide = workload.tokens, *np.full((2, len(plans)), [[model.table_width], [model.hidden]])
        m, n, k = np.array([(rows, wide, narrow), (rows, narrow, wide), (narrow, wide, rows)]).swapaxes(0, 1)
        widened = workload.gemm_factor * workload.gemm_s(m, n, k)
        forward, backward = forward + widened[0], backward + (0.0 if frozen else widened[1] + widened[2])
    return forward + reduced, backward


def head_s(workload: Workload, reduced: Array) -> tuple[Array, Array, Array]:
    """Final norm, projection onto the vocabulary (three GEMMs), cross-entropy; backward one all-reduce.

    Bytes per logit, forward/backward: in 32 bit, unfused, 36/14 (cast, maximum, subtract, exponential, sum,
    divide; multiply, cast); in one kernel 2/4. A plan in 32 bit casts nothing: 30/8, and 4/8. Of the tokens
    that are not padding, only the predicted ones reach the head. An encoder transforms them first: a matrix
    h x h on every rank, GELU, norm (Devlin et al. 2019; Megatron-LM's BertLMHead). `reduced`:
    `activation_all_reduce_s`.

    In chunks of the tokens every chunk adds its gradient of the weights. The third array is what gives this
    gradient, a part of the backward pass.
    """
    model, plans, profile, site = workload.model, workload.plans, workload.profile, workload.system.site
    tokens = workload.micro_batch.real * model.predicted_share
    h = model.table_width
    columns = workload.partition.vocab / plans.tp
    wide, hidden = np.full(len(plans), float(h)), np.full(len(plans), float(model.hidden))
    chunks = plans.options.loss_chunks
    rows = tokens / chunks
    gemms = [(rows, columns, wide), (rows, wide, columns), (wide, columns, rows)]  # y, dx, dw
    if model.head_transform:
        gemms += [(tokens, wide, hidden), (tokens, hidden, wide), (wide, hidden, tokens)]
    m, n, k = np.array(gemms).transpose(1, 0, 2)
    frozen = not model.trains_head
    times = workload.gemm_factor * workload.gemm_s(m, n, k)
    times[:3] = chunks * times[:3]
    norm = "rmsnorm" if model.norm == "rmsnorm" else "layernorm"
    loss_bytes = np.array([of_a_logit * tokens * columns for of_a_logit in _loss_bytes(workload)])
    norm_bytes = np.array([4 * tokens * h, 6 * tokens * h]) * plans.width
    normed = profile.seconds(Elementwise(norm_bytes, norm, h, backward=PASSES))
    crossed = profile.seconds(Elementwise(loss_bytes, "cross_entropy", backward=PASSES))
    memory = normed + crossed
    if model.encoder:
        memory = memory + normed + profile.seconds(Elementwise(norm_bytes, "gelu", backward=PASSES))
    if frozen:
        times[2::3] = 0.0
    summed_bytes = 0.0 if frozen else chunks * plans.width * plans.accumulated * columns * h
    summed = profile.seconds(Elementwise(summed_bytes))
    forward_products = times[::3].sum(axis=0)
    forward = forward_products + memory[0] / site.hbm_fraction
    data_and_weight = times.sum(axis=0) - forward_products
    weight = times[2::3].sum(axis=0) + summed / site.hbm_fraction
    backward = data_and_weight + (memory[1] + summed) / site.hbm_fraction + reduced
    if not model.mtp_layers:
        return forward, backward, weight
    # Each MTP head has a loss of its own, and a projection of what it reads (DeepSeek-V3, section 2.2).
    heads, sides = model.mtp_layers, (workload.tokens, wide / plans.tp, 2 * wide)
    token_rows, narrow, both = sides
    m, n, k = np.array([sides, (token_rows, both, narrow), (narrow, both, token_rows)]).swapaxes(0, 1)
    projected = heads * workload.gemm_factor * workload.gemm_s(m, n, k)
    losses = 1 + heads
    return (
        losses * forward + projected[0],
        losses * backward + projected[1] + projected[2],
        losses * weight + projected[2],
    )


def _loss_bytes(workload: Workload) -> tuple[Array | float, Array | float]:
    """Bytes per logit of the cross-entropy, forward and backward, (plans,) or of all plans."""
    wide = workload.plans.in_32_bit
    in_16_bit, in_32_bit = ((2.0, 4.0), (4.0, 8.0)) if workload.fused_loss else ((36.0, 14.0), (30.0, 8.0))
    if not any_of(wide):
        return in_16_bit
    return np.where(wide, in_32_bit[0], in_16_bit[0]), np.where(wide, in_32_bit[1], in_16_bit[1])
