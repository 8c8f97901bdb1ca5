"""Bytes of GPU memory by part, and whether they fit.

Mixed precision: 16-bit weights and gradients (32-bit gradients where the plan says so), and per parameter 12
bytes of Adam with 32-bit master weights, divided over ZeRO's groups (Rajbhandari et al., ZeRO, SC'20, section
3.1). While the optimizer runs it holds its gradients in 32 bit; the activations have been freed before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.spec import PlanBatch

from .data_parallel import expert_copies
from .partition import FIRST, HEAVY, LAST, Workload

__all__ = ["BUFFERS_BYTES", "MEMORY_HEADROOM", "Memory", "checked_headroom", "memory"]

Array = NDArray[np.float64]
# CUDA context, cuBLAS workspaces and NCCL channels about 2 GB; gradient buckets of 5e8 elements, two to
# reduce and one to gather (DeepSpeed's defaults), 3 GB; 1 GB lost between blocks of the allocator. Assumed.
BUFFERS_BYTES = 6e9
MEMORY_HEADROOM = 0.1
"""The share of a GPU's memory that plans leave free by default; docs/itertime.md has the evidence for it."""
_STAGES = [FIRST, HEAVY, LAST]
_SECOND, _LAST_ONE = np.array([[0], [1], [0]]), np.array([[0], [0], [1]])


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU of each plan: the parts and their sum, (plans,) each.

    `capacity`: bytes of the GPU. `headroom`: the share of them that a plan must leave free to fit.
    """

    parts: dict[str, Array]
    total: Array
    capacity: float
    headroom: float = 0.0

    @property
    def limit(self) -> float:
        """The most bytes that a plan may need."""
        return (1 - self.headroom) * self.capacity

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self.total <= self.limit


def checked_headroom(headroom: float) -> float:
    """`headroom`, a share of the memory. Raises UserError unless it is at least 0 and below 1."""
    if not 0 <= headroom < 1:
        raise UserError(
            f"memory_headroom={headroom}: must be a share of the GPU's memory, at least 0 and below 1"
        )
    return headroom


def memory(workload: Workload, headroom: float = MEMORY_HEADROOM) -> Memory:
    """Memory of the fullest stage: the first (most in flight), the second, or the last (logits).

    A plan fits if it leaves `headroom`, a share of the GPU's memory, free.
    """
    site, partition = workload.system.site, workload.partition
    stages = _parts(workload)
    totals = np.where(partition.stages[_STAGES] > 0, sum(stages.values(), np.zeros(len(workload))), -1.0)
    fullest, column = totals.argmax(axis=0), np.arange(len(workload))
    parts = {name: value[fullest, column] for name, value in stages.items()}
    parts["buffers"] = np.full(len(workload), BUFFERS_BYTES)
    needed = sum(parts.values(), np.zeros(len(workload)))
    parts["site"] = (site.memory_multiplier - 1) * needed + site.memory_overhead_bytes
    capacity = workload.profile.memory_bytes
    return Memory(parts, needed + parts["site"], capacity, checked_headroom(headroom))


def _parts(workload: Workload) -> dict[str, Array]:
    """Bytes by part of the first, the second and the last stage, (3, plans)."""
    model, plans, partition = workload.model, workload.plans, workload.partition
    layers = partition.layers[_STAGES]
    # This layer's weights and the next one's.
    gathered = np.where(plans.zero_stage == 3, 2 * 2.0 * (partition.shared + partition.experts), 0.0)
    # A tied embedding is on both ends of the pipeline.
    ends = np.array([partition.table, np.zeros(len(plans)), partition.tables])
    shared, experts = (parameters[_STAGES] for parameters in partition.layer_parameters())
    shared = shared + ends
    optimizer, gradients, weights = (_owned(plans, shared, experts, stage) for stage in (1, 2, 3))
    kept, live, given = _activations(workload)
    kept_by_stage = kept * layers
    if model.dense_layers:
        dense = partition.dense[_STAGES]
        kept_by_dense, live_in_dense, _ = _activations(workload.dense_form())
        kept_by_stage = kept * (layers - dense) + kept_by_dense * dense
        live = np.where(
            layers > dense, np.where(dense > 0, np.maximum(live, live_in_dense), live), live_in_dense
        )
    held = (kept_by_stage + given) * _in_flight(plans)
    per_logit = 2.0 if model.fused_loss else 10.0  # logits in place, or 16 bit, 32 bit and their softmax
    predicted = plans.tokens(model.seq_len) * model.predicted_share
    logits = np.zeros(layers.shape)
    logits[-1] = predicted * partition.vocab / plans.tp * per_logit
    return {
        "weights": 2.0 * weights + gathered,
        "gradients": np.where(plans.fp32_gradients, 6.0, 2.0) * gradients,
        "optimizer": 12.0 * optimizer,
        "activations": held + live,
        "logits": logits,
        "optimizer_step": np.maximum(4.0 * optimizer - held - live - logits, 0.0),
    }


def _owned(plans: PlanBatch, shared: Array, experts: Array, stage: int) -> Array:
    """Parameters that a GPU keeps of what ZeRO shards from `stage` on."""
    group = np.where(plans.zero_stage >= stage, plans.zero_group, 1)
    if not experts.any():
        return shared / group
    return shared / group + experts / expert_copies(plans, group)


def _in_flight(plans: PlanBatch) -> Array:
    """Micro-batches whose activations a stage holds: p - i in 1F1B (SC'21, section 2.2), all in GPipe.

    Interleaved, the first stage holds 1 + (p - 1) / (p v) times as many (Korthikanti et al. 2022, section
    4.2.3).
    """
    position = _SECOND + _LAST_ONE * (plans.pp - 1)
    many = np.where(plans.gpipe, plans.microbatches, np.minimum(plans.pp - position, plans.microbatches))
    return many * np.where(plans.interleave > 1, 1 + (plans.pp - 1) / (plans.pp * plans.interleave), 1.0)


def _activations(workload: Workload) -> tuple[Array, Array, Array]:
    """Bytes per micro-batch: what a layer keeps, what a layer holds while it is recomputed, a layer's input.

    Korthikanti et al. (2022), section 4: s b h (10 + 24/t + 5 a s / h t) for a 4h GELU MLP with dropout, each
    term written here for any shape. Full recompute keeps the layer's input, 2 s b h; selective drops the term
    in s^2; that of memory-bound kernels drops the outputs of norms and of the activation.
    """
    model, plans = workload.model, workload.plans
    t = 1.0 * plans.tp
    tokens = plans.tokens(model.seq_len)
    h, f = model.hidden, model.shared_ffn_hidden if model.experts > 1 else model.ffn_hidden
    shared = np.where(plans.sequence_parallel, t, 1.0)
    norms = 2.0 * (model.norms_per_layer - 2)  # the inputs of norms beyond the usual two
    outside = tokens * ((10.0 if model.dropout else 8.0) + norms) * h / shared
    # queries, keys, values and the attention's output; the MLP's two inputs, or SwiGLU's four
    heads = 2 * model.q_hidden + 2 * model.kv_hidden
    if model.latent_kv:
        heads = model.query_width + model.key_width + 2 * model.v_hidden
        latents = model.latent_q + model.latent_kv  # before and after their norms
        outside = outside + tokens * (4 * latents + 2 * model.rope_head_dim) / shared
    inside = tokens * (2 * heads + (8 if model.gated_mlp else 4) * f) / t
    light = tokens * (4 * h / shared + 2 * f / t)  # outputs of norms and of the activation
    if model.experts > 1:
        copies = tokens / shared * model.experts_per_token * np.minimum(model.load_imbalance, 1.0 * plans.ep)
        # An expert's input, what its activation reads and writes. Weighted there, its output is not kept.
        inside = inside + copies * (2 * h + (6 if model.gated_mlp else 4) * model.ffn_hidden)
        light = light + copies * 2 * model.ffn_hidden
    if model.attention == "core":
        scores = tokens * (5.0 if model.dropout else 2.0) * model.heads * model.seq_len / t
    else:
        scores = tokens * 4.0 * model.heads / t  # the kernel's row sums
    given = tokens * 2 * h / shared
    whole = outside + inside + scores
    options = [whole, outside + inside, given, given, whole - light]
    kept = np.choose(plans.recompute, options)
    share = plans.recompute_permille / 1000
    kept = share * kept + (1 - share) * whole
    live = np.choose(plans.recompute, [np.zeros(len(plans)), scores, whole, whole, light])
    return kept, live, given
