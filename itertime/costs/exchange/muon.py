"""Muon: momentum of matrices, made orthogonal by Newton-Schulz steps; Adam for all other parameters.

Jordan et al. 2024; Liu et al., Muon is Scalable for LLM Training (2025), algorithm 1 and section 2.3. A step
on X of n x m, n <= m, has three products in 16 bit: A = X X^T, B = b A + c A A, X = a X + B X; that is
4 n^2 m + 2 n^3 FLOPs. Queries, keys and values are matrices of their own, and so are gate and up. Embedding,
projection, norms and biases stay under Adam.

A tensor-parallel rank makes its own part of a matrix orthogonal (`muon_tp_mode=blockwise`, the default of
Megatron Core). With ZeRO-1 whole matrices are divided over the ranks (its layer-wise distributed optimizer);
that they divide evenly, up to the largest one, is assumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from itertime.arrays import Array, Whole
from itertime.costs.linear import linear_gemms
from itertime.costs.partition import Workload

from .groups import expert_copies

# Momentum (12), Nesterov's look-ahead (12), norm and division of the input (12), scale of the result (8),
# decay (8), addition to the weight (12), each a kernel of its own for each matrix (OrthogonalizedOptimizer of
# NVIDIA's emerging_optimizers).
UPDATE_BYTES = 64.0
"""Bytes per parameter of a matrix that the step moves beside its products, copies and unscaling."""
KERNELS = 7
"""Memory-bound kernels of one matrix."""


class Matrices(NamedTuple):
    """Equal matrices of one layer on one GPU: how many, and their sides, (plans,) each."""

    number: Array
    rows: Array
    columns: Array

    @property
    def elements(self) -> Array:
        """Elements of all of them."""
        return self.number * self.rows * self.columns


def orthogonal_s(workload: Workload, counts: Whole) -> Array:
    """Seconds of the Newton-Schulz products of a rank of a stage with so many layers of each form, (forms,
    plans).
    """
    plans, shards = workload.plans, workload.plans.optimizer_shards
    common, experts = _of_stage(workload, counts)
    seconds = _divided_s(workload, common, shards)
    return seconds + _divided_s(workload, experts, expert_copies(plans, shards)) if experts else seconds


def left_to_adam(workload: Workload, counts: Whole) -> tuple[Array, Array]:
    """Parameters of these layers on one GPU that are in no matrix: of what all ranks have, and of experts.

    `counts`: layers of each form, (forms, ..., plans).
    """
    common, experts = _of_stage(workload, counts)
    # `Partition.shared` has a part of the router, which every rank holds whole.
    router = 1 - 1 / workload.plans.tp
    held = sum(
        count * (form.shared_parameters + router * form.model.router_parameters)
        for form, count in zip(workload.forms, counts, strict=True)
    )
    of_experts = sum(
        count * form.expert_parameters for form, count in zip(workload.forms, counts, strict=True)
    )
    return _beyond(np.asarray(held), common), _beyond(np.asarray(of_experts), experts)


def _beyond(parameters: Array, matrices: list[Matrices]) -> Array:
    """Of so many parameters those outside the matrices; none where rounding leaves less."""
    elements = sum((each.elements for each in matrices), np.zeros(parameters.shape))
    return np.maximum(parameters - elements, 0.0)


def _divided_s(workload: Workload, matrices: list[Matrices], ranks: Whole) -> Array:
    """Seconds of the rank that takes longest where `ranks` ranks divide the matrices among them."""
    each_s = _one_matrix_s(workload, matrices)
    counts = np.array([np.broadcast_to(each.number, each_s.shape[1:]) for each in matrices])
    largest_s = np.where(counts > 0, each_s, 0.0).max(axis=0)
    return np.maximum((counts * each_s).sum(axis=0) / ranks, largest_s)


def _one_matrix_s(workload: Workload, matrices: list[Matrices]) -> Array:
    """Seconds of all products of one matrix of each kind, (kinds, plans)."""
    sides = np.array([np.broadcast_arrays(each.rows, each.columns) for each in matrices])
    short, long = sides.min(axis=1), sides.max(axis=1)
    products = workload.gemm_s(
        np.array([short, short, short]), np.array([short, short, long]), np.array([long, short, short])
    )
    steps = workload.plans.options.newton_schulz_steps
    return np.asarray(steps * workload.gemm_factor * products.sum(axis=0))


def _of_stage(workload: Workload, counts: Whole) -> tuple[list[Matrices], list[Matrices]]:
    """The matrices of a stage on one GPU: those that all ranks have, and those of experts."""
    common: list[Matrices] = []
    experts: list[Matrices] = []
    for form, count in zip(workload.forms, counts, strict=True):
        common += _times(count, _common(form))
        experts += _times(count, _of_experts(form))
    return common, experts


def _of_experts(form: Workload) -> list[Matrices]:
    """The matrices of one layer's experts on one GPU; none without experts."""
    model, plans = form.model, form.plans
    if model.experts == 1:
        return []
    hidden, width = np.full(len(plans), float(model.hidden)), model.ffn_hidden / plans.etp
    local = model.experts / plans.ep
    return [Matrices(local * (2 if model.gated_mlp else 1), width, hidden), Matrices(local, hidden, width)]


def _times(layers: Whole, matrices: list[Matrices]) -> list[Matrices]:
    return [each._replace(number=np.asarray(each.number * layers)) for each in matrices]


def _common(form: Workload) -> list[Matrices]:
    """The matrices of one layer that all data-parallel ranks have."""
    model, plans = form.model, form.plans
    one = np.ones(len(plans))
    shapes = [Matrices(one, np.asarray(n), np.asarray(k)) for _, n, k in linear_gemms(form)]
    if model.attends and not model.latent_kv:  # the first product has queries, keys and values at once
        hidden = shapes[0].columns
        keys = Matrices(2 * one, model.kv_hidden / np.minimum(plans.tp, model.kv_heads), hidden)
        shapes[:1] = [Matrices(one, model.q_hidden / plans.tp, hidden), keys]
    if model.experts > 1:
        shapes.append(Matrices(one, model.experts * one, model.hidden * one))
    return shapes
