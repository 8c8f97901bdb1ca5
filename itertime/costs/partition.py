"""How plans split a model: layers over pipeline stages, parameters over the GPUs of a stage.

A pipeline has at most four kinds of stages, as `itertime.schedule` says. With pp = 1 the only stage is a last
one that also holds the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.schedule import FIRST, LAST
from itertime.spec import (
    Framework,
    Gemm,
    Lengths,
    ModelSpec,
    PlanBatch,
    PlanOptions,
    RemainderChunks,
    System,
    check_predictable,
    load_framework,
    load_lengths,
)

from .balance import MicroBatch, micro_batch_of
from .kernel_times import KernelTimes
from .network import Fabric

__all__ = ["Partition", "Workload", "padded_vocab"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """Layers by kind of stage and parameters by GPU; one column per plan in every array.

    | field | shape | meaning |
    |---|---|---|
    | `layers` | (4, plans) | layers of a stage of each kind; HEAVY is stated even where no stage is |
    | `dense` | (4, plans) | how many of them are dense layers of a mixture, which come first |
    | `stages` | (4, plans) | stages of each kind |
    | `shared` | (plans,) | parameters of one layer on one GPU that every data-parallel rank holds |
    | `dense_shared` | (plans,) | the same of one of a mixture's dense layers; 0 without any |
    | `experts` | (plans,) | parameters of one layer's experts on one GPU; 0 without a mixture |
    | `vocab` | (plans,) | the padded vocabulary |
    | `table` | (plans,) | parameters of one vocabulary table (embedding or projection) on one GPU |
    | `trained` | (plans,) | parameters as `shared` that have gradients: all, or low-rank ones |
    | `tables` | (plans,) | of all tables on the first stage: with pp = 1 the untied projection is there too |
    """

    layers: Whole
    dense: Whole
    stages: Whole
    shared: Array
    dense_shared: Array
    experts: Array
    vocab: Whole
    table: Array
    tables: Array
    trained: Array

    @classmethod
    def of(cls, model: ModelSpec, plans: PlanBatch) -> Partition:
        layers, stages = _split(model, plans)
        shared, experts = _layer_shards(model, plans)
        dense, dense_shared = np.zeros(layers.shape, dtype=int), np.zeros(len(plans))
        if model.dense_layers:
            dense[FIRST] = model.dense_layers
            dense[LAST] = np.where(plans.pp == 1, model.dense_layers, 0)
            dense_shared, _ = _layer_shards(model.dense_form(), plans)
        vocab = padded_vocab(model, plans.tp)
        table = vocab * model.hidden / plans.tp
        tables = table if model.tied_embeddings else np.where(plans.pp == 1, 2 * table, table)
        return cls(
            layers=layers,
            dense=dense,
            stages=stages,
            shared=shared,
            dense_shared=dense_shared,
            experts=experts,
            vocab=vocab,
            table=table,
            tables=tables,
            trained=model.lora_parameters / plans.tp if model.lora_rank else shared,
        )

    def layer_parameters(self) -> tuple[Array, Array]:
        """Parameters of a stage's layers on one GPU, (4, plans) each: as `shared`, and experts."""
        usual = self.layers - self.dense
        return usual * self.shared + self.dense * self.dense_shared, usual * self.experts

    def trained_parameters(self, model: ModelSpec) -> tuple[Array, Array]:
        """As `layer_parameters`, of those that have gradients."""
        return (
            (self.layers * self.trained, self.layers * self.experts)
            if model.lora_rank
            else self.layer_parameters()
        )

    def take(self, rows: Whole) -> Partition:
        """The partition of the plans at `rows`."""
        return Partition(*(getattr(self, name)[..., rows] for name in _COLUMNS))


_COLUMNS = tuple(field.name for field in fields(Partition))


@dataclass(frozen=True)
class Workload:
    """Plans of one model on one system: the argument of all cost functions.

    `plans`: of one worker, where several train side by side (`PlanBatch.worker`). `outer`: the options under
    which workers exchange. `lengths`: of the samples; None where each has the model's `seq_len` tokens.
    `micro_batch`: what the mean micro-batch computes.

    `Workload.of` computes partition and micro-batch once for all plans. It raises UserError for a model whose
    architecture the costs would misstate (`spec/fidelity.py`), and for lengths above `seq_len`.
    """

    model: ModelSpec
    plans: PlanBatch
    system: System
    profile: KernelTimes
    framework: Framework
    partition: Partition
    lengths: Lengths | None
    micro_batch: MicroBatch
    outer: PlanOptions

    @classmethod
    def of(
        cls,
        model: ModelSpec,
        plans: PlanBatch,
        system: System,
        profile: KernelTimes,
        framework: Framework | None = None,
    ) -> Workload:
        """The workload under `framework`; None is the system's."""
        check_predictable(model)
        if plans.in_32_bit.any():
            _check_32_bit(model, plans.options)
        framework = framework or load_framework(system.framework)
        outer, plans = plans.options, plans.worker
        lengths = load_lengths(model.lengths, model.seq_len) if model.lengths else None
        micro_batch = micro_batch_of(model, plans, lengths, system.domain_gpus)
        partition = Partition.of(model, plans)
        return cls(model, plans, system, profile, framework, partition, lengths, micro_batch, outer)

    def __len__(self) -> int:
        return len(self.plans)

    @cached_property
    def fabric(self) -> Fabric:
        """What carries the bytes of collectives."""
        return Fabric(self.system, self.profile)

    @property
    def tokens(self) -> Array:
        """Tokens that one micro-batch computes on one context-parallel rank, (plans,)."""
        return self.micro_batch.tokens

    @cached_property
    def sequence_split(self) -> Whole:
        """Ranks that share the tokens between matrix products, (plans,): tp under sequence parallelism."""
        return np.where(self.plans.sequence_parallel, self.plans.tp, 1)

    @property
    def fused_loss(self) -> bool:
        """Whether one kernel computes the cross-entropy: the model says so, or the framework has it."""
        return self.model.fused_loss or self.framework.fused_loss

    @property
    def gemm_factor(self) -> float:
        """The time of a GEMM in training, under the framework and at the site, over that of the profile."""
        of_software = self.system.site.gemm_multiplier * self.framework.gemm_multiplier
        return of_software * self.profile.gemm_in_training

    @cached_property
    def dense_form(self) -> Workload:
        """The same plans of a model whose every layer is one of the mixture's dense layers.

        Its partition has the parameters of such layers; layers by stage are those of the model itself.
        """
        partition = self.partition
        dense = replace(
            partition,
            shared=partition.dense_shared,
            trained=partition.dense_shared,
            experts=np.zeros(len(self)),
        )
        return replace(self, model=self.model.dense_form(), partition=dense)

    def gemm_s(self, m: Array, n: Array, k: Array, batch: Array | int = 1) -> Array:
        """The profile's seconds of products outside `linear_s`: in 16 bit, or in 32 where the plan is."""
        seconds, wide = self.profile.seconds(Gemm(m, n, k, batch)), self.plans.in_32_bit
        if not wide.any():
            return seconds
        return np.where(wide, self.profile.seconds(Gemm(m, n, k, batch, "tf32")), seconds)

    def take(self, rows: Whole) -> Workload:
        """The workload of the plans at `rows`."""
        return replace(
            self,
            plans=self.plans.take(rows),
            partition=self.partition.take(rows),
            micro_batch=self.micro_batch.take(rows),
        )


def _check_32_bit(model: ModelSpec, options: PlanOptions) -> None:
    """Raises UserError for what has no costs in 32 bit."""
    broken = {
        "flash kernels compute in 16 bit; set the model's attention=core": model.attention != "core",
        "is not modelled for mixtures of experts": model.experts > 1,
        "is not modelled for low-rank adapters": model.lora_rank > 0,
        "is not modelled for compression; leave it out": options.compression != "none",
        "is not modelled for quantized_weights and secondary_shards; leave them out": (
            options.quantized_weights or options.secondary_shards is not None
        ),
        "is not modelled for several workers; take workers=1": options.workers > 1,
    }
    reasons = [why for why, holds in broken.items() if holds]
    if reasons:
        raise UserError(f"{model.name}: precision=tf32: " + "; ".join(reasons))


def padded_vocab(model: ModelSpec, tp: Whole) -> Whole:
    """The vocabulary rounded up to a multiple of tp times `vocab_multiple`, as Megatron-LM pads it."""
    multiple = model.vocab_multiple * tp
    return -(-model.vocab // multiple) * multiple


def _layer_shards(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array]:
    """Parameters of one layer on one GPU: those that all data-parallel ranks share, and its experts.

    Tensor parallelism splits both. Where it has more ranks than the model has heads of keys and values, the
    ranks hold copies of those heads. Every rank holds all of what compresses queries, keys and values.
    """
    experts = model.experts * model.expert_parameters if model.experts > 1 else 0
    shared = (model.layer_parameters - experts) / plans.tp
    if model.kv_heads < model.heads:
        copies = 1 / np.minimum(plans.tp, model.kv_heads) - 1 / plans.tp
        shared = shared + 2 * model.hidden * model.kv_hidden * copies
    if model.latent_kv:
        shared = shared + model.latent_parameters * (1 - 1 / plans.tp)
    return shared, experts / (plans.etp * plans.ep)


def _split(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """Layers and number of stages by kind, (4, plans) each."""
    in_chunks = plans.ends | plans.remainder
    if (in_chunks | plans.by_compute | plans.balanced).any():
        if in_chunks.any():
            return _split_in_chunks(model, plans)
        return (_split_by_compute if plans.by_compute.any() else _balanced_split)(model, plans)
    first, last = np.minimum(plans.pp - 1, 1), np.ones(len(plans), dtype=int)
    even = model.layers // plans.pp
    stages = np.array([first, np.maximum(plans.pp - 2, 0), 0 * last, last])
    return np.array([even, even, even, even]), stages


def _split_in_chunks(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """The splits "ends" and "remainder" of the plans that ask for one; the others are split as usual.

    "ends" is `get_num_layers_to_build` of Megatron-LM (transformer_block.py) with embedding and loss counted.
    Where "remainder" leaves several chunks empty, these are the last ones of the last stages: LIGHT stages.
    """
    pp, chunks = plans.pp, plans.pp * plans.interleave
    remains = RemainderChunks.of(model, chunks)
    most = np.where(plans.ends, (model.layers + 2) // chunks, remains.most)
    full = most * plans.interleave
    first = full + np.where(plans.ends, -1, remains.first - most)
    lacks = np.where(remains.empty > 0, most, remains.lacking)
    last = np.where(pp == 1, model.layers, full - np.where(plans.ends, 1, lacks))
    light = np.where(plans.ends, 0, np.maximum(remains.empty - 1, 0))
    layers = [first, full, np.where(light > 0, full - most, full), last]
    stages = [np.minimum(pp - 1, 1), np.maximum(pp - 2, 0) - light, light, np.ones_like(pp)]
    chosen = plans.ends | plans.remainder
    if chosen.all():
        return np.array(layers), np.array(stages)
    no = np.zeros_like(plans.ends)
    other_layers, other_stages = _split(model, replace(plans, ends=no, remainder=no))
    return np.where(chosen, np.stack(layers), other_layers), np.where(chosen, np.stack(stages), other_stages)


def _balanced_split(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """The balanced split of the plans that ask for it; the others are split evenly.

    Embedding and projection count as one layer each. Stages are filled one after the other to the smallest
    sufficient size, so the last stage gets the remainder. DeepSpeed's `partition_balanced`
    (runtime/utils.py) is assumed to have split BLOOM in this way. Where the last stages would stay empty,
    which no run can have used, as many middle stages as necessary get one layer more instead.
    """
    pp = plans.pp
    uneven = (model.layers % pp != 0) & plans.balanced
    even, middles = model.layers // pp, np.maximum(pp - 2, 0)
    blocks = model.layers + 2
    least, most = blocks // pp, -(-blocks // pp)
    remaining = blocks - most * (pp - 1)  # for the last stage, when all others are filled
    filled = remaining > 0
    layers = [
        np.where(uneven, np.where(filled, most, least) - 1, even),
        np.where(uneven, most, even),
        np.where(uneven, least, even),
        np.where(uneven, np.where(filled, remaining, least) - 1, even),
    ]
    heavy = np.where(uneven & ~filled, blocks % pp, middles)
    stages = [np.minimum(pp - 1, 1), heavy, middles - heavy, np.ones_like(pp)]
    return np.stack(layers), np.stack(stages)


def _split_by_compute(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """The split by arithmetic of the plans that ask for it; the others are split as usual.

    Layers fill one stage after the other until the stage exceeds its share of the arithmetic, of which the
    projection has as much as its parameters. nanotron builds its pipelines in this way
    (`get_block_compute_costs` and the thresholds derived from it). Where the projection is worth several
    stages, middle stages that nanotron would leave without a layer get some of the others'.
    """
    other_layers, other_stages = _split(model, replace(plans, by_compute=np.zeros_like(plans.by_compute)))
    pp, chosen = plans.pp, plans.by_compute & (plans.pp > 1)
    share = (model.layers + model.vocab * model.hidden / model.layer_matmul_parameters) / pp
    first = np.minimum(np.floor(share) + 1, model.layers).astype(np.int64)
    before_last = np.minimum(np.floor(share * (pp - 1)) + 1, model.layers).astype(np.int64)
    middles = np.maximum(pp - 2, 1)
    light, heavy = np.divmod(before_last - first, middles)
    layers = np.stack([first, light + 1, light, model.layers - before_last])
    stages = np.stack([np.ones_like(pp), heavy, np.maximum(pp - 2, 0) - heavy, np.ones_like(pp)])
    return np.where(chosen, layers, other_layers), np.where(chosen, stages, other_stages)
