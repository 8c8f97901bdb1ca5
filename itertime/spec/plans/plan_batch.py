"""Many plans of one model as columns of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.arrays import Array, Flags, Whole, any_of
from itertime.cached import cached_property
from itertime.schedule import SPLIT_SCHEDULES

from .options import DEFAULT_OPTIONS, IN_32_BIT, PlanOptions, within_worker
from .plan import CP_EXCHANGES, CUDA_GRAPHS, DISPATCHERS, PRECISIONS, RANK_ORDERS, Plan
from .recompute import RECOMPUTE, recompute_code, recompute_text
from .rules import DEFAULT_RULES, FREE, REPEATS

MOST_KEYS = 2**62
_NUMBERS = (
    *("tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch", "interleave", "recompute", "zero_stage"),
    *("zero_group", "bucket_bytes", "precision", "etp", "tp_overlap", "cuda_graphs", "dispatcher"),
    *("recompute_permille", "offload_layers", "cp_exchange", "zero_bubble"),
)
_SWITCHES = (
    *("sequence_parallel", "grad_overlap", "gpipe", "balanced", "fp32_gradients"),
    *("pp_before_dp", "prefetch", "by_compute", "ep_overlap", "offload_optimizer", "ends", "remainder"),
)
_SAME = (
    *("tp", "pp", "dp", "micro_batch", "global_batch", "interleave", "zero_stage", "sequence_parallel"),
    *("grad_overlap", "fp32_gradients", "cp", "ep", "prefetch", "ep_overlap", "offload_layers"),
    "offload_optimizer",
)
"""Columns that hold the values of a plan's fields of the same names."""
_IN_32_BIT = min(PRECISIONS.index(name) for name in IN_32_BIT)  # the last ones of the list
ZERO_BUBBLE = ("1f1b", *SPLIT_SCHEDULES)
"""Schedules in `PlanBatch.zero_bubble`: the first has whole backward passes, the others split them."""
HABIT = -1
"""Of `tp_overlap`: the framework decides."""


@dataclass(frozen=True)
class PlanBatch:
    """Many plans of one model as columns: arrays of one shape, one element per plan, ready to broadcast.

    `cp_exchange`, `precision`, `cuda_graphs` and `dispatcher` hold indices into CP_EXCHANGES, PRECISIONS,
    CUDA_GRAPHS and DISPATCHERS, `recompute` one into RECOMPUTE or the `recompute_code` of modules.
    `zero_bubble` is the place in ZERO_BUBBLE of a schedule that splits backward passes, 0 for others.
    `bucket_bytes` is 0 where a plan has None. `etp` is never unstated. `tp_overlap` is 0, 1 or HABIT.
    `recompute_permille` is `recompute_fraction` in thousandths. `rules`, `chunk_layers` and `options`
    are no columns: all plans of a batch have the same.
    """

    tp: Whole
    pp: Whole
    dp: Whole
    micro_batch: Whole
    global_batch: Whole
    interleave: Whole
    recompute: Whole
    zero_stage: Whole
    zero_group: Whole
    sequence_parallel: Flags
    grad_overlap: Flags
    gpipe: Flags
    balanced: Flags
    by_compute: Flags
    fp32_gradients: Flags
    cp: Whole
    cp_exchange: Whole
    ep: Whole
    pp_before_dp: Flags
    prefetch: Flags
    bucket_bytes: Whole
    precision: Whole
    etp: Whole
    tp_overlap: Whole
    cuda_graphs: Whole
    dispatcher: Whole
    ep_overlap: Flags
    recompute_permille: Whole
    offload_layers: Whole
    offload_optimizer: Flags
    ends: Flags
    remainder: Flags
    zero_bubble: Whole
    rules: str = DEFAULT_RULES
    chunk_layers: tuple[int, ...] = ()
    options: PlanOptions = DEFAULT_OPTIONS

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanBatch:
        """The columns of `plans`, in their order. ValueError for plans of different rules, options or lists
        of layers.
        """
        rules, options = (plans[0].rules, plans[0].options) if plans else (DEFAULT_RULES, DEFAULT_OPTIONS)
        if any(plan.options != options or plan.rules != rules for plan in plans):
            raise ValueError("the plans of a batch must have the same rules and options")
        chunk_layers = plans[0].chunk_layers if plans else ()
        if any(plan.chunk_layers != chunk_layers for plan in plans):
            raise ValueError("the plans of a batch must have the same list of layers")
        numbers = np.array([_numbers(plan) for plan in plans], dtype=np.int64).reshape(-1, len(_NUMBERS))
        switches = np.array([_switches(plan) for plan in plans], dtype=bool).reshape(-1, len(_SWITCHES))
        columns = dict(zip(_NUMBERS, numbers.T, strict=True))
        columns |= dict(zip(_SWITCHES, switches.T, strict=True))
        same = {"rules": rules, "chunk_layers": chunk_layers, "options": options}
        return cls(**columns, **same)  # type: ignore[arg-type]

    @cached_property
    def gpus(self) -> Whole:
        return self.tp * self.cp * self.pp * self.dp

    @cached_property
    def in_32_bit(self) -> Flags:
        """Whether a plan trains in 32 bit throughout (`IN_32_BIT`)."""
        return np.greater_equal(self.precision, _IN_32_BIT)

    @cached_property
    def below_16_bit(self) -> Flags:
        """Whether matrices of the layers have fewer than 16 bits."""
        return (self.precision > 0) & ~self.in_32_bit

    @cached_property
    def splits_backward(self) -> bool:
        """Whether any plan's schedule splits backward passes."""
        return any_of(self.zero_bubble)

    @cached_property
    def v_shaped(self) -> Flags:
        """Whether a plan's first stage has the last chunk of the model too ("zb-v")."""
        return np.equal(self.zero_bubble, ZERO_BUBBLE.index("zb-v")) & (self.pp > 1)

    @cached_property
    def both_ways(self) -> Flags:
        """Whether a plan has two copies of the model, that of a stage and of its mirror image on each GPU."""
        return np.equal(self.zero_bubble, ZERO_BUBBLE.index("dualpipe")) & (self.pp > 1)

    @cached_property
    def recomputed_modules(self) -> tuple[int, ...]:
        """The values of `recompute` that name modules, each once."""
        if not any_of(self.recompute >= len(RECOMPUTE)):
            return ()
        return tuple(code for code in sorted(set(self.recompute.tolist())) if code >= len(RECOMPUTE))

    def by_recompute(
        self, choices: Sequence[Array | Whole], of_modules: Mapping[int, Array | Whole]
    ) -> Array:
        """Of arrays in the order of RECOMPUTE, and by the code of modules, each plan's own."""
        if not of_modules:
            return np.asarray(self.recompute.choose(choices))
        own = np.asarray(np.where(self.recompute < len(RECOMPUTE), self.recompute, 0).choose(choices))
        for code, values in of_modules.items():
            own = np.where(self.recompute == code, values, own)
        return own

    @cached_property
    def width(self) -> Array:
        """Bytes of a number over those of 16 bit: of activations, weights, gradients, and what is sent."""
        return np.where(self.in_32_bit, 2.0, 1.0)

    @cached_property
    def gradient_bytes(self) -> Array:
        """Bytes of one parameter's gradient."""
        return np.where(self.fp32_gradients | self.in_32_bit, 4.0, 2.0)

    @cached_property
    def next_stage(self) -> Whole:
        """Ranks from one pipeline stage to the next."""
        return np.where(self.pp_before_dp, 1, self.dp) * self.tp * self.cp

    @cached_property
    def accumulated(self) -> Array:
        """Bytes moved to add one gradient to its sum: read both, write the sum. Times `width`."""
        return np.where(self.fp32_gradients & ~self.in_32_bit, 10.0, 6.0)

    def tokens(self, seq_len: int) -> Array:
        """Tokens of one micro-batch on one context-parallel rank."""
        return self.micro_batch * seq_len / self.cp

    @cached_property
    def microbatches(self) -> Whole:
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def worker(self) -> PlanBatch:
        """The plans of one worker: a job of its own on its share of ranks and samples, without the options of
        the exchange between workers. These plans themselves if they have one worker.
        """
        return self if self.options.workers == 1 else self._of_several_workers

    @cached_property
    def _of_several_workers(self) -> PlanBatch:
        workers = self.options.workers
        dp = self.dp // workers
        group = np.where(self.zero_group == self.dp * self.cp, dp * self.cp, self.zero_group)
        samples, options = self.global_batch // workers, within_worker(self.options)
        return replace(self, dp=dp, global_batch=samples, zero_group=group, options=options)

    @cached_property
    def weight_shards(self) -> Whole:
        """Data-parallel ranks that share one copy of the weights, (plans,)."""
        return self._shards(self.options.weight_shards, 3)

    @cached_property
    def gradient_shards(self) -> Whole:
        """Data-parallel ranks that share one copy of the gradients, (plans,)."""
        return self._shards(self.options.gradient_shards, 2)

    @cached_property
    def optimizer_shards(self) -> Whole:
        """Data-parallel ranks that share the optimizer's states, (plans,)."""
        return self._shards(self.options.optimizer_shards, 1)

    def _shards(self, shards: int | None, stage: int) -> Whole:
        """The stated number of `shards`; if None, those of ZeRO, which shards from `stage` on."""
        return np.where(self.zero_stage >= stage, self.zero_group, 1) if shards is None else self._all(shards)

    @cached_property
    def gathers_weights(self) -> Flags:
        """Whether every micro-batch gathers the weights of a layer: ZeRO-3, or stated shards of weights."""
        shards = self.options.weight_shards
        return self.zero_stage == 3 if shards is None else self._all(shards > 1)

    @cached_property
    def scatters_gradients(self) -> Flags:
        """Whether every micro-batch scatters its gradients: from ZeRO-2 on, or stated shards of gradients."""
        shards = self.options.gradient_shards
        return self.zero_stage >= 2 if shards is None else self._all(shards > 1)

    @cached_property
    def shards_optimizer(self) -> Flags:
        """Whether ranks step parts of the weights: from ZeRO-1 on, or stated shards of the states."""
        shards = self.options.optimizer_shards
        return self.zero_stage > 0 if shards is None else self._all(shards > 1)

    def _all(self, value: int | bool) -> NDArray[Any]:
        return np.full(len(self), value)

    @cached_property
    def repeated_share(self) -> Array:
        """Share of the layers that repeat what `recompute` says, (plans,): by vTrain's rules none of those on
        the last stage.
        """
        share = self.recompute_permille / 1000
        return share if self.rules == DEFAULT_RULES else share * (1 - 1 / self.pp)

    @cached_property
    def said_by_rules(self) -> Flags:
        """Whether the rules of the batch can say a plan, (plans,): `refusals`, but for those of the model."""
        neutral = PlanBatch.of([Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1)])
        says = np.isin(self.recompute, [RECOMPUTE.index(name) for name in REPEATS])
        for name in set(COLUMNS) - {*FREE, "etp", "zero_group"}:  # which follow from other columns by default
            says &= getattr(self, name) == getattr(neutral, name)
        return says if self.rules != DEFAULT_RULES else np.ones(len(self), dtype=bool)

    def _split(self, row: int) -> str:
        columns = {"balanced": self.balanced, "compute": self.by_compute}
        columns |= {"ends": self.ends, "remainder": self.remainder}
        if self.chunk_layers:
            return ",".join(map(str, self.chunk_layers))
        return next((split for split, column in columns.items() if column[row]), "even")

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, rows: Whole | Flags | slice) -> PlanBatch:
        """The plans at `rows` (indices, a mask, or a slice)."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return PlanBatch(**columns, rules=self.rules, chunk_layers=self.chunk_layers, options=self.options)

    def distinct(self, names: Sequence[str]) -> tuple[Whole, Whole]:
        """Rows that differ in the columns `names`, sorted by these columns, and the index among them of every
        plan's equal.

        The columns become the digits of one number, each in the base of its range, so two plans share a
        number only if they agree in every column. A number that would exceed 64 bits is first replaced by its
        rank.
        """
        key, size = np.zeros(len(self), dtype=np.int64), 1  # 0 <= key < size
        for name in names:
            digit = getattr(self, name)
            minimum, base = _range(digit)
            if base > MOST_KEYS // size:
                key, size = _ranked(key)
            if base > MOST_KEYS // size:
                digit, base = _ranked(digit)
                minimum = 0
            if base > 1:
                key *= base
                key += digit
                key -= minimum
                size *= base
        if size <= 2**15:
            key = key.astype(np.int16)  # which numpy sorts in linear time
        _, rows, where = np.unique(key, return_index=True, return_inverse=True)
        return rows, where.reshape(-1)

    def plan(self, row: int) -> Plan:
        """The plan at `row`; its `zero_group` is None where the group is the whole data-parallel group."""
        values = {name: getattr(self, name)[row].item() for name in _SAME}
        group = int(self.zero_group[row])
        return Plan(
            **values,
            recompute=recompute_text(int(self.recompute[row])),
            zero_group=None if group == self.dp[row] * self.cp[row] else group,
            schedule="gpipe" if self.gpipe[row] else ZERO_BUBBLE[self.zero_bubble[row]],
            split=self._split(row),
            cp_exchange=CP_EXCHANGES[self.cp_exchange[row]],
            rank_order=RANK_ORDERS[int(self.pp_before_dp[row])],
            bucket_bytes=int(self.bucket_bytes[row]) or None,
            precision=PRECISIONS[self.precision[row]],
            etp=None if self.etp[row] == self.tp[row] else int(self.etp[row]),
            tp_overlap=None if self.tp_overlap[row] == HABIT else bool(self.tp_overlap[row]),
            cuda_graphs=CUDA_GRAPHS[self.cuda_graphs[row]],
            dispatcher=DISPATCHERS[self.dispatcher[row]],
            recompute_fraction=float(self.recompute_permille[row]) / 1000,
            rules=self.rules,
            options=self.options,
        )


_OF_ALL = ("rules", "chunk_layers", "options")
COLUMNS = tuple(field.name for field in fields(PlanBatch) if field.name not in _OF_ALL)


def _range(column: Whole | Flags) -> tuple[int, int]:
    """The smallest value of a column, and the number of values from it to the largest one."""
    if not len(column):
        return 0, 1
    minimum, maximum = int(column.min()), int(column.max())
    return minimum, maximum - minimum + 1


def _ranked(numbers: Whole) -> tuple[Whole, int]:
    """Each number replaced by its rank among the distinct ones, and how many there are."""
    values, ranks = np.unique(numbers, return_inverse=True)
    return ranks.reshape(-1), len(values)


def _numbers(plan: Plan) -> tuple[int, ...]:
    return (
        *(plan.tp, plan.pp, plan.dp, plan.cp, plan.ep, plan.micro_batch, plan.global_batch),
        *(plan.interleave, recompute_code(plan.recompute), plan.zero_stage),
        *(plan.zero_group or plan.dp * plan.cp, plan.bucket_bytes or 0),
        *(PRECISIONS.index(plan.precision), plan.expert_tp),
        HABIT if plan.tp_overlap is None else int(plan.tp_overlap),
        *(CUDA_GRAPHS.index(plan.cuda_graphs), DISPATCHERS.index(plan.dispatcher)),
        *(round(plan.recompute_fraction * 1000), plan.offload_layers),
        CP_EXCHANGES.index(plan.cp_exchange),
        ZERO_BUBBLE.index(plan.schedule) if plan.schedule in ZERO_BUBBLE else 0,
    )


def _switches(plan: Plan) -> tuple[bool, ...]:
    return (
        *(plan.sequence_parallel, plan.grad_overlap, plan.schedule == "gpipe", plan.split == "balanced"),
        *(plan.fp32_gradients, plan.rank_order == "tp-cp-pp-dp", plan.prefetch),
        *(plan.split == "compute", plan.ep_overlap, plan.offload_optimizer),
        *(plan.split == "ends", plan.split == "remainder"),
    )
