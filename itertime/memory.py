"""Bytes of GPU memory, by part, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from itertime.edges import padded_vocab
from itertime.model import ModelSpec
from itertime.plan import RECOMPUTE, PlanBatch
from itertime.profile import Profile
from itertime.stages import FIRST, HEAVY, LAST, StageLayout, stage_layout
from itertime.system import System

__all__ = ["Memory", "memory"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU of each plan: the parts and their sum, (plans,) each."""

    parts: dict[str, Array]
    total: Array
    capacity: float

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self.total <= self.capacity


def memory(model: ModelSpec, plans: PlanBatch, system: System, profile: Profile) -> Memory:
    """Memory of the fullest stage: the first (most micro-batches in flight), the second, or the last (logits)."""
    layout = stage_layout(model, plans)
    kinds = [_stage(model, plans, layout, kind) for kind in (FIRST, HEAVY, LAST)]
    totals = np.stack([sum(parts.values(), np.zeros(len(plans))) for parts in kinds])
    fullest = totals.argmax(axis=0)
    parts = {name: np.choose(fullest, [kind[name] for kind in kinds]) for name in kinds[0]}
    parts["overhead"] = np.full(len(plans), system.site.memory_overhead_bytes)
    return Memory(parts, sum(parts.values(), np.zeros(len(plans))), profile.memory_bytes)


def _stage(model: ModelSpec, plans: PlanBatch, layout: StageLayout, kind: int) -> dict[str, Array]:
    exists = layout.stages[kind] > 0
    layers = layout.layers[kind]
    single = plans.pp == 1
    vocab = padded_vocab(model, plans.tp) * model.hidden / plans.tp
    tables = np.zeros(len(plans))
    if kind == FIRST:
        tables = vocab
    elif kind == LAST:
        tables = np.where(single, vocab * (1 if model.tied_embeddings else 2), vocab)
    parameters = layers * model.layer_parameters / plans.tp + tables
    group = plans.zero_group
    position = plans.pp - 1 if kind == LAST else {FIRST: 0, HEAVY: 1}[kind]
    in_flight = np.where(plans.gpipe, plans.microbatches, np.minimum(plans.pp - position, plans.microbatches))
    v = plans.interleave
    in_flight = in_flight * np.where(v > 1, 1 + (plans.pp - 1) / (plans.pp * v), 1.0)
    kept, live = _activations(model, plans)
    tokens = plans.micro_batch * model.seq_len
    logits = (
        tokens * padded_vocab(model, plans.tp) / plans.tp * 10.0 if kind == LAST else np.zeros(len(plans))
    )
    parts = {
        "weights": 2.0 * parameters / np.where(plans.zero_stage >= 3, group, 1),
        "gradients": 2.0 * parameters / np.where(plans.zero_stage >= 2, group, 1),
        "optimizer": 12.0 * parameters / np.where(plans.zero_stage >= 1, group, 1),
        "activations": kept * layers * in_flight + live,
        "logits": logits,
    }
    return {name: np.where(exists, value, 0.0) for name, value in parts.items()}


def _activations(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array]:
    """Bytes one layer keeps per micro-batch, and those of the one layer that is live during recomputation.

    Korthikanti et al. (2022), section 4: s b h (10 + 24/t + 5 a s / h t) for a 4h GELU MLP with dropout; each term is written
    here for any shape. Full recompute keeps the layer's input, 2 s b h; selective drops the term in s^2.
    """
    t = 1.0 * plans.tp
    tokens = 1.0 * plans.micro_batch * model.seq_len
    h, f = model.hidden, model.ffn_hidden
    shared = np.where(plans.sequence_parallel, t, 1.0)
    outside = (10.0 if model.dropout else 8.0) * h / shared
    inside = (2 * h + 2 * (h + 2 * model.kv_hidden) + (6 if model.gated_mlp else 4) * f) / t
    scores = (
        (5.0 if model.dropout else 2.0) * model.heads * model.seq_len / t
        if model.attention == "core"
        else 4.0 * model.heads / t
    )
    whole = tokens * (outside + inside + scores)
    without_scores = tokens * (outside + inside)
    given = tokens * 2 * h / shared
    kept = np.choose(plans.recompute, [whole, without_scores, given])
    live = np.choose(plans.recompute, [np.zeros_like(whole), tokens * scores, whole])
    assert RECOMPUTE == ("none", "selective", "full")
    return kept, live
