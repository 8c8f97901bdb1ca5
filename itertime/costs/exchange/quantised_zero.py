"""ZeRO++: what ZeRO-3 gathers and scatters with every micro-batch, in fewer bits and over fewer links.

Wang et al. (2023), section 3, with DeepSpeed 0.10.3 (`partition_parameters.py`, `coalesced_collectives.py`):

- quantised weights (qwZ): a rank quantises its shard to 8 bit, with a scale for each 8,000 weights, before
  the all-gather, and dequantises what it receives;
- secondary shards (hpZ): after the forward gather every rank keeps a share of the weights. The ranks of one
  node hold all shares, so the backward pass gathers within the node;
- quantised gradients (qgZ): `compression=int4` or `int8` in place of the reduce-scatter.

All three together send 0.75 M bytes of a model of M bytes in 16 bit between nodes in place of 3 M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.costs.network import all_gather_s
from itertime.costs.partition import Workload
from itertime.spec import Elementwise

from .compression import scattered_s
from .compression_kernels import scatter_kernel_bytes
from .groups import Shards, collective_s, data_parallel_group

WEIGHT_BYTES = 1.0 + 4.0 / 8000
"""A quantised weight and its part of a scale (`CUDAQuantizer.target_group_size`)."""


@dataclass(frozen=True)
class Moved:
    """Seconds to gather weights for the forward pass and for the backward pass, and to scatter gradients."""

    forward: Array
    backward: Array
    scatter: Array

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            self.forward + other.forward, self.backward + other.backward, self.scatter + other.scatter
        )


def moved_s(workload: Workload, parameters: Array, shards: Shards, spacing: Whole) -> Moved:
    """Seconds to move weights and gradients of `parameters` parameters per GPU, whose ranks with `shards` are
    `spacing` GPUs from each other.
    """
    plans = workload.plans
    gathering = scattering = data_parallel_group(workload, shards.gradients, spacing)
    if not np.array_equal(shards.weights, shards.gradients):
        gathering = data_parallel_group(workload, shards.weights, spacing)
    nbytes = (WEIGHT_BYTES if plans.options.quantized_weights else 2.0 * plans.width) * parameters
    gathers = plans.gathers_weights
    forward = backward = collective_s(all_gather_s, workload, gathering, gathers, nbytes)
    if plans.options.secondary_shards is not None:
        secondary_group = data_parallel_group(
            workload, np.minimum(_secondary(workload), shards.weights), spacing
        )
        backward = collective_s(all_gather_s, workload, secondary_group, gathers, nbytes)
    scatter = scattered_s(workload, scattering, plans.scatters_gradients, parameters)
    return Moved(forward, backward, scatter)


def pass_kernels_s(workload: Workload) -> list[Array]:
    """Seconds that a stage's kernels add to the forward and the backward pass of one micro-batch, (4, plans):
    they quantise, unpack and sum. Empty where no plan has any.
    """
    plans, options, partition = workload.plans, workload.plans.options, workload.partition
    scatters = options.compression != "none" and any_of(plans.scatters_gradients)
    if not (options.quantized_weights or options.secondary_shards is not None or scatters):
        return []
    none, gathers = np.zeros(len(plans)), plans.gathers_weights
    forward, backward = none, none
    if options.quantized_weights:  # reads 2 bytes and writes 1, or the reverse
        forward = forward + np.where(gathers, 3.0 + 3.0 / plans.weight_shards, 0.0)
        backward = backward + np.where(gathers, 3.0 + 3.0 / _secondary(workload), 0.0)
    if options.secondary_shards is not None:  # copies the share that it keeps
        forward = forward + np.where(gathers, 4.0 / _secondary(workload), 0.0)
    if scatters:
        local = np.minimum(plans.gradient_shards, workload.system.domain_gpus)
        summed = np.where(plans.scatters_gradients, scatter_kernel_bytes(workload, local), 0.0)
        backward = backward + summed
    shared, experts = partition.layer_parameters
    parameters = np.array(shared + experts + partition.tables)
    layers = np.maximum(partition.layers, 1)
    hbm = workload.system.site.hbm_fraction
    return [
        layers * workload.profile.seconds(Elementwise(nbytes * parameters / layers)) / hbm
        for nbytes in (forward, backward)
    ]


def _secondary(workload: Workload) -> Whole:
    """Ranks that share one copy of the weights for the backward pass, (plans,)."""
    plans, shards = workload.plans, workload.plans.options.secondary_shards
    return plans.weight_shards if shards is None else np.full(len(plans), shards)


def secondary_bytes(workload: Workload) -> Array | float:
    """Bytes of a secondary copy for every parameter of a GPU's stage, (plans,): 16 bit, or 8."""
    options = workload.plans.options
    if options.secondary_shards is None:
        return 0.0
    weight = WEIGHT_BYTES if options.quantized_weights else 2.0
    return np.where(workload.plans.gathers_weights, weight / _secondary(workload), 0.0)
