"""Bytes that the first stage keeps of towers for images."""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array
from itertime.costs.partition import Workload

from .activations import activations_of


def kept_of_towers(workload: Workload) -> tuple[Array, Array]:
    """Bytes per micro-batch that the first stage keeps of towers, and holds to repeat a layer, (plans,).

    Projectors keep their inputs and those of their activations; patches are kept for the matrix that embeds
    them. What a frozen tower computes is kept only as the input of a projector that is trained.
    """
    model, plans = workload.model, workload.plans
    kept_bytes, live_bytes = np.zeros(len(plans)), np.zeros(len(plans))
    for stack, tower in zip(model.tower_stacks, workload.towers, strict=True):
        if stack.model.passes_back:
            activations = activations_of(tower)
            kept_bytes = kept_bytes + stack.model.layers * activations.kept
            live_bytes = np.maximum(live_bytes, activations.live)
    for name, keys in model.towers:
        images = plans.micro_batch * float(model.images)
        rows = images * keys.image_tokens
        if model.trains_tower(name) or model.trains_projector:
            inputs = sum(narrow for narrow, _ in keys.projector_shapes)
            inner = keys.projectors * sum(keys.projector[:-1]) / plans.tp
            kept_bytes = kept_bytes + 2.0 * rows * (inputs * model.trains_projector + inner)
        if model.trains_tower(name):
            kept_bytes = kept_bytes + 2.0 * images * keys.tokens * keys.patch_width
    return kept_bytes, live_bytes
