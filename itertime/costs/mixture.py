"""Seconds of a mixture's experts on one micro-batch: matrix products, kernels that move tokens, dispatch.

A rank holds T = b s / (cp tp) tokens of a micro-batch when they reach the router (a mixture needs sequence
parallelism). Each goes to k of E experts (Shazeer et al. 2017; GShard, Lepikhin et al. 2021, section 2.2).
The matrices of an expert are split over `etp` ranks, and the experts are spread over `ep` such groups. Ranks
count etp first, then ep, then the copies of an expert (Megatron Core, "MoE parallel folding", 2025). So T k
etp copies arrive at a rank, in E / ep groups of equal size. The busiest rank, which all others wait for, has
`load_imbalance` times as many.

No token is dropped: the products are grouped GEMMs over groups of any size (MegaBlocks, Gale et al. 2023).
The gradient of an expert's weights is added to its sum in the product's epilogue, so the longer of product
and sum counts. Grok-1's runs show it: one expert a GPU in place of two saves 0.25 ms of a layer
(NVIDIA/dgxc-benchmarking, 32 and 16 GPUs), where a separate kernel would move 6 GB less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.spec import (
    CUDA_GRAPHS,
    DISPATCHERS,
    PRECISIONS,
    Elementwise,
    Gemm,
    GroupedGemm,
    ModelSpec,
    PlanBatch,
)

from .linear import operand_casts_s
from .memory_bound import Kernel
from .network import (
    RoutedTokens,
    all_gather_s,
    combine_s,
    dispatch_s,
    distinct_parts,
    reduce_scatter_s,
)
from .parallel_comm import neighbours
from .partition import Workload

# Rows of each expert's operand are a multiple of it: FP8 tensor cores need 16, a block of scales 32
# (Transformer Engine, `Fp8Padding`).
_ROWS = {"fp8": 16, "fp8_block": 16, "mxfp8": 32, "nvfp4": 32}
# Kernels of Megatron Core's TopKRouter: gating, cast, softmax, top-k, normalisation, two maps of zeros and
# their scatters; the loss of balance with its means, product, scale and log. Counted in its code (core 0.12).
_ROUTER_KERNELS, _ROUTER_BACKWARD = 20, 14
# Tokens per expert summed, exchanged, gathered, copied to the CPU; the index of the permutation.
_COUNTING_KERNELS = 10
# A grouped GEMM is one call, whose library issues one product per expert, a quarter of a call's CPU time each
# (Transformer Engine's `general_grouped_gemm` loops over cuBLAS). The quarter is assumed.
_GROUP_CALLS = 0.25
# Kernels of `_apply_bias` for each expert, and once: products and sums; joining and casting.
_BIAS_KERNELS, _BIAS_BACKWARD, _BIAS_ONCE = 2, 4, 2
# Time of eager memory-bound kernels over the profile's: `elementwise_multiplier` of the framework eager.
_EAGER = 1.67
_ALL_TO_ALL, _HYBRIDEP = DISPATCHERS.index("alltoall"), DISPATCHERS.index("hybridep")


@dataclass(frozen=True)
class Experts:
    """Seconds of the products of router and experts on one micro-batch, by pass, and of casts for them; of
    the backward pass those that give gradients of weights.
    """

    forward: Array
    backward: Array
    casts_forward: Array
    casts_backward: Array
    weight: Array


def arriving_tokens(workload: Workload) -> Array:
    """Copies of tokens that arrive at the busiest rank of experts. With ep = 1 no rank is busier."""
    model, plans = workload.model, workload.plans
    return _local_tokens(workload) * model.experts_per_token * plans.etp * _imbalance(workload)


def _local_tokens(workload: Workload) -> Array:
    """Tokens of a micro-batch on one rank when they reach the router."""
    return workload.tokens / workload.sequence_split


def _imbalance(workload: Workload) -> Array:
    """Tokens of the busiest rank over the mean: at most all of them, ep times the mean."""
    return np.minimum(workload.model.load_imbalance, 1.0 * workload.plans.ep)


def experts_s(workload: Workload) -> Experts:
    """The router's product, in 16 bit whatever the plan's precision, and the experts' grouped ones.

    An expert's up and gate projections are one product (Megatron Core), y = x w; backward dx = dy w^T and
    dw = x^T dy.
    """
    model, plans, profile, framework = workload.model, workload.plans, workload.profile, workload.framework
    site, nothing = workload.system.site, np.zeros(len(workload))
    multiplier = workload.gemm_factor
    routed, h = _local_tokens(workload), nothing + model.hidden
    router = multiplier * profile.seconds(Gemm.of_both_passes(routed, nothing + model.experts, h))
    grouped, casts = np.zeros((3, len(workload))), np.zeros((2, len(workload)))
    for code in set(plans.precision.tolist()):
        times, cast = _grouped_s(workload, PRECISIONS[code])
        grouped = np.where(plans.precision == code, times, grouped)
        casts = np.where(plans.precision == code, cast, casts)
    grouped = multiplier * framework.expert_multiplier * grouped
    if model.weights_frozen:
        small = multiplier * _low_rank_s(workload) if model.expert_lora_shapes else np.zeros_like(grouped)
        without_weights = np.array([[1.0], [1.0], [0.0]])
        router, grouped = router * without_weights, small + grouped * without_weights
    else:
        summed = (plans.accumulated - 2) * workload.expert_parameters
        grouped[2] = np.maximum(grouped[2], profile.seconds(Elementwise(summed)) / site.hbm_fraction)
    forward, backward = router[0] + grouped[0], router[1] + router[2] + grouped[1] + grouped[2]
    casts = framework.cast_multiplier * casts / site.hbm_fraction
    return Experts(forward, backward, casts[0], casts[1], router[2] + grouped[2])


def _grouped_s(workload: Workload, precision: str) -> tuple[Array, Array]:
    """Seconds of an expert's products, (y dx dw, plans), and of the casts, (passes, plans)."""
    model, plans, profile = workload.model, workload.plans, workload.profile
    groups = model.experts / plans.ep
    rows = np.maximum(arriving_tokens(workload) / groups, 1.0)
    if precision in _ROWS:
        rows = np.ceil(rows / _ROWS[precision]) * _ROWS[precision]
    h, f = np.full(len(plans), float(model.hidden)), model.ffn_hidden / plans.etp
    up_columns = (2 if model.gated_mlp else 1) * f
    m, n, k = np.array([[rows, rows], [up_columns, h], [h, f]])
    times = profile.seconds(GroupedGemm.of_both_passes(m, n, k, groups, precision)).sum(axis=1)
    if precision == "bf16":
        return times, np.zeros((2, len(plans)))
    casts = [operand_casts_s(profile, rows * groups * width, precision).sum(axis=0) for width in (k, n)]
    return workload.framework.fp8_multiplier * times, np.array(casts)


def _low_rank_s(workload: Workload) -> Array:
    """Seconds of the low-rank products of the experts, (y dx dw, plans), in 16 bit: B (A x) of each expert's
    own matrices beside its W x, as grouped products of the same rows.
    """
    model, plans = workload.model, workload.plans
    groups, rank = model.experts / plans.ep, np.full(len(plans), float(model.lora_rank))
    rows, wide = np.maximum(arriving_tokens(workload) / groups, 1.0), np.full(len(plans), float(model.hidden))
    inner = model.ffn_hidden / plans.etp
    columns = (2 if model.gated_mlp else 1) * inner
    shapes = [(rows, rank, wide), (rows, columns, rank), (rows, rank, inner), (rows, wide, rank)]
    m, n, k = np.array(shapes).swapaxes(0, 1)
    products = GroupedGemm.of_both_passes(m, n, k, groups, "bf16")
    return np.asarray(workload.profile.seconds(products).sum(axis=1))


def expert_kernels(workload: Workload) -> list[Kernel]:
    """What moves tokens around the experts: the router's scores, permutations, the experts' activation.

    The router works in 32 bit. Permuting reads every token and writes its copies, in the order of the
    experts; the way back sums the copies with their weights. After an all-to-all, a rank with several experts
    sorts what arrived once more, and back again. DeepEP and HybridEP bring a token once to a rank, which
    copies it for its experts in a kernel of its own (Zhao et al., DeepEP, 2025; `permute` of its branch
    hybrid-ep).

    Below 16 bit, experts of Transformer Engine copy what arrived to full multiples of rows, and results back,
    with a kernel each in either pass (`Fp8Padding`, `Fp8Unpadding` of Megatron Core's `TEGroupedMLP`). The
    permutation of HybridEP makes such rows itself (its `pad_multiple`).

    An expert's second bias is weighted by the router's scores. Megatron Core's `_apply_bias` does so expert
    by expert in eager code: bias times scores, a 32-bit tensor, the sum, the join and a cast, 28 bytes an
    element; backward both casts, and for bias and scores a product and its sum each, 40.
    """
    model, plans = workload.model, workload.plans
    tokens, nothing = _local_tokens(workload), np.zeros(len(workload))
    k, h = model.experts_per_token, model.hidden
    arrived = arriving_tokens(workload)
    middle = arrived * model.ffn_hidden / plans.etp
    scores = 12.0 * tokens * model.experts
    moved = (2.0 + 2.0 * k) * tokens * h
    by_rank = (plans.ep > 1) & (plans.dispatcher == _ALL_TO_ALL)
    sorted_again = np.where(by_rank & (plans.ep < model.experts), 4.0 * arrived * h, 0.0)
    by_copy = (plans.ep == 1) | by_rank
    if any_of(~by_copy):
        reached = distinct_parts(model.experts, k, plans.ep)
        received = reached * tokens * plans.etp * _imbalance(workload)
        moved = np.where(by_copy, moved, 2.0 * (received + arrived) * h)
    activation = Kernel("gelu", 4 * middle, 6 * middle, module="moe_act")
    if model.gated_mlp:
        activation = Kernel("swiglu", 10 * middle, 16 * middle, module="moe_act")
    kernels = [
        activation,
        Kernel("softmax", scores, scores, routes=True, module="moe"),
        Kernel("elementwise", moved, moved, 2, routes=True, module="moe"),
        Kernel("elementwise", sorted_again, sorted_again, 2, routes=True, module="moe"),
    ]
    pads = workload.framework.keeps_casts & plans.below_16_bit & (plans.dispatcher != _HYBRIDEP)
    if any_of(pads):
        padded = np.where(pads, 4.0 * arrived * h, 0.0)
        kernels.append(Kernel("elementwise", padded, padded, 2))
    if model.biases:
        biased = _EAGER * arrived * h
        kernels.append(Kernel("elementwise", 28 * biased, 40 * biased, module="moe"))
    if model.expert_lora_shapes and not workload.framework.fused_operations:
        for narrow, wide in model.expert_lora_shapes:  # scaled and added, as beside other matrices
            scaled, input_elements = arrived * wide / plans.etp, arrived * narrow / plans.etp
            kernels.append(Kernel("elementwise", 10 * scaled, 4 * scaled + 6 * input_elements))
    if model.shared_ffn_hidden:
        joined = tokens * h
        kernels.append(Kernel("elementwise", 6 * joined, 4 * joined + nothing, module="moe"))
    return kernels


def expert_parallel_s(workload: Workload) -> Array:
    """Seconds of either pass: tokens go to the ranks of their experts, and results come back.

    The gradients of either go the other way, in as many bytes; all are 16 bit, also below it (Megatron Core
    casts after it dispatches). `itertime.costs.network` says what a dispatcher moves. Where experts are split
    over etp ranks, these gather what arrives at them and scatter the sums of their results.
    """
    model, plans, fabric = workload.model, workload.plans, workload.fabric
    row = 2.0 * model.hidden
    seconds = np.zeros(len(plans))
    if any_of(plans.ep > 1):
        group = neighbours(workload, plans.ep, plans.etp)
        tokens = _local_tokens(workload) * _imbalance(workload)
        routed = RoutedTokens(tokens, row, model.experts_per_token, model.experts)
        for code in set(plans.dispatcher.tolist()):
            dispatcher = DISPATCHERS[code]
            dispatched = dispatch_s(routed, group, fabric, dispatcher)
            # An all-to-all takes as long on the way back.
            combined = dispatched if code == _ALL_TO_ALL else combine_s(routed, group, fabric, dispatcher)
            seconds = np.where(plans.dispatcher == code, dispatched + combined, seconds)
        seconds = np.where(plans.ep > 1, seconds, 0.0)
    if any_of(plans.etp > 1):
        group = neighbours(workload, plans.etp, np.ones_like(plans.etp))
        size = arriving_tokens(workload) * row
        shared = all_gather_s(size, group, fabric) + reduce_scatter_s(size, group, fabric)
        seconds = seconds + np.where(plans.etp > 1, shared, 0.0)
    return seconds


def overlapped_s(comm: Array, work: Array, microbatches: Whole) -> Array:
    """What of the dispatch `comm` of each of a layer's two passes stays exposed where `work`, all other time
    of both, passes beside it; the mean over the micro-batches of an iteration.

    The forward pass of one micro-batch runs beside the backward pass of another (DeepSeek-V3, 2024, section
    3.2.1: DualPipe; Megatron Core's combined 1F1B), so all work hides all dispatch but the excess. The first
    forward and the last backward pass have no other beside them.
    """
    exposed = np.maximum(comm - work / 2, 0.0)
    return np.asarray(exposed + (comm - exposed) / microbatches)


def expert_kernel_counts(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array]:
    """Kernels of router and experts that the CPU issues, forward and backward, as Megatron Core has them:
    moving tokens, activation, casts, products, biases, router.

    Of a layer whose attention and router are captured in a graph, only those of the experts.
    """
    captured = plans.cuda_graphs == CUDA_GRAPHS.index("layers")
    by_rank = (plans.ep > 1) & (plans.dispatcher == _ALL_TO_ALL)
    several = model.experts > plans.ep
    exchanges = np.where(plans.ep > 1, 2, 0) + np.where(plans.etp > 1, 2, 0)
    moves = 2 + np.where(by_rank & several, 2, 0) + exchanges
    grouped = 2 * (1 + _GROUP_CALLS * (model.experts / plans.ep - 1))
    local = model.experts / plans.ep if model.biases else 0
    once = 1 + (_BIAS_ONCE if model.biases else 0) + np.where(plans.precision > 0, 2, 0) + moves
    routed = np.where(captured, 0, _ROUTER_KERNELS + _COUNTING_KERNELS)
    routed_backward = np.where(captured, 0, _ROUTER_BACKWARD)
    adapted = 0 if not model.expert_lora_shapes else 2 * grouped + 4
    forward = once + grouped + _BIAS_KERNELS * local + routed + adapted
    of_products = grouped if model.weights_frozen else 2 * grouped
    backward = once + of_products + _BIAS_BACKWARD * local + routed_backward + 2 * adapted
    return forward, backward
