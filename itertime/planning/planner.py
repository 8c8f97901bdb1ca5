"""Planners: rules that turn a model, a global batch and a number of GPUs into a training plan.

- `best`: the fastest plan of `Space()`, which `search` has as its default, too.
- `vtrain`: the fastest plan of the space of vTrain's studies: tp, pp, dp, micro-batch, recompute. Its former
  name, `3d`, is still accepted.
- `vtrain-paper`: the same by the rules of vTrain's public artifact, so its seconds are those that the paper's
  scheduler would see.
- `data-parallel`: tp = a node's GPUs (the count itself below them), the smallest pp with which one replica
  fits, micro-batch 1; more GPUs only raise dp.
- `data-parallel-tuned`: the same with the fastest micro-batch.
- `data-parallel-best`: tp and pp frozen at the fastest plan of the smallest count on which anything fits;
  then dp and micro-batch.
- `megatron`: the takeaways of Narayanan et al. (SC'21), section 3: the smallest tp within a node that fits,
  else tp = a node's GPUs and the smallest pp that fits; then dp, and the fastest micro-batch.
- `reconfigurable`: the fastest plan of the space of `vtrain` with each ZeRO stage, and with the optimizer on
  the GPU or on the CPU.

`data-parallel` is how ElasticFlow's jobs scale in vTrain's comparison (Bang et al., MICRO 2024, section 5).
All planners may keep activations where they fit. Each has the same recompute choices, but for `vtrain-paper`,
whose rules know full recomputation alone. `vtrain` and the five after it have neither ZeRO nor offloading, so
that only their parallelism differs. `reconfigurable` has the execution plans of Rubick (Zhang et al., MLSys
2025, section 2): 3D parallelism, ZeRO, ZeRO-Offload, recomputation, and gradient accumulation, which follows
from the micro-batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from itertime.costs import MEMORY_HEADROOM, checked_headroom
from itertime.errors import UnknownName, UserError
from itertime.prediction import evaluate
from itertime.spec import (
    DEFAULT_RULES,
    ModelSpec,
    Plan,
    PlanBatch,
    PlanOptions,
    Profile,
    System,
    as_model,
    as_system,
    load_framework,
    profile_of,
)

from .curve_cache import CurveCache
from .search import best_of_counts, fitting_plans, pareto_front, rank
from .space import LARGEST, VTRAIN, Space, candidates, tensor_splits

LARGEST_CURVE = 1_000_000  # GPUs


@dataclass(frozen=True)
class PlannedRun:
    """A plan for one job: its GPUs, seconds per iteration, bytes on the fullest GPU, and MFU."""

    gpus: int
    plan: Plan
    iteration_s: float
    memory_bytes: float
    mfu: float


Curve = dict[int, PlannedRun]
Counts = range | tuple[int, ...]  # rising


class Planner:
    """One rule on one system. The rule picks among the plans of `space`, by default its own, that leave
    `memory_headroom`, a share of a GPU's memory, free.

    Curves are kept, so the same model and batch cost nothing the second time; a `cache`, or what a function
    without arguments returns as the cache when the first curve is computed, keeps them for later
    processes.
    """

    def __init__(
        self,
        name: str,
        system: System,
        profile: Profile,
        space: Space | None = None,
        cache: CurveCache | Callable[[], CurveCache | None] | None = None,
        memory_headroom: float = MEMORY_HEADROOM,
    ):
        self.name, self.system, self.profile = name, system, profile
        default_space = _SPACES.get(name, VTRAIN)
        self.space, self.cache = space or default_space, cache
        if default_space.rules != DEFAULT_RULES:  # of which a planner is named, whatever its space
            self.space = replace(self.space, rules=default_space.rules)
        self.memory_headroom = memory_headroom
        if memory_headroom != MEMORY_HEADROOM:
            checked_headroom(memory_headroom)
        self._choose = _RULES[name]
        self._known: dict[tuple[ModelSpec, int, Counts], Curve] = {}
        self._variants: dict[tuple[str, str, PlanOptions], Planner] = {}

    def under(
        self,
        framework: str | None = None,
        precision: str | None = None,
        options: PlanOptions | None = None,
    ) -> Planner:
        """The same rule for jobs of another framework, precision or options; None keeps this planner's.
        UnknownName for a framework that does not exist, UserError for a precision that no plan can have.
        """
        mine = self.system.framework, self.space.precision, self.space.options
        key = framework or mine[0], precision or mine[1], mine[2] if options is None else options
        if key == mine:
            return self
        if key not in self._variants:
            load_framework(key[0])
            self._variants[key] = Planner(
                self.name,
                replace(self.system, framework=key[0]),
                self.profile,
                replace(self.space, precision=key[1], options=key[2]),
                self.cache,
                self.memory_headroom,
            )
        return self._variants[key]

    def scaling_curve(
        self, model: ModelSpec | str, global_batch: int, largest: int, seq_len: int | None = None
    ) -> Curve:
        """`curve` at every count up to `largest`: the best plan on at most 1, 2, 3, ... GPUs."""
        if not 1 <= largest <= LARGEST_CURVE:
            raise UserError(f"planner {self.name}: largest={largest}: must be from 1 to {LARGEST_CURVE:,}")
        return self.curve(model, global_batch, range(1, largest + 1), seq_len)

    def curve(
        self, model: ModelSpec | str, global_batch: int, counts: Collection[int], seq_len: int | None = None
    ) -> Curve:
        """For every count, the planner's fastest run on at most that many GPUs; counts on which nothing fits
        are absent.

        Seconds per iteration never rise with the count. Raises UserError for a count or a batch below 1.
        """
        rising_counts = counts if isinstance(counts, range) and counts.step == 1 else _rising(counts)
        if not rising_counts or rising_counts[0] < 1 or not 1 <= global_batch <= LARGEST:
            numbers = f"counts={list(counts)}, global_batch={global_batch}"
            raise UserError(
                f"planner {self.name}: {numbers}: must be at least 1, and at most {LARGEST:,} sequences"
            )
        model = as_model(model).with_seq_len(seq_len)
        key = (model, global_batch, rising_counts)
        if key not in self._known:
            self._known[key] = _spread(self._steps(*key), rising_counts)
        return dict(self._known[key])

    def _steps(self, model: ModelSpec, global_batch: int, counts: Counts) -> Curve:
        """The runs by the first count that each serves, read from the cache where possible."""
        cache = self.cache() if callable(self.cache) else self.cache
        if cache is None:
            return self._planned(model, global_batch, counts)
        parts = self.name, self.space, model, global_batch, counts, self.system, self.profile.digest
        framework = load_framework(self.system.framework)
        lengths = model.sample_lengths()
        # numpy's functions may differ in the last digit
        name = cache.key(*parts, framework, lengths, self.memory_headroom, np.__version__)
        cached_rows = cache.load(name)
        if cached_rows is not None:
            return {
                count: PlannedRun(gpus, plan, seconds, size, mfu)
                for count, (gpus, seconds, size, mfu, plan) in cached_rows.items()
            }
        steps = self._planned(model, global_batch, counts)
        cache.save(
            name,
            {
                count: (run.gpus, run.iteration_s, run.memory_bytes, run.mfu, run.plan)
                for count, run in steps.items()
            },
        )
        return steps

    def _planned(self, model: ModelSpec, global_batch: int, counts: Counts) -> Curve:
        plans = self._choose(self, model, global_batch, counts)
        if not len(plans):
            return {}
        # Plans whose bound exceeds the time of a plan on as few GPUs need no evaluation.
        plans = plans.take(best_of_counts(model, plans, self.system, self.profile))
        result = evaluate(model, plans, self.system, self.profile)
        front = pareto_front(plans, result)
        # A step of the curve begins at each count from which another plan of the front is in reach.
        serves = np.searchsorted(plans.gpus[front], list(counts), side="right") - 1
        curve: Curve = {}
        for step in np.flatnonzero(np.diff(serves, prepend=-1)):
            row = int(front[serves[step]])
            curve[counts[step]] = PlannedRun(
                gpus=int(plans.gpus[row]),
                plan=plans.plan(row),
                iteration_s=float(result.iteration_s[row]),
                memory_bytes=float(result.memory.total[row]),
                mfu=float(result.mfu[row]),
            )
        return curve

    def fitting(self, model: ModelSpec, global_batch: int, space: Space, largest: int) -> PlanBatch:
        """The plans of a space on at most `largest` GPUs that fit in memory."""
        plans = candidates(model, global_batch, self.system, space, range(1, largest + 1))
        return fitting_plans(model, plans, self.system, self.profile, self.memory_headroom)


def _spread(steps: Curve, counts: Counts) -> Curve:
    """Each run at all counts from its first one up to that of the next run."""
    curve: Curve = {}
    starts = [bisect_left(counts, count) for count in steps]
    for run, start, end in zip(steps.values(), starts, [*starts[1:], len(counts)], strict=False):
        curve.update(dict.fromkeys(counts[start:end], run))
    return curve


def _rising(counts: Collection[int]) -> Counts:
    """The counts in rising order, each once; a range if they have no gap."""
    distinct = sorted({int(count) for count in counts})
    full_range = range(distinct[0], distinct[-1] + 1) if distinct else range(0)
    return full_range if len(full_range) == len(distinct) else tuple(distinct)


def make_planner(
    name: str,
    system: System | str | Path,
    profile: Profile | None = None,
    space: Space | None = None,
    cache: CurveCache | Callable[[], CurveCache | None] | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
) -> Planner:
    """The planner `name` on a system, which may be a name or a file. Its plans leave `memory_headroom`, a
    share of a GPU's memory, free.

    Raises UnknownName for a name that no planner has or had, UserError for a headroom below 0 or from 1 on.
    """
    system = as_system(system)
    return Planner(planner_name(name), system, profile or profile_of(system), space, cache, memory_headroom)


def _whole_space(planner: Planner, model: ModelSpec, global_batch: int, counts: Counts) -> PlanBatch:
    return planner.fitting(model, global_batch, planner.space, counts[-1])


def _data_parallel(
    planner: Planner,
    model: ModelSpec,
    global_batch: int,
    counts: Counts,
    sizes: tuple[int, ...] = (1,),
) -> PlanBatch:
    node = tensor_splits(model, planner.system)[-1]
    pp = _smallest_pipeline(planner, model, global_batch, node)
    plans = planner.fitting(model, global_batch, replace(planner.space, micro_batch=sizes), counts[-1])
    within_a_node = (plans.tp < node) & (plans.pp == 1) & (plans.dp == 1)
    return plans.take(((plans.tp == node) & (plans.pp == pp)) | within_a_node)


def _data_parallel_tuned(planner: Planner, model: ModelSpec, global_batch: int, counts: Counts) -> PlanBatch:
    return _data_parallel(planner, model, global_batch, counts, planner.space.micro_batch)


def _data_parallel_best(planner: Planner, model: ModelSpec, global_batch: int, counts: Counts) -> PlanBatch:
    plans = _whole_space(planner, model, global_batch, counts)
    start = plans.take(plans.gpus <= min((c for c in counts if (plans.gpus <= c).any()), default=0))
    if not len(start):
        return start
    best = rank(start, evaluate(model, start, planner.system, planner.profile))[0]
    return plans.take((plans.tp == start.tp[best]) & (plans.pp == start.pp[best]))


def _megatron(planner: Planner, model: ModelSpec, global_batch: int, counts: Counts) -> PlanBatch:
    plans = _whole_space(planner, model, global_batch, counts)
    splits = tensor_splits(model, planner.system)
    alone = [tp for tp in splits if _smallest_pipeline(planner, model, global_batch, tp) == 1]
    tp = alone[0] if alone else splits[-1]
    pp = _smallest_pipeline(planner, model, global_batch, tp)
    return plans.take((plans.tp == tp) & (plans.pp == pp))


def _smallest_pipeline(planner: Planner, model: ModelSpec, global_batch: int, tp: int) -> int:
    """The fewest stages with which one replica fits under full recompute at micro-batch 1; 0 if it never
    fits.
    """
    space = replace(
        VTRAIN,
        tp=(tp,),
        micro_batch=(1,),
        recompute=("full",),
        precision=planner.space.precision,
        etp=planner.space.etp,
        options=planner.space.options,
    )
    replicas = space.options.workers  # of each worker one
    fit = planner.fitting(model, global_batch, space, replicas * tp * model.layers)
    pipelines = fit.pp[fit.dp == replicas]
    return int(pipelines.min()) if len(pipelines) else 0


_RULES: dict[str, Callable[[Planner, ModelSpec, int, Counts], PlanBatch]] = {
    "best": _whole_space,
    "vtrain": _whole_space,
    "vtrain-paper": _whole_space,
    "data-parallel": _data_parallel,
    "data-parallel-tuned": _data_parallel_tuned,
    "data-parallel-best": _data_parallel_best,
    "megatron": _megatron,
    "reconfigurable": _whole_space,
}
_SPACES = {
    "best": Space(),
    "vtrain-paper": replace(VTRAIN, rules="vtrain"),
    "reconfigurable": replace(VTRAIN, zero_stage=(0, 1, 2, 3), offload_optimizer=True),
}
"""The spaces of planners that do not search the one of vTrain's studies."""
PLANNERS = tuple(_RULES)
FORMER_NAMES = {"3d": "vtrain"}
"""The present names of planners by names that they had."""


def planner_name(name: str) -> str:
    """The present name of a planner by a name that it has or had; UnknownName for any other."""
    present_name = FORMER_NAMES.get(name, name)
    if present_name not in PLANNERS:
        raise UnknownName("planner", name, PLANNERS)
    return present_name
