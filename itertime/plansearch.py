"""The best plans for a model on a number of GPUs: list the space, drop what does not fit in memory,
evaluate the rest at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.memory import memory
from itertime.model import ModelSpec
from itertime.plan import RECOMPUTE, Plan
from itertime.planbatch import PlanBatch
from itertime.prediction import Evaluation, Prediction, evaluate
from itertime.profile import Profile, load_profile
from itertime.system import System
from itertime.uncertainty import interval_s

__all__ = ["Found", "SearchResult", "Space", "candidates", "divisors", "rank", "search", "tensor_splits"]

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
OBJECTIVES = ("time", "cost")
LARGEST = 10_000_000  # GPUs, sequences: far beyond anything built, and small enough to enumerate divisors


@dataclass(frozen=True)
class Space:
    """Which plans a search looks at; every combination that keeps the rules. `tp` beyond a node's GPUs is
    allowed if listed.

    `tp`, `pp` and `ep` empty mean powers of two up to a node's GPUs, every divisor of the layers, and of the
    experts. A mixture of experts under tensor parallelism always has sequence parallelism.
    """

    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    micro_batch: tuple[int, ...] = MICRO_BATCHES
    interleave: tuple[int, ...] = (1,)
    recompute: tuple[str, ...] = RECOMPUTE
    zero_stage: tuple[int, ...] = (0,)
    sequence_parallel: tuple[bool, ...] = (False,)
    grad_overlap: bool = False
    cp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, known in (("recompute", RECOMPUTE), ("zero_stage", (0, 1, 2, 3))):
            for value in getattr(self, name):
                if value not in known:
                    raise UserError(f"search: {name}={value!r}: must be among {', '.join(map(str, known))}")
        for name in ("tp", "pp", "micro_batch", "interleave", "cp", "ep"):
            for value in getattr(self, name):
                if not isinstance(value, int) or value < 1:
                    raise UserError(f"search: {name}={value!r}: must be a whole number of at least 1")


@dataclass(frozen=True)
class Found:
    """One plan of a search with what is predicted for it."""

    plan: Plan
    prediction: Prediction


@dataclass(frozen=True)
class SearchResult:
    """`plans`, best first; how many plans keep the rules (`evaluated`), how many of them fit (`feasible`),
    seconds it took.
    """

    plans: tuple[Found, ...]
    evaluated: int
    feasible: int
    seconds: float = field(compare=False)


def search(
    model: ModelSpec,
    global_batch: int,
    system: System,
    gpus: int | None = None,
    *,
    max_gpus: int | None = None,
    space: Space | None = None,
    objective: str = "time",
    top: int = 10,
    profile: Profile | None = None,
) -> SearchResult:
    """The `top` best plans on exactly `gpus` or at most `max_gpus` GPUs.

    `objective`: "time" (seconds per iteration) or "cost" (GPU-seconds per iteration). Ties go to fewer GPUs,
    then smaller pp, tp, micro-batch. Raises UserError for arguments that mean nothing; a space without a plan
    that fits gives an empty `plans`.
    """
    started = time.perf_counter()
    limit = gpus if gpus is not None else max_gpus
    if limit is None or (gpus is not None and max_gpus is not None):
        raise UserError("search: give either gpus or max_gpus")
    if not (1 <= limit <= LARGEST and 1 <= global_batch <= LARGEST):
        raise UserError(f"search: gpus={limit}, global_batch={global_batch}: must be from 1 to {LARGEST:,}")
    if objective not in OBJECTIVES:
        raise UserError(f"search: objective={objective!r}: must be {' or '.join(OBJECTIVES)}")
    profile = profile or load_profile(system.profile)
    plans = candidates(
        model, global_batch, system, space or Space(), range(1, limit + 1) if gpus is None else [gpus]
    )
    fitting = plans.take(memory(model, plans, system, profile).fits)
    found: tuple[Found, ...] = ()
    if len(fitting):
        result = evaluate(model, fitting, system, profile)
        best = rank(fitting, result, objective)[: max(top, 0)]
        found = tuple(_found(model, fitting.plan(row), system, result.prediction(row)) for row in best)
    return SearchResult(found, len(plans), len(fitting), time.perf_counter() - started)


def _found(model: ModelSpec, plan: Plan, system: System, prediction: Prediction) -> Found:
    interval = interval_s(model, plan, system, prediction.iteration_s)
    return Found(plan, replace(prediction, interval_s=interval))


def rank(plans: PlanBatch, result: Evaluation, objective: str = "time") -> NDArray[np.int64]:
    """Row numbers, best first; the same order on every run, whatever the order of the rows."""
    value = result.iteration_s * (plans.gpus if objective == "cost" else 1)
    switches = plans.zero_stage * 2 + plans.sequence_parallel
    return np.lexsort(
        (
            switches,
            plans.recompute,
            plans.interleave,
            plans.ep,
            plans.cp,
            plans.dp,
            plans.micro_batch,
            plans.tp,
            plans.pp,
            plans.gpus,
            value,
        )
    )


def divisors(number: int) -> list[int]:
    """All divisors, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def candidates(
    model: ModelSpec, global_batch: int, system: System, space: Space, gpus: Sequence[int]
) -> PlanBatch:
    """Every plan of the space that keeps the rules and uses one of the numbers of GPUs in `gpus` (ascending),
    memory not looked at.
    """
    tps = [tp for tp in space.tp if _splits(model, tp)] if space.tp else tensor_splits(model, system)
    pps = [pp for pp in space.pp or divisors(model.layers) if model.layers % pp == 0]
    rows: list[tuple[int, ...]] = []
    for cp in space.cp:
        for tp, pp, dp in _shapes(tps, pps, divisors(global_batch), gpus, cp):
            share = global_batch // dp
            for size in space.micro_batch:
                if share % size == 0:
                    rows.extend(
                        (tp, pp, dp, size, v, cp)
                        for v in space.interleave
                        if _interleaves(model, pp, v, share // size)
                    )
    recompute = [
        RECOMPUTE.index(name) for name in space.recompute if name != "selective" or model.attention == "core"
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    switches = [int(sp) for sp in (space.sequence_parallel if model.experts == 1 else (False, True))]
    for choices in (recompute, space.zero_stage, switches, space.ep or divisors(model.experts)):
        column = np.tile(np.array(choices, np.int64), len(table))
        table = np.column_stack([np.repeat(table, len(choices), axis=0), column])
    return _batch(table, global_batch, space.grad_overlap).take(_keeps_rules(table, model))


def _batch(table: NDArray[np.int64], global_batch: int, grad_overlap: bool) -> PlanBatch:
    """Columns tp, pp, dp, micro-batch, interleave, cp, recompute, ZeRO stage, sequence parallelism, ep as a
    batch of plans.
    """
    no = np.zeros(len(table), dtype=bool)
    return PlanBatch(
        tp=table[:, 0],
        pp=table[:, 1],
        dp=table[:, 2],
        micro_batch=table[:, 3],
        global_batch=np.full(len(table), global_batch),
        interleave=table[:, 4],
        recompute=table[:, 6],
        zero_stage=table[:, 7],
        zero_group=table[:, 2] * table[:, 5],
        sequence_parallel=table[:, 8] == 1,
        grad_overlap=no | grad_overlap,
        gpipe=no,
        balanced=no,
        fp32_gradients=no,
        cp=table[:, 5],
        cp_gather=no,
        ep=table[:, 9],
        pp_before_dp=no,
        prefetch=~no,
        bucket_bytes=np.zeros(len(table), dtype=np.int64),
    )


def _keeps_rules(table: NDArray[np.int64], model: ModelSpec) -> NDArray[np.bool_]:
    """Leaves out combinations that break a rule or do nothing: ZeRO on one rank, sequence parallelism
    without tp.
    """
    tp, pp, ranks, cp, zero, sequence, ep = (table[:, column] for column in (0, 1, 2, 5, 7, 8, 9))
    ranks = ranks * cp
    keeps = (zero == 0) | ((ranks > 1) & ((zero == 1) | (pp == 1)))
    keeps &= (sequence == 0) | ((tp > 1) & (model.seq_len % tp == 0))
    pieces = 2 * cp * np.where(sequence == 1, tp, 1)
    keeps &= (cp == 1) | ((model.attention != "core") & (model.seq_len % pieces == 0))
    keeps &= (ep == 1) | ((model.experts > 1) & (model.experts % ep == 0) & (ranks % ep == 0))
    return keeps & ((model.experts == 1) | (tp == 1) | (sequence == 1))


def tensor_splits(model: ModelSpec, system: System) -> list[int]:
    """The powers of two within a node that divide the model's heads and widths."""
    sizes = [1 << i for i in range(system.gpus_per_node.bit_length())]
    return [tp for tp in sizes if tp <= system.gpus_per_node and _splits(model, tp)]


def _splits(model: ModelSpec, tp: int) -> bool:
    kv = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and model.ffn_hidden % tp == 0 and kv


def _interleaves(model: ModelSpec, pp: int, v: int, microbatches: int) -> bool:
    return v == 1 or (pp > 1 and model.layers % (pp * v) == 0 and microbatches % pp == 0)


def _shapes(
    tps: list[int], pps: list[int], dps: list[int], gpus: Sequence[int], cp: int
) -> list[tuple[int, int, int]]:
    largest = gpus[-1]
    return [
        (tp, pp, dp)
        for tp in tps
        for pp in pps
        for dp in dps
        if tp * pp * dp * cp <= largest and tp * pp * dp * cp in gpus
    ]
