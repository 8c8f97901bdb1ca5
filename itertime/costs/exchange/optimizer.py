"""The optimizer's step: bytes moved, kernels launched, and bytes of its states.

Bytes per parameter that a rank owns, each tensor counted once per kernel that reads or writes it; g is the
width of a gradient. Apex's kernels are those of its csrc/ (multi_tensor_*.cu).

| optimizer | unscaling | norm | update | copy to 16 bit | states | source |
|---|---|---|---|---|---|---|
| adam, adamw | 50 in all, with the norm | | | | 12 | assumed of an unstated implementation |
| fused-adam | g + 4 | 4 | 28 | 6 | 12 | multi_tensor_adam.cu |
| lamb | g + 4 | 4 | 48 | 6 | 12 | multi_tensor_lamb.cu |
| sgd | g + 4 | 4 | 20 | 6 | 8 | multi_tensor_sgd_kernel.cu |
| came | g + 4 | 4 | 164 | 6 | 8 and factors | came_pytorch 0.1.3, CAME.py |
| torch-adamw | g + 4 | 4 | 92 | 6 | 12 | torch/optim/adamw.py, _multi_tensor_adamw |
| muon | g + 4 | 4 | 64 and products | 6 | 8 | `muon.py` |

- Unscaling reads the gradient and writes it in 32 bit, the copy reads a 32-bit weight and writes 16 bit
  (multi_tensor_scale_kernel.cu). The norm reads the 32-bit gradient; the update kernels apply its factor.
- Adam (28): reads gradient, weight, both moments (16), writes the last three (12). AdamW's decay uses the
  weight that the kernel reads anyway (Loshchilov and Hutter, ICLR 2019).
- LAMB (You et al., ICLR 2020, Algorithm 2), 48: norms of the weights (4); stage 1, which reads gradient,
  weight and moments and writes update and moments (28); norms of the updates (4); stage 2, which reads weight
  and update and writes the weight (12). With ZeRO-1 it is distributed LAMB: each rank updates its shard, and
  the ranks of a layer's shards add up its two norms.
- SGD with momentum (20): reads gradient, weight and momentum (12), writes the last two (8).
- CAME (Luo et al., ACL 2023, Algorithm 2), 164: PyTorch's own kernels, one for each operation on a tensor.
  Squares, means by row and column, two outer products, the first moment, instability: 41 times 4 bytes.

- PyTorch's AdamW without `fused`, 92: one multi-tensor kernel for each operation. The norm's factor (8),
  decay (8), first moment (12), second moment scaled (8) and added to (16), root (8), division (8), epsilon
  (8), step (16).

Muon steps matrices; the parameters beside them, few but for the tables, are charged as many bytes.

Moments in 16 or 8 bit take fewer bytes than 4, wherever they are read, written or kept: 2 (DeepSeek-V3, 2024,
section 3.3.1; `--exp-avg-dtype` of Megatron Core), or 1 and a 32-bit scale for each block of 256 (Dettmers et
al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022; the block is that of bitsandbytes). Without
master weights the step reads and writes the weight in 16 bit and the gradient as it is.

A plan that trains in 32 bit (`precision` "tf32") neither unscales nor copies, and its states lack the master
weight.

States are 32-bit: master weights (4), and 4 for each moment. CAME's second moment and its instability are
rows and columns of each matrix: 8 (n + m) bytes of n x m parameters.

Kernels. One launch of multi-tensor-apply takes at most 320 chunks of 65,536 elements, and 110, 64, 48 or 36
tensors where it walks through 1, 2, 3 or 4 lists of them (multi_tensor_apply.cuh; the chunk is 2048 x 32 in
Apex's apex/multi_tensor_apply/__init__.py). The CPU waits until the GPU has checked gradients for overflow,
so it cannot issue the step ahead of time: the step takes at least its launches times `Site.launch_s`. A
CUDA graph of the whole iteration launches nothing. CAME launches 42 kernels a matrix and 23 a vector, counted
in its code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.costs.offload import offloaded_step
from itertime.costs.partition import Workload
from itertime.schedule import FIRST, LAST
from itertime.spec import CUDA_GRAPHS, ONE_BIT, Elementwise, ModelSpec, PlanBatch, PlanOptions
from itertime.spec.layers import mixer_shapes

from .compression_kernels import step_bytes
from .groups import copies_of_states, expert_copies, norm_sums_s
from .muon import KERNELS, UPDATE_BYTES, left_to_adam, orthogonal_s

Parts = dict[str, Array]
NORM_BYTES = 4.0
"""Bytes per owned parameter that the norm of the reduced gradients reads."""
ADAM_BYTES = 50.0
"""Bytes that Adam moves per parameter: unscaling, gradient norm, Adam on 32-bit master weights, copy to 16
bit."""
_CHUNK, _CHUNKS = 65_536.0, 320.0
_TENSORS = {1: 110.0, 2: 64.0, 3: 48.0, 4: 36.0}
_FULL_GRAPH = CUDA_GRAPHS.index("full")


@dataclass(frozen=True)
class Step:
    """The step of one optimizer.

    `update`, `states`: bytes per parameter that the update moves and that the states take. `lists`: for each
    multi-tensor kernel, the lists of tensors that it walks through. `eager`: kernels per matrix and per
    vector where they are launched tensor by tensor. `moments`: numbers that the states have beside the
    weight; `moves`: how often the update reads or writes each.
    """

    update: float
    states: float
    lists: tuple[int, ...] = ()
    eager: tuple[int, int] = (0, 0)
    moments: int = 2
    moves: int = 2


_UNSCALE, _NORM, _COPY = 2, 1, 2  # lists
_STEPS = {
    "adam": Step(ADAM_BYTES - NORM_BYTES, 12.0),
    "adamw": Step(ADAM_BYTES - NORM_BYTES, 12.0),
    "fused-adam": Step(28.0, 12.0, (_UNSCALE, 4, _COPY)),
    "lamb": Step(48.0, 12.0, (_UNSCALE, _NORM, 4, _NORM, 2, _COPY)),
    "sgd": Step(20.0, 8.0, (_UNSCALE, 3, _COPY), moments=1),
    "muon": Step(UPDATE_BYTES, 8.0, (_UNSCALE, 4, _COPY), (KERNELS, 0), moments=1, moves=3),
    "came": Step(164.0, 8.0, (_UNSCALE, _COPY), (42, 23)),
    "torch-adamw": Step(92.0, 12.0, (_UNSCALE, 1, 1, 2, 1, 3, 2, 1, 1, 3, _COPY)),
}
_UNSCALING, _COPYING = 6.0, 6.0  # of a 16-bit gradient; to a 16-bit weight
_COPIES = 4.0 + _COPYING  # written by the unscaling; read and written by the copy to 16 bit
_MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0 + 4.0 / 256}


def owned_parameters(plans: PlanBatch, shared: Array, experts: Array) -> Array:
    """Of `shared` and `experts` parameters per GPU, those that a rank updates."""
    return shared / plans.optimizer_shards + experts / expert_copies(plans, plans.optimizer_shards)


def includes_norm(options: PlanOptions) -> bool:
    """Whether the bytes of the step include the norm of the gradients."""
    separate_norm = options.compression in ONE_BIT or not _STEPS[options.optimizer].lists
    return options.clipping == "after" and separate_norm


def state_bytes(model: ModelSpec, options: PlanOptions) -> float:
    """Bytes of the optimizer's states per parameter that it steps, with the master weight."""
    states = _STEPS[options.optimizer].states - _spared_states(options)
    return states + 8.0 * _factor_share(model) if options.optimizer == "came" else states


def _spared_states(options: PlanOptions) -> float:
    """Bytes per parameter that states of fewer bits lack."""
    narrow = _STEPS[options.optimizer].moments * (4.0 - _MOMENT_BYTES[options.moments])
    return narrow + (0.0 if options.master_weights else 4.0)


def adam_states_bytes(workload: Workload, counts: Whole, tables: Array) -> tuple[Array, Array]:
    """Bytes of states beyond `state_bytes` of what Muon leaves to Adam, a second moment, before ranks share
    them: of layers by form, (forms, ..., plans), with `tables`; and of experts.
    """
    moment = _MOMENT_BYTES[workload.plans.options.moments]
    shared, experts = left_to_adam(workload, counts)
    return moment * (shared + tables), moment * experts


def optimizer_s(workload: Workload, shared: Array, experts: Array, layers: Whole) -> Parts:
    """Seconds of the optimizer on a GPU's part of `layers` layers, `shared` and `experts` parameters:
    "optimizer", and for a plan that offloads it "optimizer_copies".
    """
    plans = workload.plans
    owned = owned_parameters(plans, shared, experts) / copies_of_states(plans)
    if plans.options.compression in ONE_BIT:
        seconds = workload.profile.seconds(Elementwise(step_bytes(workload) * owned, "adam"))
        seconds = seconds / workload.system.site.hbm_fraction
    elif _STEPS[plans.options.optimizer].lists:
        seconds = _fused_step_s(workload, owned, owned / np.maximum(shared + experts, 1.0), layers)
    else:
        nbytes = ADAM_BYTES if includes_norm(plans.options) else ADAM_BYTES - NORM_BYTES
        nbytes -= _spared_moves(plans.options, _STEPS[plans.options.optimizer])
        spared = np.where(_has_no_copies(plans), _UNSCALING + _COPYING, 0.0)
        seconds = workload.profile.seconds(Elementwise((nbytes - spared) * owned, "adam"))
        seconds = seconds / workload.system.site.hbm_fraction
    if not any_of(plans.offload_optimizer):
        return {"optimizer": seconds}
    offloaded = offloaded_step(workload, owned, shared + experts)
    return {
        "optimizer": np.where(plans.offload_optimizer, offloaded.step, seconds),
        "optimizer_copies": np.where(plans.offload_optimizer, offloaded.gradients, 0.0),
    }


def _has_no_copies(plans: PlanBatch) -> Flags:
    """Whether the step neither unscales gradients nor copies weights: there is one form of both."""
    return plans.in_32_bit | (not plans.options.master_weights)


def _spared_moves(options: PlanOptions, step: Step) -> float:
    """Bytes per parameter that an update of narrower states does not move: a gradient is read, a weight read
    and written in 16 bit without master weights.
    """
    moments = step.moments * step.moves * (4.0 - _MOMENT_BYTES[options.moments])
    return moments + (0.0 if options.master_weights else 6.0)


def _fused_step_s(workload: Workload, owned: Array, share: Array, layers: Whole) -> Array:
    """Seconds of the step on `owned` parameters, a `share` of those of `layers` layers.

    Every launch moves an equal part of the bytes.
    """
    plans, site = workload.plans, workload.system.site
    step = _STEPS[plans.options.optimizer]
    tensors = [layers * count for count in _tensors(workload)]
    matrices, vectors = (np.ceil(share * count) for count in tensors)
    launches = _launches(step, owned, matrices, vectors)
    uncopied = _has_no_copies(plans)
    if any_of(uncopied):
        without = _launches(replace(step, lists=step.lists[1:-1]), owned, matrices, vectors)
        launches = np.where(uncopied, without, launches)
    copies = np.where(uncopied, 0.0, workload.plans.gradient_bytes + _COPIES)
    nbytes = (copies + step.update - _spared_moves(plans.options, step)) * owned
    seconds = launches * workload.profile.seconds(Elementwise(nbytes / launches, "adam")) / site.hbm_fraction
    issued = np.where(plans.cuda_graphs == _FULL_GRAPH, 0.0, launches * site.launch_s)
    seconds = np.maximum(seconds, np.where(owned > 0, issued, 0.0))
    if plans.options.optimizer == "muon":
        kind = np.where(plans.pp == 1, LAST, FIRST)
        counts = workload.partition.weight_counts[:, kind, np.arange(len(plans))]
        if plans.splits_backward:
            counts = np.where(plans.both_ways, counts + workload.partition.weight_counts[:, LAST], counts)
        return seconds + np.where(owned > 0, orthogonal_s(workload, counts), 0.0)
    if plans.options.optimizer != "lamb":
        return seconds
    norms = 2 * norm_sums_s(workload, 4.0 * (tensors[0] + tensors[1]), plans.optimizer_shards, stages=False)
    return seconds + np.where(owned > 0, norms, 0.0)


def _launches(step: Step, owned: Array, matrices: Array, vectors: Array) -> Array:
    """Kernels of a step on `owned` parameters in so many tensors."""
    tensors = np.maximum(matrices + vectors, 1.0)
    chunks = owned / _CHUNK + tensors / 2  # the last chunk of a tensor is half full
    count = np.zeros(len(owned))
    for lists in step.lists:
        count = count + np.maximum(np.ceil(tensors / _TENSORS[lists]), np.ceil(chunks / _CHUNKS))
        count = count + (lists == _NORM)  # adds up the chunks
    return count + step.eager[0] * matrices + step.eager[1] * vectors


def _tensors(workload: Workload) -> tuple[Array | float, Array | float]:
    """Matrices and vectors of one layer on a GPU, queries, keys and values as one matrix; of several kinds of
    layers their mean.
    """
    model = workload.model
    if not model.stack:
        return _tensors_of_layer(workload)
    shares = np.array(model.form_layers) / model.layers
    matrices, vectors = zip(*map(_tensors_of_layer, workload.forms), strict=True)
    return (
        sum(share * count for share, count in zip(shares, matrices, strict=True)),
        sum(share * count for share, count in zip(shares, vectors, strict=True)),
    )


def _tensors_of_layer(workload: Workload) -> tuple[Array | float, Array | float]:
    model, plans = workload.model, workload.plans
    if model.weights_frozen:
        of_experts = len(model.expert_lora_shapes) * model.experts / plans.ep
        return 2.0 * (len(model.lora_shapes) + of_experts), 0.0
    copies = (3 if model.gated_mlp else 2) * model.mlp
    matrices: Array | float = (2.0 if model.attends else float(len(mixer_shapes(model)))) + copies
    if model.latent_kv and model.attends:
        matrices = matrices + (3 if model.latent_q else 2)
    if model.experts > 1:
        shared = copies if model.shared_ffn_hidden else 0
        matrices = matrices + 1 + shared + copies * (model.experts / plans.ep - 1)
    norms = model.norms_per_layer * (2 if model.norm == "layernorm" else 1) + 2 * model.qk_norm
    return matrices, norms + (matrices if model.biases else 1.0 * model.qkv_biases)


def _factor_share(model: ModelSpec) -> float:
    """Rows and columns of a layer's matrices over their elements: (n + m) / (n m) on average."""
    if model.stack:
        counted = zip(model.form_layers, model.forms, strict=True)
        return sum(count / model.layers * _factor_share(form) for count, form in counted)
    h, f = model.hidden, model.ffn_hidden
    shapes = [(h, model.q_hidden), (h, model.kv_hidden), (h, model.kv_hidden), (model.v_hidden, h), (f, h)]
    shapes += [(h, f)] * (2 if model.gated_mlp else 1)
    return sum(n + m for n, m in shapes) / sum(n * m for n, m in shapes)
