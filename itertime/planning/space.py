"""The plans that a search considers: every combination of a space's choices that keeps the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from itertime.arrays import Flags, Whole
from itertime.errors import UnknownName, UserError, quoted
from itertime.schedule import MOST_PASSES, SPLIT_SCHEDULES
from itertime.spec import (
    CHOICES,
    DEFAULT_OPTIONS,
    DEFAULT_RULES,
    ModelSpec,
    Plan,
    PlanBatch,
    PlanOptions,
    System,
    absent_modules,
    broken_options,
    broken_stacks,
    in_order,
    is_layout,
    layers_of_chunks,
    layout_problem,
    modules_of,
    recompute_code,
    recompute_problem,
    refusals,
)

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CP_TOKENS = 8192  # of a sequence on each rank: Llama 3 has cp 1 at 8,192 and cp 16 at 131,072
MOST_PLANS = 10_000_000  # about 4 GB of columns
LARGEST = 10_000_000  # GPUs, sequences: far beyond anything built, and small enough to enumerate divisors


@dataclass(frozen=True)
class Space:
    """The choices of a search, which considers every combination that keeps the rules.

    Empty choices stand for all sensible ones: `tp` the powers of two up to a node's GPUs (larger ones only if
    listed), `pp` every divisor of the layers, `interleave` of a stage's layers, `ep` of the experts, `cp` 1
    and the powers of two that leave each rank at least `CP_TOKENS` tokens of a sequence. With `ends`,
    pipelines that the layers do not divide into evenly are split in this way where that is possible
    (`Plan.split`); not those of two interleaved stages, whose time has no closed form. A mixture of experts
    under tensor parallelism always has sequence parallelism. With `offload_optimizer`, every plan is also
    tried with the optimizer on the CPU, or as a choice like the others says. `precision` and what follows
    `offload_optimizer` hold for all plans, as in `Plan`; plans that break a rule of these are left out.
    `split` replaces `ends`, and `dp` is by default any. Plans that the `rules` cannot say are left out.
    `SPACES` has the spaces with a name: the default, `full`, and that of vTrain's studies, `vtrain`.
    """

    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    micro_batch: tuple[int, ...] = MICRO_BATCHES
    interleave: tuple[int, ...] = ()
    recompute: tuple[str, ...] = ("none", "selective", "full")
    zero_stage: tuple[int, ...] = (0, 1, 2, 3)
    sequence_parallel: tuple[bool, ...] = (False, True)
    grad_overlap: bool = False
    cp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    precision: str = "bf16"
    ends: bool = True
    offload_optimizer: bool | tuple[bool, ...] = False
    etp: int | None = None
    dispatcher: str = "alltoall"
    cuda_graphs: str = "none"
    ep_overlap: bool = False
    tp_overlap: bool | None = None
    options: PlanOptions = DEFAULT_OPTIONS
    dp: tuple[int, ...] = ()
    schedule: str = "1f1b"
    split: str | None = None
    cp_exchange: str = "ring"
    rank_order: str = "tp-cp-dp-pp"
    zero_group: int | None = None
    recompute_fraction: float = 1.0
    offload_layers: int = 0
    fp32_gradients: bool = False
    prefetch: bool = True
    bucket_bytes: int | None = None
    rules: str = DEFAULT_RULES

    def __post_init__(self) -> None:
        for name in _LISTS:
            self._check_list(name)
        for name, words in CHOICES.items():
            word = getattr(self, name)
            if name == "split" and is_layout(word):
                if problem := layout_problem(word):
                    raise UserError(f"search: split={quoted(word)}: {problem}")
            elif word not in words and not (name == "split" and word is None):
                lists = ", or layers like 7,8,9,8" if name == "split" else ""
                raise UserError(f"search: {name}={quoted(word)}: must be among {', '.join(words)}{lists}")
        if not isinstance(self.options, PlanOptions):
            raise UserError(f"search: options={quoted(self.options)}: must be those of parse_options")
        constants = {name: getattr(self, name) for name in _NUMBERS}
        for problem in Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1, **constants).bad_values():
            raise UserError(f"search: {problem}")

    def _check_list(self, name: str) -> None:
        """Makes the choices of `name` a tuple. UserError if they are none, or one of them is out of range."""
        choices = getattr(self, name)
        if not isinstance(choices, Sequence | np.ndarray) or isinstance(choices, str):
            raise UserError(f"search: {name}={quoted(choices)}: must be a list of choices")
        values = tuple(int(value) if isinstance(value, np.integer) else value for value in choices)
        if not values and name not in _OPEN:
            raise UserError(f"search: {name}=(): must have a choice")
        words = {"zero_stage": (0, 1, 2, 3), "sequence_parallel": (False, True)}
        if name == "recompute":
            self._check_recompute(values)
            values = tuple(in_order(str(value)) for value in values)
        for value in values if name != "recompute" else ():
            if name in words and value not in words[name]:
                listed = ", ".join(map(str, words[name]))
                raise UserError(f"search: {name}={quoted(value)}: must be among {listed}")
            if name not in words and not (type(value) is int and 1 <= value <= LARGEST):
                raise UserError(
                    f"search: {name}={quoted(value)}: must be a whole number from 1 to {LARGEST:,}"
                )
        object.__setattr__(self, name, values)

    def _check_recompute(self, values: Sequence[object]) -> None:
        for value in values:
            if problem := recompute_problem(value):
                raise UserError(f"search: recompute={quoted(value)}: {problem}")


_OPEN = ("tp", "pp", "dp", "interleave", "cp", "ep")
"""The choices that a search makes itself where none are listed."""
_LISTS = (*_OPEN, "micro_batch", "recompute", "zero_stage", "sequence_parallel")
_NUMBERS = ("etp", "zero_group", "recompute_fraction", "offload_layers", "bucket_bytes")
WHOLE = Space()
VTRAIN = Space(interleave=(1,), zero_stage=(0,), sequence_parallel=(False,), cp=(1,), ends=False)
SPACES = {"full": WHOLE, "vtrain": VTRAIN}
"""The spaces that have a name. That of vTrain's studies (Bang et al., MICRO 2024) has tensor, data and
pipeline parallelism in 1F1B, micro-batches, and recomputation.
"""


SPACE_OF_RULES = {DEFAULT_RULES: "full", "vtrain": "vtrain"}
"""The names of the spaces that plans are searched in by default, by the rules that predict them."""


def named_space(name: str) -> Space:
    """The space of a name in `SPACES`; UnknownName for any other."""
    if name not in SPACES:
        raise UnknownName("space", name, SPACES)
    return SPACES[name]


def as_space(space: Space | str | None) -> Space:
    """A space as it is, the one of a name, or the default. UserError for anything else."""
    if space is None or isinstance(space, Space):
        return space or WHOLE
    if isinstance(space, str):
        return named_space(space)
    raise UserError(f"search: space={type(space).__name__}: must be a Space, or the name of one")


def divisors(number: int) -> list[int]:
    """All divisors, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def tensor_splits(model: ModelSpec, system: System, etp: int | None = None) -> list[int]:
    """The powers of two within an NVLink domain that divide the model's heads and widths; with `etp`, which
    must divide them instead, not those of the experts.
    """
    sizes = [1 << i for i in range(system.domain_gpus.bit_length())]
    return [tp for tp in sizes if tp <= system.domain_gpus and _splits(model, tp, etp)]


def context_splits(model: ModelSpec) -> list[int]:
    """1, and the powers of two that leave each rank at least `CP_TOKENS` tokens of a sequence.

    So has Llama 3 405B: cp 1 at 8,192 and cp 16 at 131,072 (The Llama 3 Herd of Models, 2024, Table 4).
    """
    if model.attention == "core":
        return [1]
    return [1 << i for i in range(max(model.seq_len // CP_TOKENS, 1).bit_length())]


def _splits(model: ModelSpec, tp: int, etp: int | None) -> bool:
    return all(_splits_layer(kind, tp, etp) for kind in model.layer_kinds)


def _splits_layer(model: ModelSpec, tp: int, etp: int | None) -> bool:
    width = not model.mlp or model.ffn_hidden % (etp or tp) == 0
    if not model.attends:
        groups = model.state_groups
        return (
            model.state_shards % tp == 0 and width and (groups == 0 or groups % tp == 0 or tp % groups == 0)
        )
    kv = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and width and kv


def candidates(
    model: ModelSpec, global_batch: int, system: System, space: Space, gpus: Sequence[int]
) -> PlanBatch:
    """Every plan of the space that keeps the rules and uses one of the numbers of GPUs in `gpus` (ascending),
    whether or not it fits in memory. Raises UserError for more than `MOST_PLANS`, for a space with `etp` of a
    model without experts, and for options that no plan of the model can have.
    """
    etp = space.etp
    for words in space.recompute:
        for need in absent_modules(model, modules_of(recompute_code(words))):
            raise UserError(f"search: recompute={words}: {need}; leave it out")
    if etp is not None and not model.is_mixture:
        raise UserError(f"search: etp={etp}: needs a model with experts")
    # Combinations of degrees first, then of micro-batch and interleaving, which depend on these; each is then
    # combined with every choice that does not.
    tps = tensor_splits(model, system, etp)
    if space.tp:
        tps = [tp for tp in space.tp if _splits(model, tp, etp)]
    dps = [dp for dp in space.dp or divisors(global_batch) if global_batch % dp == 0]
    shapes = _shapes(tps, _stages(model, space), dps, space.cp or context_splits(model), gpus)
    shapes = _schedules(shapes, model, global_batch, space)
    choices = _choices(model, space)
    if shapes.shape[1] * choices.shape[1] > 2 * MOST_PLANS:
        size = f"about {shapes.shape[1] * choices.shape[1] / 1e6:,.0f} million"
        raise UserError(f"search: {size} plans are too many; restrict the space, or take fewer GPUs")
    shape, choice = np.nonzero(_keeps_rules(shapes, choices, model, space))
    plans = _batch(shapes[:, shape], choices[:, choice], model, global_batch, space)
    if space.rules != DEFAULT_RULES:
        _check_said(space, model)
        plans = plans.take(plans.said_by_rules)
    return _with_options(plans, model)


def _check_said(space: Space, model: ModelSpec) -> None:
    """UserError for what the space's rules cannot say of a model, or of any plan of the space: of what all of
    them have, or of each choice that is listed for them.
    """
    single = _single(space, 1)
    broken = refusals(single, model)
    listed = {name: getattr(space, name) for name in _LISTS}
    if isinstance(space.offload_optimizer, tuple):
        listed["offload_optimizer"] = space.offload_optimizer
    for name, choices in listed.items():
        reasons = [refusals(replace(single, **{name: choice}), model) for choice in choices]
        if reasons and not broken and all(reasons):
            broken = reasons[0]
    if broken:
        raise UserError(f"search: {model.name}: {'; '.join(broken)}")


def _with_options(plans: PlanBatch, model: ModelSpec) -> PlanBatch:
    """The plans that can have their options. UserError for options that break a rule whatever the plan."""
    keeps = np.ones(len(plans), dtype=bool)
    for broken, rule in broken_options(plans.options, model, plans):
        if np.ndim(broken) == 0 and broken:
            raise UserError(f"search: {model.name}: {rule}")
        keeps &= ~np.asarray(broken)
    for broken, _ in broken_stacks(model, plans):
        keeps &= ~np.asarray(broken)
    return plans if keeps.all() else plans.take(keeps)


def options_in_the_way(
    model: ModelSpec, global_batch: int, system: System, space: Space, gpus: Sequence[int]
) -> str:
    """Why no plan of the space has its options: the rule that most of its plans break; "" if the space has
    no plan without them either. For arguments of `candidates` that give no plan.
    """
    plans = candidates(model, global_batch, system, replace(space, options=DEFAULT_OPTIONS), gpus)
    plans = replace(plans, options=space.options)
    rules = [
        (np.count_nonzero(np.broadcast_to(broken, len(plans))), rule)
        for broken, rule in broken_options(space.options, model, plans)
    ]
    return max(rules, key=itemgetter(0))[1] if rules and len(plans) else ""


def _stages(model: ModelSpec, space: Space) -> list[int]:
    """The sizes of pipelines that can hold the layers."""
    if space.pp:
        held = [pp for pp in space.pp if pp <= model.layers]
        return held if space.split else [pp for pp in held if _divides(model, space, pp, 1)]
    return [pp for pp in _factors(model, space) if pp <= model.layers]


def _factors(model: ModelSpec, space: Space) -> list[int]:
    """Numbers of stages, or of chunks of a stage, that some split has."""
    if chunk_layers := layers_of_chunks(space.split or ""):
        return divisors(len(chunk_layers))
    with_ends = divisors(model.layers + 2) if space.ends or space.split in ("ends", "remainder") else []
    return sorted({*divisors(model.layers), *with_ends})


def _divides(model: ModelSpec, space: Space, pp: Whole | int, interleave: Whole | int) -> Flags:
    """Whether the chunks of so many stages hold the layers, with the dense ones on the first chunk."""
    if model.stack:
        return np.asarray(np.frompyfunc(model.has_equal_stages, 2, 1)(pp, interleave), dtype=bool)
    chunks = pp * interleave
    even = (model.layers % chunks == 0) & _holds_dense(model, model.layers // chunks, chunks)
    if not space.ends:
        return np.asarray(even)
    ends = (model.layers + 2) % chunks == 0
    return np.asarray(even | (ends & _holds_dense(model, (model.layers + 2) // chunks - 1, chunks)))


def _holds(model: ModelSpec, space: Space, pp: Whole, interleave: Whole) -> Flags:
    """Whether the stages, and their chunks, hold the layers by the split of the space."""
    if space.split is None:
        return _divides(model, space, pp, interleave)
    columns = np.stack([array.ravel() for array in np.broadcast_arrays(pp, interleave)])
    pairs, where = np.unique(columns, axis=1, return_inverse=True)
    plans = [
        Plan(tp=1, pp=p, dp=1, micro_batch=1, global_batch=p, interleave=v, split=space.split)
        for p, v in pairs.T.tolist()
    ]
    holds = np.array([not plan.broken_rules(model) for plan in plans], dtype=bool)
    return holds[where.ravel()].reshape(np.broadcast_shapes(pp.shape, interleave.shape))


def _holds_dense(model: ModelSpec, first_layers: Whole | int, chunks: Whole | int) -> Flags:
    return (np.asarray(chunks) == 1) | (np.asarray(first_layers) >= model.dense_layers)


def _shapes(
    tps: Sequence[int], pps: Sequence[int], dps: Sequence[int], cps: Sequence[int], gpus: Sequence[int]
) -> Whole:
    """Columns cp, tp, pp, dp whose product is among `gpus`: (4, shapes)."""
    grid = _product(cps, tps, pps, dps)
    grid = grid[:, grid.prod(axis=0, dtype=float) <= gpus[-1]]
    gpu_counts = gpus if isinstance(gpus, range) else frozenset(gpus)
    return grid[:, [gpu_count in gpu_counts for gpu_count in grid.prod(axis=0).tolist()]]


def _product(*choices: Sequence[int]) -> Whole:
    """Every combination once, as a column, the last choice running fastest: (choices, combinations)."""
    once = (np.array(list(dict.fromkeys(values)), dtype=np.int64) for values in choices)
    grids = np.meshgrid(*once, indexing="ij")
    return np.stack([grid.ravel() for grid in grids])


def _schedules(shapes: Whole, model: ModelSpec, global_batch: int, space: Space) -> Whole:
    """The shapes with every micro-batch that divides a rank's share, and every interleaving: (6, plans)."""
    sizes = _product(space.micro_batch, space.interleave or _factors(model, space))
    pp, (size, v) = shapes[2][:, None], sizes[:, None, :]
    share = global_batch // shapes[3][:, None]
    interleaves = (v == 1) | ((pp > 1) & (share // size % pp == 0))
    if space.split is None:
        interleaves &= (v == 1) | (pp != 2) | (model.layers % (pp * v) == 0)
    if space.schedule == "zb-v":
        interleaves = (v == 2) & (pp > 1)
    elif space.schedule != "1f1b":
        interleaves &= v == 1
    if space.schedule in SPLIT_SCHEDULES:
        interleaves &= _can_split(model, space, share // size, pp)
    row, column = np.nonzero((share % size == 0) & interleaves & _holds(model, space, pp, v))
    return np.concatenate([shapes[:, row], sizes[:, column]])


def _can_split(model: ModelSpec, space: Space, microbatches: Whole, pp: Whole) -> Flags:
    """Which pipelines can run the space's schedule, which splits backward passes (`Plan.broken_rules`)."""
    chunks = 2 if space.schedule == "zb-v" else 1
    can = (pp > 1) & (3 * microbatches * pp * chunks <= MOST_PASSES)
    if space.schedule == "zb-v":
        can &= model.layers % (2 * pp) == 0
    if space.schedule == "dualpipe":
        can &= (pp % 2 == 0) & (microbatches % 2 == 0) & (microbatches >= 2 * pp)
    return np.asarray(can)


def _choices(model: ModelSpec, space: Space) -> Whole:
    """Recompute, ZeRO stage, sequence parallelism, ep, and whether the optimizer is offloaded, in every
    combination: (5, combinations).
    """
    sensible = [name for name in space.recompute if name != "selective" or model.attention == "core"]
    recompute = [recompute_code(name) for name in sensible or space.recompute]
    sequence = [int(on) for on in ((False, True) if model.is_mixture else space.sequence_parallel)]
    experts = space.ep or divisors(model.divisible_experts)
    options = space.options
    shard_counts = options.weight_shards, options.gradient_shards, options.optimizer_shards
    stages = space.zero_stage if None in shard_counts else space.zero_stage[:1]  # which decides nothing more
    if space.schedule in SPLIT_SCHEDULES:
        stages = tuple(stage for stage in stages if stage <= 1)
    offload = space.offload_optimizer
    offloaded = [0, 1][: 1 + offload] if isinstance(offload, bool) else [int(value) for value in offload]
    return _product(recompute, stages, sequence, experts, offloaded)


def _keeps_rules(shapes: Whole, choices: Whole, model: ModelSpec, space: Space) -> Flags:
    """Which combinations remain, (shapes, choices): not those that break a rule, nor those without effect
    (ZeRO on one rank, sequence parallelism without tp).
    """
    cp, tp, pp, dp = shapes[:4, :, None]
    _, zero, sequence, ep, _ = choices[:, None, :]
    ranks, etp = dp * cp, space.etp
    # Weights and gradients that travel with every micro-batch of a pipeline are tried on request alone.
    on_request = bool(space.pp) and min(space.zero_stage) >= 2
    keeps = (zero == 0) | ((ranks > 1) & ((zero == 1) | (pp == 1) | on_request))
    keeps &= (sequence == 0) | ((tp > 1) & (model.seq_len % tp == 0))
    if any(kind.mixer not in ("attention", "none") for kind in model.layer_kinds):
        keeps &= cp == 1
    if (shapes[0] > 1).any():
        pieces = 2 * cp * np.where(sequence == 1, tp, 1)
        keeps &= (cp == 1) | ((model.attention != "core") & (model.seq_len % pieces == 0))
        if space.cp_exchange == "ulysses":
            for kind in model.layer_kinds:
                keeps &= (cp == 1) | ((kind.heads % (tp * cp) == 0) & (kind.kv_heads % (tp * cp) == 0))
    if space.zero_group is not None:
        keeps &= ranks % space.zero_group == 0
    if space.offload_layers:
        keeps &= space.offload_layers <= (
            model.layers if space.split == "compute" else -(-model.layers // pp)
        )
    if model.is_mixture:
        shared = ranks % ep == 0 if etp is None else ranks * tp % (ep * etp) == 0
        keeps &= (model.divisible_experts % ep == 0) & shared & ((tp == 1) | (sequence == 1))
        return keeps
    return keeps & (ep == 1)


def _batch(shapes: Whole, choices: Whole, model: ModelSpec, global_batch: int, space: Space) -> PlanBatch:
    """The combinations as plans, all else as the space says or as a plan has it by default."""
    cp, tp, pp, dp, size, interleave = shapes
    recompute, zero, sequence, ep, offloaded = choices
    uneven = model.layers % (pp * interleave) != 0
    return replace(
        PlanBatch.of([_single(space, global_batch)]).take(np.zeros_like(tp)),
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batch=size,
        interleave=interleave,
        recompute=recompute,
        zero_stage=zero,
        zero_group=dp * cp if space.zero_group is None else np.full_like(tp, space.zero_group),
        sequence_parallel=sequence == 1,
        cp=cp,
        ep=ep,
        etp=tp if space.etp is None else np.full_like(tp, space.etp),
        offload_optimizer=offloaded == 1,
        ends=uneven if space.split is None else np.full(tp.shape, space.split == "ends"),
    )


def _single(space: Space, global_batch: int) -> Plan:
    """A plan of one GPU with what all plans of the space have."""
    return Plan(
        tp=1,
        pp=1,
        dp=1,
        micro_batch=1,
        global_batch=global_batch,
        grad_overlap=space.grad_overlap,
        precision=space.precision,
        tp_overlap=space.tp_overlap,
        cuda_graphs=space.cuda_graphs,
        dispatcher=space.dispatcher,
        ep_overlap=space.ep_overlap,
        rules=space.rules,
        options=space.options,
        schedule=space.schedule,
        split=space.split or "even",
        cp_exchange=space.cp_exchange,
        rank_order=space.rank_order,
        recompute_fraction=space.recompute_fraction,
        offload_layers=space.offload_layers,
        fp32_gradients=space.fp32_gradients,
        prefetch=space.prefetch,
        bucket_bytes=space.bucket_bytes,
    )
