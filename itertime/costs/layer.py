"""Seconds of one transformer layer on one micro-batch, forward and backward, by part; many plans together.

b sequences of s tokens, width h, MLP width f, a heads of d, tensor parallelism t. The arithmetic follows
Narayanan et al. (SC'21). Matrix products with weights are in `linear.py`, memory-bound kernels in
`memory_bound.py`, communication in `parallel_comm.py`.

The CPU issues kernels one by one, so a pass takes the longer of the GPU's time and `Site.launch_s` times the
number of kernels. The two times do not add up, because the CPU runs ahead of a GPU that has enough to do.
The kernels are those of this model: GEMMs, attention, memory-bound kernels, collectives. A framework that
fuses less issues more of them (`Framework.kernels`). Eager code divides its CPU time between the passes about
as these counts do: the forward pass takes 0.34 of a Llama layer (12 of 35 kernels), 0.36 of a BERT layer
under DistributedDataParallel and 0.41 without it (10 of 29; `python benchmarks/eager.py`, PyTorch 2.13).
Where a framework divides it otherwise, `backward_kernels` says so. A CUDA graph issues its kernels at once
(NVIDIA, "Getting Started with CUDA Graphs", 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.spec import (
    CP_EXCHANGES,
    CUDA_GRAPHS,
    HABIT,
    RECOMPUTE,
    Attention,
    AttentionKernel,
    Cast,
    ModelSpec,
    PlanBatch,
    modules_of,
    op_shares,
    outer_modules,
)
from itertime.spec.layers import mixer_shapes

from .linear import Linear, linear_s
from .memory_bound import MemoryBound, memory_bound_s, residual_s
from .mixers import indexer_s, recurrence_kernels, recurrence_s
from .mixture import Experts, expert_kernel_counts, expert_kernels, expert_parallel_s, experts_s, overlapped_s
from .parallel_comm import context_parallel_s, summed_blocks, tensor_parallel_s
from .partition import Workload

Parts = dict[str, Array]
# Factor of batched GEMMs whose head dim is not a multiple of 8 (16 bytes). BigScience's runs with a head dim
# of 108 took 22 to 26 % longer than their neighbours (tr11 chronicles, bigscience-workshop), which is about
# this much of the attention's share.
UNALIGNED_SLOWDOWN = 6.0
_EARLY_STOP = RECOMPUTE.index("early-stop")
_REPEATS_LAYERS = (RECOMPUTE.index("full"), _EARLY_STOP)
_RING, _ALL_TO_ALL = CP_EXCHANGES.index("ring"), CP_EXCHANGES.index("ulysses")
_NO_GRAPH, _LAYERS = CUDA_GRAPHS.index("none"), CUDA_GRAPHS.index("layers")


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one layer and micro-batch by part; "recompute" belongs to the backward pass.

    `weight`: of the backward pass what gives gradients of weights, which a schedule may let wait.
    "launch" is the time that the GPU waits for the CPU's launches, absent where GEMMs alone take longer.
    """

    forward: Parts
    backward: Parts
    weight: Array


def layer_costs(workload: Workload, reduced: Array) -> list[LayerCosts]:
    """Costs of one layer of each form under every plan. `reduced` is the workload's
    `activation_all_reduce_s`.
    """
    forms = workload.forms
    core = _core_of_forms(forms)
    linear = linear_s(forms)
    memory = memory_bound_s(forms, [expert_kernels(form) if form.model.experts > 1 else [] for form in forms])
    return [
        _layer_costs(*form_costs, reduced) for form_costs in zip(forms, linear, memory, core, strict=True)
    ]


def _layer_costs(
    workload: Workload, linear: Linear, memory: MemoryBound, core: tuple[Array, Array], reduced: Array
) -> LayerCosts:
    """The parts of one layer, in the order in which they depend on one another:

    1. kernels: products, attention, memory-bound kernels;
    2. tensor and context parallelism, the latter hidden by attention;
    3. dispatch of tokens to experts, hidden by all of 1 and 2;
    4. recomputation, in the backward pass, of a forward pass of 1 to 3;
    5. launches: what the CPU takes longer to issue a pass than the GPU takes for 1 to 4;
    6. time of framework and site, which nothing hides.

    The order is also that in which parts are summed, so it decides the last digit.
    """
    model, plans = workload.model, workload.plans
    experts = experts_s(workload) if model.experts > 1 else None
    forward, backward = _kernel_parts(workload, linear, memory, core, experts)
    exposed_share = _exposed_share(workload)
    forward["tp_comm"], backward["tp_comm"] = (
        exposed_share * seconds for seconds in tensor_parallel_s(workload, reduced)
    )
    if model.attends and model.attention != "core" and any_of(plans.cp > 1):
        attention = forward["attention"], backward["attention"]
        forward["cp_comm"], backward["cp_comm"] = context_parallel_s(workload, attention)
    repeated_s = sum(forward.values(), np.zeros(len(plans)))
    overhead, repeated_dispatch_s = _overhead_s(workload), np.zeros(len(plans))
    if model.experts > 1:
        dispatch, repeated_dispatch_s = _dispatch_parts(workload, forward, backward, overhead)
        forward |= dispatch
        backward |= dispatch
        repeated_s = repeated_s + repeated_dispatch_s
    repeatable = _Repeatable(
        core=core[0] + memory.scores if model.attention == "core" else np.zeros(len(plans)),
        elementwise=forward["elementwise"] - memory.routing,
        layer=repeated_s,
        last_gemm=linear.last_forward,
        reduced=exposed_share * reduced,
    )
    if plans.recomputed_modules:
        repeatable = replace(
            repeatable,
            modules=_module_parts(workload, linear, memory, experts, repeatable, repeated_dispatch_s),
        )
    backward["recompute"] = _recompute_s(workload, repeatable)
    launches = _launch_waits_s(workload, forward, backward)
    if launches is not None:
        forward["launch"], backward["launch"] = launches
    forward["overhead"], backward["overhead"] = overhead / 3, overhead * 2 / 3  # twice the products
    weight = linear.weight + memory.sums
    if experts is not None:
        weight = weight + experts.weight
    if not model.passes_back:
        nothing = np.zeros(len(plans))
        backward, weight = dict.fromkeys(backward, nothing), nothing
    return LayerCosts(forward, backward, weight)


def _kernel_parts(
    workload: Workload,
    linear: Linear,
    memory: MemoryBound,
    core: tuple[Array, Array],
    experts: Experts | None,
) -> tuple[Parts, Parts]:
    """Forward and backward seconds of a layer's kernels by part, those of a mixture's experts among them."""
    forward = {
        "gemm": linear.forward,
        "attention": core[0],
        "elementwise": memory.forward + linear.casts_forward,
    }
    backward = {
        "gemm": linear.backward,
        "attention": core[1],
        "elementwise": memory.backward + linear.casts_backward,
    }
    if workload.plans.options.attention_precision == "fp8" and workload.model.attends:
        casts = _attention_casts_s(workload)
        forward["elementwise"] = forward["elementwise"] + casts[0]
        backward["elementwise"] = backward["elementwise"] + casts[1]
    if experts is not None:
        forward["gemm"] = forward["gemm"] + experts.forward
        backward["gemm"] = backward["gemm"] + experts.backward
        forward["elementwise"] = forward["elementwise"] + experts.casts_forward
        backward["elementwise"] = backward["elementwise"] + experts.casts_backward
    return forward, backward


def _attention_casts_s(workload: Workload) -> Array:
    """Seconds of the casts around attention in 8 bit, forward and backward: of queries, keys and values; of
    the gradient of its output (Transformer Engine, `FusedAttnFunc`).
    """
    model, elements = workload.model, workload.tokens / workload.plans.tp
    values = model.v_hidden if model.latent_kv else model.kv_hidden
    wide = [[float(model.query_width + model.key_width + values)], [float(model.v_hidden)]]
    seconds = workload.profile.seconds(Cast(np.array(wide) * elements, "fp8"))
    return np.asarray(workload.framework.cast_multiplier * seconds / workload.system.site.hbm_fraction)


def _overhead_s(workload: Workload) -> Array:
    """Seconds that site and framework add to a layer, forward and backward together."""
    framework, site = workload.framework, workload.system.site
    overhead = np.full(len(workload), site.layer_overhead_s + framework.layer_s)
    if workload.model.experts > 1 and framework.expert_layer_s:
        overhead = overhead + framework.expert_layer_s * _issued_share(workload)
    return overhead


def _issued_share(workload: Workload) -> Array | float:
    """The share of a layer's kernels that the CPU issues one by one, those of recomputation left out. A graph
    of everything never waits for counts of tokens on the CPU; graphs of layers leave the experts to it.
    """
    model, plans = workload.model, workload.plans
    if not any_of(plans.cuda_graphs):
        return 1.0
    kernels, of_experts = _plain_kernel_counts(model, plans), _of_experts(model, plans)
    issued = (_in_graphs(plans, *counts) for counts in zip(kernels, of_experts, strict=True))
    return np.asarray(sum(issued) / sum(kernels))


def _dispatch_parts(
    workload: Workload, forward: Parts, backward: Parts, overhead: Array
) -> tuple[Parts, Array]:
    """Seconds of each pass by part: "ep_comm", and "contention" with the work that hides it under
    `ep_overlap`. Then the seconds of both in a forward pass that is repeated.

    `forward` and `backward` are the passes' other parts: the work beside which tokens travel. They travel on
    while the GPU waits for the CPU, too, the `overhead` of both passes, and slow no work then. A repeated
    pass hides its dispatch behind its own work, and behind what the dispatch of both passes leaves of theirs.
    """
    comm = expert_parallel_s(workload)
    overlaps, contention = workload.plans.ep_overlap, workload.contention
    if not any_of(overlaps):
        return {"ep_comm": comm}, comm
    nothing = np.zeros(len(workload))
    forward_work = sum(forward.values(), nothing)
    work = forward_work + sum(backward.values(), nothing)
    exposed = np.where(overlaps, overlapped_s(comm, work + overhead, workload.plans.microbatches), comm)
    cover = forward_work + np.maximum(work + overhead - 2 * comm, 0.0)
    exposed_again = np.where(overlaps, np.maximum(comm - cover, 0.0), comm)
    if not contention:
        return {"ep_comm": exposed}, exposed_again
    busy_share = work / (work + overhead)
    parts = {"contention": contention * busy_share * (comm - exposed), "ep_comm": exposed}
    return parts, contention * busy_share * (comm - exposed_again) + exposed_again


def _exposed_share(workload: Workload) -> Array | float:
    """The share of tensor-parallel communication that no matrix product hides.

    Frameworks hide it by default only under sequence parallelism, whose gathers and scatters they split
    (Megatron-LM refuses `--tp-comm-overlap` without `--sequence-parallel`).
    """
    framework, choice = workload.framework, workload.plans.tp_overlap
    habit = workload.plans.sequence_parallel & framework.tp_overlap
    hides = np.where(choice == HABIT, habit, choice == 1)
    return np.where(hides, framework.tp_exposed, 1.0) if any_of(hides) else 1.0


@dataclass(frozen=True)
class _Repeatable:
    """Seconds of a layer's forward pass that a backward pass may repeat: core attention, memory-bound
    kernels, the whole layer; the MLP's last GEMM, and the sum of its result over tensor-parallel ranks.
    `modules`: by name, where a plan recomputes modules.
    """

    core: Array
    elementwise: Array
    layer: Array
    last_gemm: Array
    reduced: Array
    modules: Parts = field(default_factory=dict)


def _module_parts(
    workload: Workload,
    linear: Linear,
    memory: MemoryBound,
    experts: Experts | None,
    repeatable: _Repeatable,
    dispatch: Array,
) -> Parts:
    """Seconds of the forward pass of each module that this form of a layer has: products with their casts,
    memory-bound kernels, sums over tensor-parallel ranks, and the `dispatch` of a repeated pass.
    """
    model, kernels = workload.model, memory.modules
    parts = {"core_attn": repeatable.core, "layernorm": kernels["layernorm"]}
    if model.latent_kv and model.attends:
        rotary = kernels.get("mla_up_proj", 0.0)
        parts["mla_up_proj"] = linear.module_s(workload, "mla_up_proj") + rotary
    mlp = "mlp" if experts is None else "shared_experts"
    if model.common_width:
        parts[mlp] = linear.module_s(workload, mlp) + kernels[mlp] + repeatable.reduced
    if experts is not None:
        parts["moe_act"] = kernels["moe_act"]
        of_experts = experts.forward + experts.casts_forward + dispatch
        shared = parts.get("shared_experts", 0.0)
        parts["moe"] = of_experts + kernels["moe"] + kernels["moe_act"] + shared
    elif any("op" in modules_of(code) for code in workload.plans.recomputed_modules):
        parts["op"] = _operators_s(workload, linear, repeatable)
    return parts


def _operators_s(workload: Workload, linear: Linear, repeatable: _Repeatable) -> Array:
    """Seconds of what torchtitan's checkpointing of operators repeats: memory-bound kernels but the last
    addition, the products of `op_shares`, and sums over ranks, of which reduce-scatters are kept.
    """
    model, plans = workload.model, workload.plans
    products = np.array(op_shares(model)) @ linear.by_matrix
    summed = summed_blocks(model) * repeatable.reduced * np.where(plans.sequence_parallel, 0.5, 1.0)
    return np.asarray(repeatable.elementwise - residual_s(workload) + products + summed)


def _recompute_s(workload: Workload, repeatable: _Repeatable) -> Array:
    """Seconds of the forward pass that the backward pass repeats, on average over a stage's layers."""
    plans, nothing = workload.plans, np.zeros(len(workload))
    if not any_of(plans.recompute):
        return nothing
    until_early_stop = repeatable.layer
    if any_of(plans.recompute == _EARLY_STOP):
        until_early_stop = repeatable.layer - _ending_s(workload, repeatable)
    # In the order of `RECOMPUTE`.
    options = [nothing, repeatable.core, repeatable.layer, until_early_stop, repeatable.elementwise]
    of_modules = {
        code: sum((repeatable.modules.get(module, nothing) for module in outer_modules(code)), nothing)
        for code in plans.recomputed_modules
    }
    seconds = plans.by_recompute(options, of_modules)
    if any_of(plans.recompute_permille < 1000):
        seconds = seconds * (plans.recompute_permille / 1000)
    return seconds


def _launch_waits_s(workload: Workload, forward: Parts, backward: Parts) -> tuple[Array, Array] | None:
    """Seconds by which the launches of each pass take longer than the pass, whose parts are given; None if
    the GEMMs alone always take longer.
    """
    framework, launch_s = workload.framework, workload.system.site.launch_s
    forward_launches, backward_launches = _issued(workload)
    forward_s = launch_s * framework.kernels * forward_launches
    backward_s = launch_s * (framework.backward_kernels or framework.kernels) * backward_launches
    if not (any_of(forward_s > forward["gemm"]) or any_of(backward_s > backward["gemm"])):
        return None
    nothing = np.zeros(len(workload))
    return (
        np.maximum(forward_s - sum(forward.values(), nothing), 0.0),
        np.maximum(backward_s - sum(backward.values(), nothing), 0.0),
    )


def _issued(workload: Workload) -> tuple[Array | Whole, Array | Whole]:
    """Kernels that the CPU issues one by one, forward and backward; a graph counts as one.

    Graphs of layers hold attention and router of a mixture; its experts are issued one by one, and once more
    where the backward pass repeats a layer.
    """
    model, plans = workload.model, workload.plans
    forward, backward = kernel_counts(model, plans)
    if not any_of(plans.cuda_graphs):
        return forward, backward
    experts, experts_back = _of_experts(model, plans)
    repeats = np.isin(plans.recompute, _REPEATS_LAYERS) * (plans.recompute_permille / 1000)
    for code in plans.recomputed_modules:
        if "moe" in modules_of(code):
            repeats = np.where(plans.recompute == code, plans.recompute_permille / 1000, repeats)
    return (
        _in_graphs(plans, forward, experts),
        _in_graphs(plans, backward, experts_back + repeats * experts),
    )


def _in_graphs(plans: PlanBatch, kernels: Array | Whole, experts: Array | Whole | int) -> Array | Whole:
    """What the CPU issues of a pass with so many kernels, of which those of `experts` are in no graph of a
    layer.
    """
    graphs = plans.cuda_graphs
    return np.where(graphs == _NO_GRAPH, kernels, np.where(graphs == _LAYERS, 1 + experts, 0))


def _of_experts(model: ModelSpec, plans: PlanBatch) -> tuple[Array | int, Array | int]:
    """`expert_kernel_counts` of a mixture, else none."""
    return expert_kernel_counts(model, plans) if model.experts > 1 else (0, 0)


def _ending_s(workload: Workload, repeatable: _Repeatable) -> Array:
    """Seconds of a layer's forward pass that recomputing with an early stop skips.

    The inputs of the MLP's last GEMM are the last tensors that the backward pass needs. So that GEMM is
    skipped, the sum of its result over the tensor-parallel ranks (under sequence parallelism the
    reduce-scatter, half of it), and the residual addition. In a mixture the gradients of the router need the
    experts' outputs, and those of a norm after the MLP need its input: the addition alone is skipped. With
    dropout nothing is: its mask is the last tensor that the backward pass needs, and one kernel makes the
    mask, drops and adds.
    """
    model, plans = workload.model, workload.plans
    if model.dropout:
        return np.zeros(len(plans))
    seconds = residual_s(workload)
    if model.ends_in_product:
        summed = repeatable.reduced * np.where(plans.sequence_parallel, 0.5, 1.0)
        seconds = seconds + repeatable.last_gemm + summed
    return seconds


def _core_of_forms(forms: Sequence[Workload]) -> list[tuple[Array, Array]]:
    """`_core_attention_s` of each form, or `recurrence_s`, computed once for all that have the same."""
    if len(forms) == 1 and forms[0].model.attends:
        return [_core_attention_s(forms[0])]
    seconds: dict[tuple[int, ...], tuple[Array, Array]] = {}
    for form in forms:
        shape = form.model.attention_shape
        if shape not in seconds:
            seconds[shape] = _core_attention_s(form) if form.model.attends else recurrence_s(form)
    return [seconds[form.model.attention_shape] for form in forms]


def _core_attention_s(workload: Workload) -> tuple[Array, Array]:
    """QK^T and scores x V as batched GEMMs (two forward, four backward), or the flash attention kernel; of
    sparse attention with its indexer.

    Under context parallelism a rank has the queries of two pieces, one from either end of the sequence, so
    that masks leave all ranks equally much to do (Llama 3, 2024, section 3.3.2). After an all-to-all it has
    all queries of its share of the heads.
    """
    model, plans, profile, site = workload.model, workload.plans, workload.profile, workload.system.site
    batch, s = workload.micro_batch.sequences, workload.micro_batch.length
    d, heads = float(model.head_width + model.rope_head_dim), model.heads / plans.tp
    if model.is_sparse:
        return _sparse_attention_s(workload)
    if model.attention != "core":
        if workload.framework.whole_rows:
            batch, s = batch * (s / model.seq_len), np.full(len(plans), float(model.seq_len))
        kv_heads, pieces = np.maximum(model.kv_heads / plans.tp, 1.0), plans.cp
        if any_of(plans.cp_exchange):
            split = np.where(plans.cp_exchange == _ALL_TO_ALL, plans.cp, 1)
            heads, kv_heads, pieces = heads / split, np.maximum(kv_heads / split, 1.0), pieces // split
        causal = not model.encoder
        kernel = _attention_kernel(workload)
        if workload.framework.whole_rows:
            kernel = kernel._replace(longest=s / _blocks_of_a_sample(plans))
        factor = site.attention_multiplier * workload.framework.attention_multiplier
        arguments = (batch, heads, kv_heads, d, s / pieces, s, causal)
        windowed_share = model.windowed_layers / model.layers
        passes = []
        for backward in (False, True):
            seconds = profile.seconds(Attention(*arguments, backward=backward, kernel=kernel))
            if windowed_share:
                windowed = kernel._replace(window=model.window)
                windowed_s = profile.seconds(Attention(*arguments, backward=backward, kernel=windowed))
                seconds = seconds + windowed_share * (windowed_s - seconds)
            if model.cross_attention:
                length = np.full(len(plans), float(model.cross_len))
                crossed = Attention(*arguments[:5], length, False, backward=backward, kernel=kernel)
                seconds = seconds + profile.seconds(crossed)
            passes.append(factor * seconds)
        return passes[0], passes[1]
    wide = np.full(len(plans), d)
    n, k = np.array([s, wide]), np.array([wide, s])
    scores, context = workload.gemm_s(s, n, k, batch * heads) * (
        UNALIGNED_SLOWDOWN if model.head_width % 8 else 1.0
    )
    multiplier = workload.gemm_factor
    # dV, dQ and dK have the shape of the context, dP that of the scores
    return multiplier * (scores + context), multiplier * (scores + 3 * context)


def _sparse_attention_s(workload: Workload) -> tuple[Array, Array]:
    """Sparse attention and its indexer (DeepSeek-V3.2, 2025, section 2.1): all heads of a query share the
    picked keys, so they read compressed keys and values as they are, of one head of `latent_kv` and
    `rope_head_dim` columns. The matrices that expand them are multiplied with queries and outputs instead.
    """
    model, plans, length = workload.model, workload.plans, workload.micro_batch.length
    batch, width = workload.micro_batch.sequences, float(model.latent_kv + model.rope_head_dim)
    kernel = _attention_kernel(workload)._replace(window=model.index_keys, value_dim=model.latent_kv)
    arguments = (batch, model.heads / plans.tp, np.ones(len(plans)), width, length / plans.cp, length, True)
    factor = workload.system.site.attention_multiplier * workload.framework.attention_multiplier
    forward, backward = (
        factor * workload.profile.seconds(Attention(*arguments, backward=is_backward, kernel=kernel))
        for is_backward in (False, True)
    )
    indexer = indexer_s(workload, forward)
    return forward + indexer[0], backward + indexer[1]


def _blocks_of_a_sample(plans: PlanBatch) -> Whole:
    """Thread blocks that share a sample's queries in one head, in Apex's FMHA: one, but two, three or four
    for three, two or one samples (NVIDIA/apex, contrib/fmha/fmha.py: fewer than four call `fwd_nl`;
    contrib/csrc/fmha/fmha_api.cpp, `num_chunks`).
    """
    return np.maximum(5 - plans.micro_batch, 1)


def _attention_kernel(workload: Workload) -> AttentionKernel:
    """The kernel that a model names, or the framework's where the model asks for flash attention as such;
    cuDNN's in 8 bit.
    """
    model = workload.model
    attention, habit = model.attention, workload.framework.attention
    name: str = habit if attention == "flash" and habit != "model" else attention
    if workload.plans.options.attention_precision == "fp8":
        name = "cudnn_fp8"
    value_dim = (model.value_head_dim or model.head_width) if model.latent_kv else None
    return AttentionKernel(name, value_dim)


def kernel_counts(model: ModelSpec, plans: PlanBatch) -> tuple[Array | Whole, Array | Whole]:
    """Kernels of one layer and micro-batch, forward and backward; backward includes the recomputed ones, on
    average over a stage's layers.
    """
    forward, backward = _plain_kernel_counts(model, plans)
    if not any_of(plans.recompute):
        return forward, backward
    core = (6 if model.dropout else 5) if model.attention == "core" else 0
    early = forward - _after_early_stop(model, plans)
    nothing = np.zeros(len(plans), dtype=int)
    choices = [
        nothing,
        nothing + core,
        nothing + forward,
        nothing + early,
        nothing + _kernel_groups(model)[1],
    ]
    of_modules = {
        code: sum((_module_kernels(model, plans, core, module) for module in outer_modules(code)), nothing)
        for code in plans.recomputed_modules
    }
    repeated = plans.by_recompute(choices, of_modules)
    return forward, backward + repeated * (plans.recompute_permille / 1000)


def _module_kernels(model: ModelSpec, plans: PlanBatch, core: int, module: str) -> Array | Whole:
    """Kernels of the forward pass of a module of one layer, without casts."""
    mlp = (4 if model.gated_mlp else 3) + np.where(plans.tp > 1, 1, 0)
    mixture = model.experts > 1
    shared: Array | Whole = mlp if mixture and model.shared_ffn_hidden else np.zeros(len(plans), dtype=int)
    match module:
        case "moe" if mixture:
            return expert_kernel_counts(model, plans)[0] + shared
        case "shared_experts":
            return shared
        case "op":  # all but attention, two products and the last addition
            repeated = _kernel_groups(model)[1] - 1 + 3
            return repeated + np.where(plans.tp > 1, summed_blocks(model), 0)
        case "mlp" if not mixture:
            return mlp if model.mlp else np.zeros(len(plans), dtype=int)
    count = {
        "core_attn": core,
        "layernorm": model.additions,
        "moe_act": int(mixture),
        "mla_up_proj": 3 * (model.latent_kv > 0 and model.attends),
    }
    return np.full(len(plans), count.get(module, 0))


def _plain_kernel_counts(model: ModelSpec, plans: PlanBatch) -> tuple[Array | Whole, Array | Whole]:
    """`kernel_counts` without recomputation.

    Forward: a GEMM for every matrix, two batched ones or the flash kernel, the norms, two residual additions,
    the activation, the position encoding, the copies and the softmax around core attention; two collectives
    of a tensor-parallel group, four under sequence parallelism. Backward: every GEMM twice, every other
    kernel once, the sum of every matrix's gradient, the joint gradient of queries, keys and values.
    `expert_kernel_counts` adds those of a mixture.
    """
    matrices, around = _kernel_groups(model)
    attentions = 1 + model.cross_attention
    core, core_back = (attentions, attentions) if model.attends else recurrence_kernels(model)
    if model.is_sparse:  # the indexer's scores, the largest of them; backward two products and the loss
        core, core_back = core + 2, core_back + 3
    if model.attention == "core":
        dropout = 1 if model.dropout else 0
        core, core_back = 5 + dropout, 8 + dropout  # two and four GEMMs, two copies, softmax
    gathered_again = np.where(plans.sequence_parallel & (plans.tp > 1), summed_blocks(model), 0)
    exchanged = _collectives(model, plans) + gathered_again
    adapters = len(model.lora_shapes)  # two products, a scaling and an addition each
    widened = matrices if model.frozen_bits < 16 else 0
    once: Array | Whole = matrices + widened + 4 * adapters + around + core + exchanged
    expert_kernels_forward, expert_kernels_backward = _of_experts(model, plans)
    back = (1 if model.weights_frozen else 3) * matrices + widened + 8 * adapters + around + 1 + core_back
    return expert_kernels_forward + once, back + expert_kernels_backward + exchanged + gathered_again


def _kernel_groups(model: ModelSpec) -> tuple[int, int]:
    """GEMMs with weights of a layer's forward pass, and memory-bound kernels around them and attention."""
    matrices = 5 if model.gated_mlp else 4
    around = model.norms_per_layer + (4 if model.positions == "rotary" else 3) + 2 * model.qk_norm
    if not (model.attends and model.mlp):
        of_mlp = (matrices - 2, 1) if model.mlp else (0, 0)
        of_mixer = 2 * model.attends or len(mixer_shapes(model))
        positions = (model.positions == "rotary") + 2 * model.qk_norm if model.attends else 0
        matrices = of_mixer + of_mlp[0]
        around = model.norms_per_layer + model.additions + of_mlp[1] + positions
    around += model.output_gate and model.attends
    if model.cross_attention:
        matrices, around = matrices + 3, around + 1
    # Two matrices for keys and values, one or two for queries, in place of one for all.
    if model.latent_kv and model.attends:
        matrices, around = matrices + (3 if model.latent_q else 2), around + (2 if model.latent_q else 1)
    if model.is_sparse and model.attends:  # with a norm of its key, and positions
        matrices, around = matrices + 2, around + 2
    if model.experts > 1:
        matrices, around = matrices - (3 if model.gated_mlp else 2), around - 1  # the MLP
    if model.shared_ffn_hidden:
        matrices += 3 if model.gated_mlp else 2
        around += 2  # its activation, its addition
    return matrices, around


def _collectives(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Collectives of one pass without sequence parallelism, counting each as one kernel."""
    count = np.where(plans.tp > 1, summed_blocks(model), 0)
    if model.attention != "core":
        steps = plans.cp - 1
        at_once = np.where(plans.cp_exchange == _ALL_TO_ALL, 4, 1)
        count = count + np.where(plans.cp_exchange == _RING, steps, np.where(steps > 0, at_once, 0))
    return count


def _after_early_stop(model: ModelSpec, plans: PlanBatch) -> Whole:
    """Kernels of a forward pass that recomputing with an early stop skips: the residual addition, the MLP's
    last GEMM and its collective (`_ending_s` says when).
    """
    if model.dropout:
        return np.zeros(len(plans), dtype=int)
    if not model.ends_in_product:
        return np.ones(len(plans), dtype=int)
    return np.where(plans.tp > 1, 3, 2)
