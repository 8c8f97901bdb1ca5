"""Seconds of towers for images, which the model's first stage runs ahead of its layers.

A tower is a stack of layers of its own, on sequences of patches. Its layers cost what those of a model of
such layers cost; tensor parallelism splits them in the same way. Context-parallel ranks each run it on all
images of their samples, and sequence parallelism leaves it as it is (Megatron-LM, examples/multimodal, whose
model.py switches both off for tower and projector). It runs micro-batch by micro-batch, in the first chunk of
the first stage (Megatron Core's `LLaVAModel` with its encoder on the stage of the embedding). A frozen tower
has a forward pass alone, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.costs.exchange import Moved, Shards, moved_s
from itertime.costs.layer import LayerCosts, Parts, layer_costs
from itertime.costs.network import all_reduce_s
from itertime.costs.parallel_comm import activation_all_reduce_s, tensor_group
from itertime.costs.partition import Workload
from itertime.spec import Elementwise


@dataclass(frozen=True)
class TowerPass:
    """Seconds of one pass of a micro-batch: one layer of each stack by part, and the matrices at both ends of
    all towers, (plans,).
    """

    layers: tuple[Parts, ...]
    ends: Array

    def take(self, rows: Whole) -> TowerPass:
        layers = tuple({part: seconds[rows] for part, seconds in parts.items()} for parts in self.layers)
        return TowerPass(layers, self.ends[rows])


def tower_passes(workload: Workload) -> tuple[TowerPass, TowerPass]:
    """Forward and backward pass of the towers on one micro-batch."""
    layers: list[LayerCosts] = []
    for tower in workload.towers:
        layers += layer_costs(tower, activation_all_reduce_s(tower))
    ends = _ends_s(workload)
    return (
        TowerPass(tuple(layer.forward for layer in layers), ends[0]),
        TowerPass(tuple(layer.backward for layer in layers), ends[1]),
    )


def _ends_s(workload: Workload) -> tuple[Array, Array]:
    """Forward and backward seconds of the matrices that embed patches and of the projectors, in 16 bit.

    Every rank embeds all patches; a projector is split over the tensor-parallel ranks, which sum its result.
    Between its matrices is a GELU. Nothing needs gradients of pixels.
    """
    model, plans, profile = workload.model, workload.plans, workload.profile
    forward, backward = np.zeros(len(plans)), np.zeros(len(plans))
    for name, tower in model.towers:
        trained, images = model.trains_tower(name), _images(workload)
        shapes = [(images * tower.image_tokens, *shape) for shape in tower.projector_shapes]
        products, inner = _products_s(workload, shapes, plans.tp), len(tower.projector) - 1
        widened = 4.0 * images * tower.image_tokens * sum(tower.projector[:inner]) / plans.tp
        activated = profile.seconds(Elementwise(np.array([widened, 1.5 * widened]), "gelu"))
        activated = tower.projectors * activated / workload.system.site.hbm_fraction
        forward = forward + products[0] + activated[0]
        if tower.projector and any_of(plans.tp > 1):
            summed = 2.0 * plans.width * images * tower.image_tokens * model.hidden
            forward = forward + all_reduce_s(summed, tensor_group(workload), workload.fabric)
        if model.trains_projector or trained:
            backward = backward + trained * products[1] + activated[1]
            backward = backward + model.trains_projector * products[2]
        if tower.patch_width:
            shape = (images * tower.tokens, tower.patch_width, tower.hidden)
            products = _products_s(workload, [shape], np.ones_like(plans.tp))
            forward, backward = forward + products[0], backward + trained * products[2]
    return forward, backward


def _images(workload: Workload) -> Array:
    """Images of a micro-batch, (plans,)."""
    return np.asarray(workload.plans.micro_batch * workload.model.images, dtype=float)


def _products_s(workload: Workload, shapes: Sequence[tuple[Array, int, int]], ranks: Whole) -> Array:
    """Seconds of y, dx and dw of matrices on so many rows, (3, plans); `ranks` share their wider side."""
    if not shapes:
        return np.zeros((3, len(workload)))
    times = []
    for rows, narrow, wide in shapes:
        n, k = np.full(len(workload), float(wide)) / ranks, np.full(len(workload), float(narrow))
        products = np.array([(rows, n, k), (rows, k, n), (k, n, rows)]).swapaxes(0, 1)
        times.append(workload.gemm_factor * workload.gemm_s(*products))
    return np.asarray(sum(times[1:], times[0]))


def towers_s(workload: Workload, micro_batch: TowerPass, backward: bool) -> Array:
    """Seconds of a pass of the towers, (plans,), with what ZeRO-2 and ZeRO-3 move of their layers and what no
    layer hides of it.
    """
    moves = _moves(workload) if any_of(workload.plans.scatters_gradients) else None
    seconds = micro_batch.ends
    for number, (stack, parts) in enumerate(
        zip(workload.model.tower_stacks, micro_batch.layers, strict=True)
    ):
        count = stack.model.layers
        of_layer = sum(parts.values(), np.zeros(len(workload)))
        seconds = seconds + count * of_layer
        if moves is None or (backward and not stack.model.passes_back):
            continue
        travels = moves[number].backward + moves[number].scatter if backward else moves[number].forward
        hidden = np.where(workload.prefetch, of_layer, 0.0)
        exposed = count * np.maximum(travels - hidden, 0.0)
        if not backward and number == 0:  # nothing precedes the first gather
            exposed = exposed + np.minimum(travels, hidden)
        contention = workload.contention * np.maximum(count * travels - exposed, 0.0)
        seconds = seconds + exposed + contention
    return seconds


def _moves(workload: Workload) -> list[Moved]:
    """What ZeRO-2 and ZeRO-3 move of one layer of each stack of the towers."""
    plans = workload.plans
    shards = Shards.of(plans)
    return [
        moved_s(workload, stack.model.layer_parameters / plans.tp, shards, plans.tp)
        for stack in workload.model.tower_stacks
    ]
