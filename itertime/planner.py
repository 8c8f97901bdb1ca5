"""Planners: rules that turn a model, a global batch and a number of GPUs into a training plan.

- `3d`: the fastest plan of the whole space: tp, pp, dp, micro-batch, recompute.
- `data-parallel`: tp = a node's GPUs (the count itself below them), the smallest pp with which one replica
  fits, micro-batch 1; more GPUs only raise dp.
- `data-parallel-tuned`: the same with the fastest micro-batch.
- `data-parallel-best`: tp and pp frozen at the fastest plan of the smallest count on which anything fits;
  then dp and micro-batch.
- `megatron`: the takeaways of Narayanan et al. (SC'21), section 3: the smallest tp within a node that fits,
  else tp = a node's GPUs and the smallest pp that fits; then dp, and the fastest micro-batch.

`data-parallel` is how ElasticFlow's jobs scale in vTrain's comparison (Bang et al., MICRO 2024, section 5).
All planners may keep activations where they fit: the same recompute choices are open to each, so that only
the parallelism differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.memory import memory
from itertime.model import ModelSpec
from itertime.plan import Plan
from itertime.planbatch import PlanBatch
from itertime.plansearch import LARGEST, MICRO_BATCHES, Space, candidates, rank, tensor_splits
from itertime.prediction import evaluate
from itertime.profile import Profile, load_profile
from itertime.system import System

__all__ = ["PLANNERS", "PlannedRun", "Planner", "make_planner"]


@dataclass(frozen=True)
class PlannedRun:
    """A plan for one job: the GPUs it uses, its seconds per iteration, the bytes of its fullest GPU, its
    MFU.
    """

    gpus: int
    plan: Plan
    iteration_s: float
    memory_bytes: float
    mfu: float


Curve = dict[int, PlannedRun]


class Planner:
    """One rule on one system. Curves are kept, so asking again for the same model and batch costs nothing."""

    def __init__(self, name: str, system: System, profile: Profile):
        self.name, self.system, self.profile = name, system, profile
        self._choose = _RULES[name]
        self._known: dict[tuple[ModelSpec, int, tuple[int, ...]], Curve] = {}

    def curve(
        self, model: ModelSpec, global_batch: int, counts: Collection[int], seq_len: int | None = None
    ) -> Curve:
        """For every count, the planner's fastest run on at most that many GPUs; counts on which nothing fits
        are absent.

        So seconds per iteration never rise with the count. Raises UserError for counts or a global batch
        below 1.
        """
        wanted = tuple(sorted({int(count) for count in counts}))
        if not wanted or wanted[0] < 1 or not 1 <= global_batch <= LARGEST:
            numbers = f"counts={list(counts)}, global_batch={global_batch}"
            raise UserError(
                f"planner {self.name}: {numbers}: must be at least 1, and at most {LARGEST:,} sequences"
            )
        model = model.with_seq_len(seq_len)
        key = (model, global_batch, wanted)
        if key not in self._known:
            self._known[key] = self._curve(*key)
        return dict(self._known[key])

    def _curve(self, model: ModelSpec, global_batch: int, counts: tuple[int, ...]) -> Curve:
        plans = self._choose(self, model, global_batch, counts)
        if not len(plans):
            return {}
        result = evaluate(model, plans, self.system, self.profile)
        curve: Curve = {}
        order, used = rank(plans, result), plans.gpus
        for count in counts:
            within = order[used[order] <= count]
            if len(within):
                row = int(within[0])
                seconds, size, mfu = result.iteration_s[row], result.memory.total[row], result.mfu[row]
                curve[count] = PlannedRun(
                    int(used[row]), plans.plan(row), float(seconds), float(size), float(mfu)
                )
        return curve

    def fitting(self, model: ModelSpec, global_batch: int, space: Space, largest: int) -> PlanBatch:
        """The plans of a space on at most `largest` GPUs that fit in memory."""
        plans = candidates(model, global_batch, self.system, space, range(1, largest + 1))
        return plans.take(memory(model, plans, self.system, self.profile).fits)


def make_planner(name: str, system: System, profile: Profile | None = None) -> Planner:
    """The planner `name` (see the table above) on a system; UnknownName for any other name."""
    if name not in _RULES:
        raise UnknownName("planner", name, PLANNERS)
    return Planner(name, system, profile or load_profile(system.profile))


def _whole_space(planner: Planner, model: ModelSpec, global_batch: int, counts: tuple[int, ...]) -> PlanBatch:
    return planner.fitting(model, global_batch, Space(), counts[-1])


def _data_parallel(
    planner: Planner,
    model: ModelSpec,
    global_batch: int,
    counts: tuple[int, ...],
    sizes: tuple[int, ...] = (1,),
) -> PlanBatch:
    node = tensor_splits(model, planner.system)[-1]
    pp = _smallest_pipeline(planner, model, global_batch, node)
    plans = planner.fitting(model, global_batch, Space(micro_batch=sizes), counts[-1])
    within_a_node = (plans.tp < node) & (plans.pp == 1) & (plans.dp == 1)
    return plans.take(((plans.tp == node) & (plans.pp == pp)) | within_a_node)


def _data_parallel_tuned(
    planner: Planner, model: ModelSpec, global_batch: int, counts: tuple[int, ...]
) -> PlanBatch:
    return _data_parallel(planner, model, global_batch, counts, MICRO_BATCHES)


def _data_parallel_best(
    planner: Planner, model: ModelSpec, global_batch: int, counts: tuple[int, ...]
) -> PlanBatch:
    plans = _whole_space(planner, model, global_batch, counts)
    start = plans.take(plans.gpus <= min((c for c in counts if (plans.gpus <= c).any()), default=0))
    if not len(start):
        return start
    best = rank(start, evaluate(model, start, planner.system, planner.profile))[0]
    return plans.take((plans.tp == start.tp[best]) & (plans.pp == start.pp[best]))


def _megatron(planner: Planner, model: ModelSpec, global_batch: int, counts: tuple[int, ...]) -> PlanBatch:
    plans = _whole_space(planner, model, global_batch, counts)
    splits = tensor_splits(model, planner.system)
    alone = [tp for tp in splits if _smallest_pipeline(planner, model, global_batch, tp) == 1]
    tp = alone[0] if alone else splits[-1]
    return plans.take((plans.tp == tp) & (plans.pp == _smallest_pipeline(planner, model, global_batch, tp)))


def _smallest_pipeline(planner: Planner, model: ModelSpec, global_batch: int, tp: int) -> int:
    """The fewest stages with which one replica fits, everything recomputed, micro-batch 1; 0 if none do."""
    space = Space(tp=(tp,), micro_batch=(1,), recompute=("full",))
    fit = planner.fitting(model, global_batch, space, tp * model.layers)
    pipelines = fit.pp[fit.dp == 1]
    return int(pipelines.min()) if len(pipelines) else 0


_RULES: dict[str, Callable[[Planner, ModelSpec, int, tuple[int, ...]], PlanBatch]] = {
    "3d": _whole_space,
    "data-parallel": _data_parallel,
    "data-parallel-tuned": _data_parallel_tuned,
    "data-parallel-best": _data_parallel_best,
    "megatron": _megatron,
}
PLANNERS = tuple(_RULES)
