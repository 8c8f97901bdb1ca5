"""Seconds of copies of activations from a GPU to its CPU and back.

The layers of a stage run while copies of some of them travel, out during the forward pass and back during the
backward pass of the same micro-batch; what lasts longer than the layers is exposed (Transformer Engine's
`cpu_offload`, which spreads the copies over all layers of a stage).
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, any_of

from .memory import activations_of
from .offload import copy_s
from .partition import Workload


def activation_copies_s(workload: Workload) -> Array:
    """Seconds to copy what a stage's offloaded layers keep of one micro-batch, one way, (4, plans)."""
    plans, partition = workload.plans, workload.partition
    if not any_of(plans.offload_layers):
        return np.zeros(partition.layers.shape)
    layers = np.minimum(plans.offload_layers, partition.layers)
    kept, *beside = (activations_of(form).kept for form in workload.forms)
    bytes_per_layer: Array = kept
    for count, kept_beside in zip(partition.counts[1:], beside, strict=True):
        share = count / np.maximum(partition.layers, 1)
        bytes_per_layer = bytes_per_layer + share * (kept_beside - kept)
    return copy_s(layers * bytes_per_layer, workload.system)
