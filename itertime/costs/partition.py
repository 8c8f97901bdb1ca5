"""How plans split a model: layers over pipeline stages, parameters over the GPUs of a stage.

A pipeline has at most four kinds of stages, as `itertime.schedule` says. With pp = 1 the only stage is a last
one that also holds the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.cached import cached_property
from itertime.errors import UserError
from itertime.schedule import FIRST, HEAVY, LAST, kind_column
from itertime.spec import (
    IN_32_BIT,
    PRECISIONS,
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
)

from .balance import MicroBatch, micro_batch_of
from .kernel_times import KernelTimes
from .network import Fabric


@dataclass(frozen=True)
class Partition:
    """Layers by kind of stage and parameters by GPU; one column per plan in every array.

    | field | shape | meaning |
    |---|---|---|
    | `layers` | (4, plans) | layers of a stage of each kind; HEAVY is stated even where no stage is |
    | `counts` | (forms, 4, plans) | how many of them have each of the model's forms (`ModelSpec.forms`) |
    | `stages` | (4, plans) | stages of each kind |
    | `shared` | (forms, plans) | parameters of one layer on one GPU that every data-parallel rank holds |
    | `experts` | (forms, plans) | parameters of one layer's experts on one GPU; 0 without any |
    | `trained` | (forms, plans) | those of `shared` that have gradients, or of a layer's low-rank adapters |
    | `trained_experts` | (forms, plans) | the same of `experts` |
    | `vocab` | (plans,) | the padded vocabulary |
    | `table` | (plans,) | parameters of one vocabulary table (embedding or projection) on one GPU |
    | `tables` | (plans,) | parameters of vocabulary tables on the first stage, and those of no other key |
    | `trained_tables` | (plans,) | those of `tables` that have gradients |

    `of_chunks`, (forms, kinds, chunks, plans): layers of each form in each chunk of a stage, where plans list
    the layers of several chunks; None elsewhere. Where they list layers, there may be more than 4 kinds.
    `sets`, as `counts`: sets of weights, where layers of a form share one; None elsewhere. `front`,
    `trained_front`, (plans,) each: parameters of towers on one GPU of the first stage, and those that have
    gradients; None without towers.

    With pp = 1 the first stage has the table of an untied projection too, and so it has where the model's
    last chunk lies on its GPU.
    """

    layers: Whole
    counts: Whole
    stages: Whole
    shared: Array
    experts: Array
    trained: Array
    trained_experts: Array
    vocab: Whole
    table: Array
    tables: Array
    trained_tables: Array
    of_chunks: Whole | None = None
    sets: Whole | None = None
    front: Array | None = None
    trained_front: Array | None = None

    @classmethod
    def of(cls, model: ModelSpec, plans: PlanBatch) -> Partition:
        listed = bool(plans.chunk_layers)
        of_chunks, stages = _listed(model, plans) if listed else (np.zeros((1, 1, 1, 1), dtype=int), None)
        if stages is None:
            layers, stages = _split(model, plans)
        else:
            layers = of_chunks.sum(axis=(0, 2))
        counts = of_chunks.sum(axis=2) if listed else _counts_of_forms(model, plans, layers, stages)
        if model.mtp_layers:  # MTP heads lie on the last stage, beside the model's head
            counts, layers = counts.copy(), layers.copy()
            counts[model.form_order[-1], LAST] += model.mtp_layers
            layers[LAST] += model.mtp_layers
        shards = np.array([_layer_shards(form, plans) for form in model.forms])
        vocab = padded_vocab(model, plans.tp)
        table = vocab * model.table_width / plans.tp
        both_tables = plans.pp == 1
        if plans.splits_backward:
            both_tables = both_tables | plans.v_shaped | plans.both_ways
        tables = table if model.tied_embeddings else np.where(both_tables, 2 * table, table)
        other_parameters = model.extra_parameters
        if model.narrow_embedding:  # the matrices between both widths
            other_parameters += model.hidden * model.table_width + model.head_transform
        tables = tables + other_parameters / plans.tp
        shared, experts = shards[:, 0], shards[:, 1]
        trained = _trained(model, plans, shared, experts) if model.trains_part else (shared, experts)
        of_head = 0.0 if model.tied_embeddings else np.where(both_tables, table, 0.0)
        return cls(
            layers=layers,
            counts=counts,
            stages=stages,
            shared=shared,
            experts=experts,
            trained=trained[0],
            trained_experts=trained[1],
            vocab=vocab,
            table=table,
            tables=tables,
            trained_tables=tables
            if not model.trains_part
            else model.trains_embedding * (tables - of_head) + model.trains_head * of_head,
            of_chunks=of_chunks if of_chunks.shape[2] > 1 else None,
            sets=_sets_of_weights(model, counts) if model.shares_weights else None,
            front=model.tower_parameters() / plans.tp if model.towers else None,
            trained_front=model.tower_parameters(trained=True) / plans.tp if model.towers else None,
        )

    @property
    def weight_counts(self) -> Whole:
        """Sets of weights of each form on a stage of each kind, (forms, 4, plans): one a layer, unless layers
        share one.
        """
        return self.counts if self.sets is None else self.sets

    def sets_of_weights(self, kind: Whole, column: Whole) -> Whole:
        """Sets of weights on the stage of a kind of each plan, (plans,)."""
        return self.layers[kind, column] if self.sets is None else self.sets.sum(axis=0)[kind, column]

    @cached_property
    def layer_parameters(self) -> tuple[Array, Array]:
        """Parameters of a stage's layers on one GPU, (4, plans) each: as `shared`, and experts."""
        return self._of_layers(self.shared), self._of_layers(self.experts)

    def trained_parameters(self, model: ModelSpec) -> tuple[Array, Array]:
        """As `layer_parameters`, of those that have gradients."""
        return (
            (self._of_layers(self.trained), self._of_layers(self.trained_experts))
            if model.trains_part
            else self.layer_parameters
        )

    def _of_layers(self, parameters: Array) -> Array:
        """Parameters of a stage's layers, (4, plans), of those of one layer of each form."""
        counts = self.weight_counts
        counted = counts[0] * parameters[0]
        for count, one_layer in zip(counts[1:], parameters[1:], strict=True):
            counted = counted + count * one_layer
        return counted

    def take(self, rows: Whole) -> Partition:
        """The partition of the plans at `rows`."""
        of_chunks = None if self.of_chunks is None else self.of_chunks[..., rows]
        optional_arrays = {name: getattr(self, name) for name in _OPTIONAL}
        columns = {name: getattr(self, name)[..., rows] for name in _COLUMNS}
        columns |= {name: values[..., rows] for name, values in optional_arrays.items() if values is not None}
        return Partition(**columns, of_chunks=of_chunks)


_OPTIONAL = ("sets", "front", "trained_front")
_COLUMNS = tuple(field.name for field in fields(Partition) if field.name not in ("of_chunks", *_OPTIONAL))
MOST_KINDS = 4
"""Kinds of stages of a plan that lists no layers."""


def kinds_of(plans: PlanBatch) -> int:
    """Rows of arrays with one row for each kind of stages."""
    return max(MOST_KINDS, len(plans.chunk_layers))


@dataclass(frozen=True)
class Workload:
    """Plans of one model on one system: the argument of all cost functions.

    `plans`: of one worker, where several train side by side (`PlanBatch.worker`). `outer`: the options under
    which workers exchange. `lengths`: of the samples; None where each has the model's `seq_len` tokens.
    `micro_batch`: what the mean micro-batch computes. `form`: which form of a layer (`ModelSpec.forms`) the
    costs of one layer are those of.

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
    form: int = 0

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
        if any_of(plans.in_32_bit):
            _check_32_bit(model, plans.options, PRECISIONS[plans.precision[np.argmax(plans.in_32_bit)]])
        if model.frozen_bits < 16 and any_of(plans.below_16_bit):
            precision = PRECISIONS[plans.precision[np.argmax(plans.below_16_bit)]]
            raise UserError(
                f"{model.name}: precision={precision}: weights of frozen_bits={model.frozen_bits} are "
                "multiplied in 16 bit; take precision=bf16"
            )
        framework = framework or load_framework(system.framework)
        outer, plans = plans.options, plans.worker
        lengths = model.sample_lengths()
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

    @property
    def cross_tokens(self) -> Array:
        """Tokens of the encoder's output that a micro-batch attends to, (plans,)."""
        return self.tokens * (self.model.cross_len / self.model.seq_len)

    @cached_property
    def sequence_split(self) -> Whole:
        """Ranks that share the tokens between matrix products, (plans,): tp under sequence parallelism."""
        return np.where(self.plans.sequence_parallel, self.plans.tp, 1)

    @cached_property
    def has_head(self) -> Flags:
        """Whether a stage of each kind has the projection, (4, plans), or (4, 1) for all plans."""
        plans, kinds = self.plans, kind_column(kinds_of(self.plans))
        if not plans.splits_backward:
            return np.equal(kinds, LAST)
        return np.where(plans.v_shaped, kinds == FIRST, kinds == LAST)

    @cached_property
    def has_embedding(self) -> Flags:
        """Whether a stage of each kind has the embedding, (4, plans)."""
        kinds = kind_column(kinds_of(self.plans))
        return (kinds == FIRST) | ((kinds == LAST) & (self.plans.pp == 1))

    @property
    def prefetch(self) -> Flags:
        """Whether a layer's weights are gathered beside the work of the layer ahead, (plans,)."""
        return self.plans.prefetch & self.framework.shard_prefetch

    @property
    def contention(self) -> float:
        """The share of hidden communication by which computation takes longer, on this GPU."""
        limited = self.framework.power_contention
        return self.framework.contention if limited is None or self.profile.gemm_in_training == 1 else limited

    @property
    def fused_loss(self) -> bool:
        """Whether one kernel computes the cross-entropy: the model says so, or the framework has it."""
        return self.model.fused_loss or self.framework.fused_loss

    @property
    def gemm_factor(self) -> float:
        """The time of a GEMM in training, under the framework and at the site, over that of the profile."""
        of_software = self.system.site.gemm_multiplier * self.framework.gemm_multiplier
        return of_software * self.profile.gemm_in_training

    @property
    def forms(self) -> tuple[Workload, ...]:
        """The same plans of models whose every layer has one form, for each of the model's forms."""
        # Were the workload kept in itself, its arrays would wait for the garbage collector.
        return (self,) if self.model.forms[0] is self.model and len(self.model.forms) == 1 else self._of_forms

    @cached_property
    def _of_forms(self) -> tuple[Workload, ...]:
        forms = [replace(self, model=model, form=form) for form, model in enumerate(self.model.forms)]
        if not self.model.has_encoder:
            return tuple(forms)
        share = self.model.encoder_share  # an encoder's layers have a sequence of their own
        longer = self.micro_batch.scaled(share, share**2)
        return tuple(replace(form, micro_batch=longer) if form.model.encoder else form for form in forms)

    @cached_property
    def towers(self) -> tuple[Workload, ...]:
        """For each stack of layers of the model's towers the same plans of a model of such layers."""
        return _of_towers(self)

    @property
    def shared_parameters(self) -> Array:
        """`Partition.shared` of a layer of this form, (plans,)."""
        return self.partition.shared[self.form]

    @property
    def expert_parameters(self) -> Array:
        """`Partition.experts` of a layer of this form, (plans,)."""
        return self.partition.experts[self.form]

    @property
    def trained_parameters(self) -> Array:
        """`Partition.trained` of a layer of this form, (plans,)."""
        return self.partition.trained[self.form]

    def gemm_s(self, m: Array, n: Array, k: Array, batch: Array | int = 1) -> Array:
        """The profile's seconds of products outside `linear_s`: in 16 bit, or in 32 where the plan is."""
        plans, wide = self.plans, self.plans.in_32_bit
        if not any_of(wide):
            return self.profile.seconds(Gemm(m, n, k, batch))
        plans_of = {"bf16": ~wide, **{name: plans.precision == PRECISIONS.index(name) for name in IN_32_BIT}}
        seconds = np.zeros(len(plans))
        for name, rows in plans_of.items():
            if any_of(rows):
                seconds = np.where(rows, self.profile.seconds(Gemm(m, n, k, batch, name)), seconds)
        return seconds

    def take(self, rows: Whole) -> Workload:
        """The workload of the plans at `rows`."""
        return replace(
            self,
            plans=self.plans.take(rows),
            partition=self.partition.take(rows),
            micro_batch=self.micro_batch.take(rows),
        )


def _of_towers(workload: Workload) -> tuple[Workload, ...]:
    """For each stack of layers of the towers the same plans of a model of such layers."""
    plans, stacks = _whole_plans(workload.plans), workload.model.tower_stacks
    works = []
    for stack in stacks:
        length = np.full(len(plans), float(stack.model.seq_len))
        sequences = np.asarray(plans.micro_batch * stack.sequences, dtype=float)
        micro_batch = MicroBatch(sequences * length, sequences * length, sequences, length)
        partition = Partition.of(stack.model, plans)
        works.append(
            replace(workload, model=stack.model, plans=plans, partition=partition, micro_batch=micro_batch)
        )
    return tuple(works)


def _whole_plans(plans: PlanBatch) -> PlanBatch:
    """The plans as a tower has them: on one stage, without what divides sequences or experts."""
    one, off = np.ones_like(plans.tp), np.zeros(len(plans), dtype=bool)
    return replace(
        plans,
        pp=one,
        interleave=one,
        cp=one,
        ep=one,
        etp=plans.tp,
        sequence_parallel=off,
        tp_overlap=0 * one,
        ep_overlap=off,
        balanced=off,
        by_compute=off,
        ends=off,
        remainder=off,
        offload_layers=0 * one,
        chunk_layers=(),
    )


def _check_32_bit(model: ModelSpec, options: PlanOptions, precision: str) -> None:
    """Raises UserError for what has no costs in 32 bit."""
    broken = {
        "flash kernels compute in 16 bit; set the model's attention=core": model.attention != "core",
        "is not modelled for mixtures of experts": model.is_mixture,
        "is not modelled for low-rank adapters": model.lora_rank > 0,
        "is not modelled for towers": bool(model.towers),
        "is not modelled for compression; leave it out": options.compression != "none",
        "is not modelled for quantized_weights and secondary_shards; leave them out": (
            options.quantized_weights or options.secondary_shards is not None
        ),
        "is not modelled for several workers; take workers=1": options.workers > 1,
    }
    reasons = [reason for reason, holds in broken.items() if holds]
    if reasons:
        raise UserError(f"{model.name}: precision={precision}: " + "; ".join(reasons))


def padded_vocab(model: ModelSpec, tp: Whole) -> Whole:
    """The vocabulary rounded up to a multiple of tp times `vocab_multiple`, as Megatron-LM pads it."""
    multiple = model.vocab_multiple * tp
    return -(-model.vocab // multiple) * multiple


def _counts_of_forms(model: ModelSpec, plans: PlanBatch, layers: Whole, stages: Whole) -> Whole:
    """Layers of each form on a stage of each kind, (forms, 4, plans)."""
    if model.stack:
        return _counts_in_stack(model, layers, stages)
    if not model.dense_layers:
        return layers[None]
    dense = np.zeros(layers.shape, dtype=int)
    dense[FIRST] = model.dense_layers
    dense[LAST] = np.where(plans.pp == 1, model.dense_layers, 0)
    return np.array([layers - dense, dense])


def _counts_in_stack(model: ModelSpec, layers: Whole, stages: Whole) -> Whole:
    """The same of a model with a list of layers. Stages between the ends have equally many of each form
    (`Plan.broken_rules`), so the first of them stands for all; so do all chunks of a stage. Kinds of which a
    plan has no stage may be stated with more layers than there are.
    """
    is_form = np.array(model.form_order) == np.arange(len(model.forms))[:, None]
    before = np.concatenate([np.zeros((len(is_form), 1), dtype=int), is_form.cumsum(axis=1)], axis=1)
    layers = np.minimum(layers, model.layers)
    middle = np.minimum(np.where(stages[FIRST] > 0, layers[FIRST], 0), model.layers - layers[HEAVY])
    starts = np.array([0 * middle, middle, middle, model.layers - layers[LAST]])
    return before[:, np.minimum(starts + layers, model.layers)] - before[:, starts]


def _trained(model: ModelSpec, plans: PlanBatch, shared: Array, experts: Array) -> tuple[Array, Array]:
    """Of the parameters of a layer of each form on one GPU those that have gradients, or low-rank ones."""
    if model.lora_rank:
        adapters = [
            (form.lora_parameters, form.experts * form.expert_lora_parameters) for form in model.forms
        ]
        common, of_experts = np.array(adapters, dtype=float).T[..., None]
        return common / plans.tp, of_experts / (plans.etp * plans.ep)
    trains = np.array([not form.weights_frozen for form in model.forms])[:, None]
    return trains * shared, trains * experts


def _sets_of_weights(model: ModelSpec, counts: Whole) -> Whole:
    """Sets of weights of each form: one where its layers share them, else one a layer."""
    shares = np.array([form.shared_weights for form in model.forms])[:, None, None]
    return np.where(shares, np.minimum(counts, 1), counts)


def _layer_shards(model: ModelSpec, plans: PlanBatch) -> tuple[Array, Array]:
    """Parameters of one layer on one GPU: those that all data-parallel ranks share, and its experts.

    Tensor parallelism splits both. Where it has more ranks than the model has heads of keys and values, the
    ranks hold copies of those heads. Every rank holds all of what compresses queries, keys and values, and
    all of an indexer.
    """
    experts = model.experts * model.expert_parameters if model.experts > 1 else 0
    shared = (model.layer_parameters - experts) / plans.tp
    if model.kv_heads < model.heads:
        copies = 1 / np.minimum(plans.tp, model.kv_heads) - 1 / plans.tp
        shared = shared + 2 * model.hidden * model.kv_hidden * copies
    if model.latent_kv:
        whole = model.latent_parameters + model.index_parameters
        shared = shared + whole * (1 - 1 / plans.tp)
    return shared, experts / (plans.etp * plans.ep)


Split = tuple[Whole, Whole]
"""Layers of a stage and number of stages by kind, (4, plans) each."""


def _split(model: ModelSpec, plans: PlanBatch) -> Split:
    """The even split, replaced by another one in the plans that ask for it; a plan asks for one at most."""
    layers, stages = _even_split(model, plans)
    if not any_of(plans.balanced | plans.by_compute | plans.ends | plans.remainder):
        return layers, stages  # as most searches ask; the conditions below take longer than the split
    for asking_plans, split in (
        (plans.balanced, _balanced_split),
        (plans.by_compute & (plans.pp > 1), _split_by_compute),
        (plans.ends | plans.remainder, _split_in_chunks),
    ):
        if asking_plans.all():
            return split(model, plans)
        if any_of(asking_plans):
            split_layers, split_stages = split(model, plans)
            layers = np.where(asking_plans, split_layers, layers)
            stages = np.where(asking_plans, split_stages, stages)
    return layers, stages


def _listed(model: ModelSpec, plans: PlanBatch) -> tuple[Whole, Whole]:
    """Layers of each form in every chunk of stages, (forms, kinds, chunks, plans), and stages of each kind,
    of plans that list them; stages that a plan lacks have as many as its first one.
    """
    sizes, kinds = np.array(plans.chunk_layers), kinds_of(plans)
    is_form = np.array(model.form_order) == np.arange(len(model.forms))[:, None]
    before = np.concatenate([np.zeros((len(is_form), 1), dtype=int), is_form.cumsum(axis=1)], axis=1)
    ends = np.minimum(sizes.cumsum(), model.layers)
    of_chunk = before[:, ends] - before[:, ends - sizes]  # (forms, chunks in order)
    chunk_count = int(plans.interleave.max(initial=1))
    counts = np.zeros((len(is_form), kinds, chunk_count, len(plans)), dtype=np.int64)
    stages = np.zeros((kinds, len(plans)), dtype=np.int64)
    for pp in set(plans.pp.tolist()):
        rows = np.flatnonzero(plans.pp == pp)
        by_stage = of_chunk[:, : len(sizes) // pp * pp].reshape(len(is_form), -1, pp).swapaxes(1, 2)
        order = [0, *range(1, pp - 1), *[0] * (kinds - pp), pp - 1] if pp > 1 else [0] * kinds
        by_kind = by_stage[:, order]
        counts[:, :, : by_kind.shape[2], rows] = by_kind[..., None]
        stages[: pp - 1, rows] = 1
        stages[LAST, rows] = 1
    return counts, stages


def _even_split(model: ModelSpec, plans: PlanBatch) -> Split:
    """Equally many layers on all stages, in plans whose stages divide the layers."""
    even, single = model.layers // plans.pp, np.ones(len(plans), dtype=np.int64)
    stages = [np.minimum(plans.pp - 1, 1), np.maximum(plans.pp - 2, 0), 0 * single, single]
    return np.array([even, even, even, even]), np.array(stages)


def _split_in_chunks(model: ModelSpec, plans: PlanBatch) -> Split:
    """The splits "ends" and "remainder".

    "ends" is `get_num_layers_to_build` of Megatron-LM (transformer_block.py) with embedding and loss counted.
    Where "remainder" leaves several chunks empty, these are the last ones of the last stages: LIGHT stages.
    """
    pp, chunks = plans.pp, plans.pp * plans.interleave
    remainder = RemainderChunks.of(model, chunks)
    chunk_layers = np.where(plans.ends, (model.layers + 2) // chunks, remainder.most)
    heavy_layers = chunk_layers * plans.interleave
    first_layers = heavy_layers + np.where(plans.ends, -1, remainder.first - chunk_layers)
    last_deficit = np.where(remainder.empty > 0, chunk_layers, remainder.lacking)
    last_layers = np.where(pp == 1, model.layers, heavy_layers - np.where(plans.ends, 1, last_deficit))
    # Of the empty chunks one is the last stage's; every other one makes its stage LIGHT.
    light = np.where(plans.ends, 0, np.maximum(remainder.empty - 1, 0))
    light_layers = np.where(light > 0, heavy_layers - chunk_layers, heavy_layers)
    stages = [np.minimum(pp - 1, 1), np.maximum(pp - 2, 0) - light, light, np.ones_like(pp)]
    return np.array([first_layers, heavy_layers, light_layers, last_layers]), np.array(stages)


def _balanced_split(model: ModelSpec, plans: PlanBatch) -> Split:
    """The balanced split, of plans whose stages do not divide the layers; even where they do.

    Embedding and projection count as one layer each. Stages are filled one after the other to the smallest
    sufficient size, so the last stage gets the remainder. DeepSpeed's `partition_balanced`
    (runtime/utils.py) is assumed to have split BLOOM in this way. Where the last stages would stay empty,
    which no run can have used, as many middle stages as necessary get one layer more instead.
    """
    pp, blocks = plans.pp, model.layers + 2
    uneven = model.layers % pp != 0
    even, middles = model.layers // pp, np.maximum(pp - 2, 0)
    small, large = blocks // pp, -(-blocks // pp)
    last_blocks = blocks - large * (pp - 1)  # when all other stages are filled
    filled = last_blocks > 0
    layers = [
        np.where(uneven, np.where(filled, large, small) - 1, even),
        np.where(uneven, large, even),
        np.where(uneven, small, even),
        np.where(uneven, np.where(filled, last_blocks, small) - 1, even),
    ]
    heavy = np.where(uneven & ~filled, blocks % pp, middles)
    stages = [np.minimum(pp - 1, 1), heavy, middles - heavy, np.ones_like(pp)]
    return np.array(layers), np.array(stages)


def _split_by_compute(model: ModelSpec, plans: PlanBatch) -> Split:
    """The split by arithmetic, of plans with several stages.

    Layers fill one stage after the other until the stage exceeds its share of the arithmetic, of which the
    projection has as much as its parameters. nanotron builds its pipelines in this way
    (`get_block_compute_costs` and the thresholds derived from it). Where the projection is worth several
    stages, middle stages that nanotron would leave without a layer get some of the others'.
    """
    pp = plans.pp
    share = (model.layers + model.vocab * model.hidden / model.layer_matmul_parameters) / pp
    first_layers = np.minimum(np.floor(share) + 1, model.layers).astype(np.int64)
    last_start = np.minimum(np.floor(share * (pp - 1)) + 1, model.layers).astype(np.int64)
    light_layers, heavy = np.divmod(last_start - first_layers, np.maximum(pp - 2, 1))
    layers = [first_layers, light_layers + 1, light_layers, model.layers - last_start]
    stages = [np.ones_like(pp), heavy, np.maximum(pp - 2, 0) - heavy, np.ones_like(pp)]
    return np.array(layers), np.array(stages)
