"""The prediction of an iteration: its time, where the time goes, and whether the plan fits in memory.

`evaluate` predicts many plans at once, and `predict` is `evaluate` of a single plan. The functions at the end
explain a prediction, and the difference between two.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from itertime.accuracy import WatchedProfile, interval_basis, interval_s
from itertime.arrays import Array
from itertime.costs import (
    MEMORY_HEADROOM,
    KernelTimes,
    Memory,
    Parts,
    StageCosts,
    Workload,
    memory,
    stage_costs,
)
from itertime.errors import UserError
from itertime.schedule import PipelineTime, pipeline_s
from itertime.spec import (
    PRECISIONS,
    Framework,
    ModelSpec,
    Plan,
    PlanBatch,
    Profile,
    System,
    Work,
    as_model,
    as_system,
    profile_of,
)

if TYPE_CHECKING:
    import pandas as pd

GROUPS = {
    "compute": ("gemm", "attention", "elementwise", "embedding", "head", "towers"),
    "recompute": ("recompute",),
    "tensor-parallel communication": ("tp_comm",),
    "context-parallel communication": ("cp_comm",),
    "expert-parallel communication": ("ep_comm",),
    "pipeline communication": ("p2p", "embedding_sync", "stalled_sends"),
    "data-parallel communication, exposed": ("dp_comm", "fsdp_comm", "fsdp_last", "outer_sync"),
    "compression and clipping of gradients": ("compression", "compression_once", "clipping"),
    "waiting for the slowest rank, balancing": ("imbalance", "balance"),
    "bubble": ("bubble",),
    "optimizer": ("optimizer",),
    "copies to and from the CPU, exposed": ("offload_comm", "optimizer_copies"),
    "waiting for launches": ("launch",),
    "computation slowed by communication": ("contention", "contention_once"),
    "overhead of framework and site": ("overhead", "iteration_overhead"),
}
"""Parts of an iteration by group, in the order in which groups are shown."""
COMPUTING = (
    *("gemm", "attention", "elementwise", "embedding", "head", "recompute", "optimizer"),
    *("contention", "contention_once", "compression", "compression_once", "clipping"),
)
"""Parts of an iteration in which GPUs compute, rather than wait for each other or for data."""
RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")
"""The figures of a prediction in the units of training logs and benchmarks."""
SMALLEST_SHARE = 0.005  # of the difference; smaller parts are left out


@dataclass(frozen=True, repr=False)
class Prediction:
    """One plan's iteration. `breakdown` (seconds by part) sums to `iteration_s`, `memory_parts` (bytes) to
    `memory_bytes`.

    `mfu` is model FLOPs utilisation: FLOPs of the model without recomputation (`itertime/spec/flops.py` says
    which) over the 16-bit peak of all GPUs (PaLM, appendix B), whatever the plan's precision. `hfu` counts
    what is recomputed, too. In 8 and 4 bit both can exceed 1. `gpus`, `tokens`, `model_flops` and
    `hardware_flops` are of one iteration, padding left out.

    `fits`: whether the plan leaves `memory_headroom`, a share of the GPU's `capacity_bytes`, free. `reason`
    says why the plan does not fit, and is empty if it does. `extrapolated` names the parts of the profile
    that the prediction asked for sizes beyond those measured. `unusable` names those that the profile cannot
    use, with what stood in for them. `interval_s`: lowest and highest seconds of
    nine in ten measured iterations, None where too little is known. `interval_basis`: what its width comes
    from, in words. `spread_s`: 5th and 95th percentile of an
    iteration's seconds from draw to draw of the samples, None where their lengths do not vary.
    `sampling_error_s`: the standard error of `iteration_s` where these draws are sampled, 0 where they are
    computed exactly, None where lengths do not vary.
    """

    iteration_s: float
    breakdown: dict[str, float]
    memory_bytes: float
    memory_parts: dict[str, float]
    fits: bool
    reason: str
    mfu: float
    extrapolated: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    interval_s: tuple[float, float] | None = None
    capacity_bytes: float = math.inf
    memory_headroom: float = 0.0
    spread_s: tuple[float, float] | None = None
    sampling_error_s: float | None = None
    gpus: int = 1
    tokens: float = math.nan
    model_flops: float = math.nan
    hardware_flops: float = math.nan
    interval_basis: str = ""

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation: as `mfu`, with what is recomputed."""
        return self.mfu * self.hardware_flops / self.model_flops

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all GPUs."""
        return self.tokens / self.iteration_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens a second and GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def tflops_per_gpu(self) -> float:
        """Model FLOPs in 1e12 a second and GPU."""
        return self.model_flops / self.iteration_s / self.gpus / 1e12

    def __repr__(self) -> str:
        fits = "" if self.fits else ", does not fit"
        return (
            f"<Prediction {self.iteration_s:.4g} s, {self.memory_bytes / 1e9:.1f} GB, "
            f"MFU {self.mfu:.1%}{fits}>"
        )

    def to_pandas(self) -> pd.DataFrame:
        """A row for each part of the iteration that takes time: `part`, `seconds`, `share`."""
        import pandas as pd

        parts = {name: seconds for name, seconds in self.breakdown.items() if seconds}
        frame = pd.DataFrame({"part": list(parts), "seconds": list(parts.values())})
        return frame.assign(share=frame["seconds"] / self.iteration_s)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self).strip('<>'))}</p>{self.to_pandas().to_html(index=False)}"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """`Prediction`s of many plans: one element per plan in every array. `spread`: seconds of an iteration at
    the 5th and at the 95th percentile of its slowest rank (`Prediction.spread_s`), and the standard error of
    the mean iteration (`Prediction.sampling_error_s`); None where iterations do not vary.
    """

    iteration_s: Array
    breakdown: Parts
    memory: Memory
    mfu: Array
    work: Work
    spread: tuple[Array, Array, Array] | None = None

    def __repr__(self) -> str:
        return f"<Evaluation of {len(self.iteration_s)} plans>"

    def to_pandas(self) -> pd.DataFrame:
        """A row for each plan: `iteration_s`, `memory_gb`, `fits`, the figures of `RATES`, and the seconds of
        each part.
        """
        import pandas as pd

        sizes = {"memory_gb": self.memory.total / 1e9, "fits": self.memory.fits}
        work, gpu_s = self.work, self.work.plans.gpus * self.iteration_s
        rates = {
            "tokens_per_s": work.tokens / self.iteration_s,
            "tokens_per_s_per_gpu": work.tokens / gpu_s,
            "tflops_per_gpu": work.model_flops / gpu_s / 1e12,
            "mfu": self.mfu,
            "hfu": self.mfu * work.hardware_flops / work.model_flops,
        }
        parts = {f"{name}_s": seconds for name, seconds in self.breakdown.items() if np.any(seconds)}
        return pd.DataFrame({"iteration_s": self.iteration_s, **sizes, **rates, **parts})

    def _repr_html_(self) -> str:
        return self.to_pandas().to_html(max_rows=20)

    def prediction(
        self,
        row: int,
        extrapolated: tuple[str, ...] = (),
        interval: tuple[float, float] | None = None,
        basis: str = "",
        unusable: tuple[str, ...] = (),
    ) -> Prediction:
        """The prediction of the plan at `row`. Batches know neither what is extrapolated nor the interval
        with its basis.
        """
        work = self.work
        total, fits = float(self.memory.total[row]), bool(self.memory.fits[row])
        parts = {name: float(values[row]) for name, values in self.memory.parts.items()}
        return Prediction(
            iteration_s=float(self.iteration_s[row]),
            breakdown={name: float(values[row]) for name, values in self.breakdown.items()},
            memory_bytes=total,
            memory_parts=parts,
            fits=fits,
            reason="" if fits else _why_too_large(self.memory, row, parts),
            mfu=float(self.mfu[row]),
            capacity_bytes=self.memory.capacity,
            memory_headroom=self.memory.headroom,
            spread_s=self.spread and (float(self.spread[0][row]), float(self.spread[1][row])),
            sampling_error_s=self.spread and float(self.spread[2][row]),
            gpus=int(work.plans.gpus[row]),
            tokens=float(work.tokens[row]),
            model_flops=float(work.model_flops[row]),
            hardware_flops=float(work.hardware_flops[row]),
            extrapolated=extrapolated,
            unusable=unusable,
            interval_s=interval,
            interval_basis=basis,
        )


def _why_too_large(memory: Memory, row: int, parts: Mapping[str, float]) -> str:
    """Why a plan does not fit: its bytes on the GPU, with the largest part, or those on the CPU."""
    total = float(memory.total[row])
    if total <= memory.limit and memory.on_cpu is not None:
        share = f"a GPU's share of its node's memory is {memory.cpu_share / 1e9:.1f} GB"
        return f"offloads {memory.on_cpu[row] / 1e9:.1f} GB, and {share}"
    largest = max(parts, key=lambda name: parts[name])
    text = f"needs {total / 1e9:.1f} GB of {memory.capacity / 1e9:.1f} GB"
    if total <= memory.capacity:
        text += f", and {memory.limit / 1e9:.1f} GB leave the memory headroom of {memory.headroom:.3g}"
    return f"{text}; the largest part: {largest} ({parts[largest] / 1e9:.1f} GB)"


def predict(
    model: ModelSpec | str,
    plan: Plan,
    system: System | str,
    profile: Profile | None = None,
    *,
    framework: Framework | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
) -> Prediction:
    """Time and memory of one iteration of `plan`, which fits if it leaves `memory_headroom`, a share of the
    GPU's memory, free. `framework` replaces that of the system. Model and system may be names or files.
    Raises UserError, naming every broken rule, for an impossible plan.

    >>> from itertime import load_model, load_system
    >>> plan = Plan(tp=8, pp=8, dp=4, micro_batch=1, global_batch=256)
    >>> run = predict(load_model("megatron-145.6b"), plan, load_system("dgx-a100-80gb"))
    >>> abs(sum(run.breakdown.values()) / run.iteration_s - 1) < 1e-12
    True
    """
    model, system = as_model(model), as_system(system)
    if not isinstance(plan, Plan):
        raise UserError(f"plan={type(plan).__name__}: must be a plan, as itertime.Plan(tp=8, pp=2, ...)")
    plan.check(model)
    watched = WatchedProfile(profile or profile_of(system))
    evaluation = evaluate(
        model, PlanBatch.of([plan]), system, watched, framework=framework, memory_headroom=memory_headroom
    )
    check_utilisation(evaluation, 0, watched.profile, system)
    name, iteration_s = framework.name if framework else "", float(evaluation.iteration_s[0])
    interval = interval_s(model, plan, system, iteration_s, framework=name)
    basis = interval_basis(model, plan, system, framework=name)
    return evaluation.prediction(0, watched.extrapolated(), interval, basis, watched.unusable())


def check_utilisation(evaluation: Evaluation, row: int, profile: Profile, system: System) -> None:
    """UserError if a plan is predicted to compute faster than the peak of its precision.

    No shipped system, framework and profile say so; multipliers of a site and times of a user's profile can.
    Only FLOPs count that no kernel leaves out (`Work.least_flops`). They are no more than those of HFU, which
    the prediction has already.
    """
    work = evaluation.work
    precision = PRECISIONS[work.plans.precision[row]]
    peak = max(profile.peak_flops, profile.peak_flops_of(precision)) * work.plans.gpus[row]
    most_flops = evaluation.iteration_s[row] * peak
    if work.hardware_flops[row] <= most_flops:
        return
    share = work.least_flops[row] / most_flops
    if share > 1:
        raise UserError(
            f"system {system.name}: utilisation={share:.3g} of the {precision} peak of profile "
            f"{profile.name}: nothing computes faster than its peak; correct the multipliers of site and "
            "framework, or the peaks and times of the profile"
        )


def extrapolated_parts(model: ModelSpec, plan: Plan, system: System, profile: Profile) -> tuple[str, ...]:
    """The `extrapolated` of a prediction alone; nothing is checked."""
    watched = WatchedProfile(profile)
    stage_costs(Workload.of(model, PlanBatch.of([plan]), system, watched))
    return watched.extrapolated()


def evaluate(
    model: ModelSpec | str,
    plans: PlanBatch,
    system: System | str,
    profile: KernelTimes | None = None,
    *,
    framework: Framework | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
) -> Evaluation:
    """Time and memory of many plans at once. All other arguments as in `predict`.

    The plans must keep the rules (`Plan.broken_rules`); nothing is checked here.
    """
    model, system = as_model(model), as_system(system)
    profile = profile or profile_of(system)
    workload = Workload.of(model, plans, system, profile, framework)
    # Seconds of a micro-batch on each kind of stage, then of all micro-batches in the pipeline.
    costs = stage_costs(workload)
    columns = workload.plans
    pipeline = pipeline_s(costs.stage_times, columns.microbatches, columns.gpipe, columns.zero_bubble)
    breakdown = _seconds_by_part(costs, pipeline) | costs.once
    if pipeline.slack_s is not None and costs.exchange.late_s is not None:
        # Gradients of the first stage travel while others still compute.
        hidden = np.minimum(costs.exchange.late_s, pipeline.slack_s)
        breakdown["dp_comm"] = np.maximum(breakdown["dp_comm"] - hidden, 0.0)
    iteration = sum(breakdown.values(), np.zeros(len(plans)))
    work = Work(model, plans, workload.lengths)
    mfu = work.model_flops / (iteration * profile.peak_flops * plans.gpus)
    spread = _spread_s(costs, pipeline, iteration) if costs.spread else None
    return Evaluation(iteration, breakdown, memory(workload, memory_headroom), mfu, work, spread)


def _spread_s(costs: StageCosts, pipeline: PipelineTime, iteration: Array) -> tuple[Array, Array, Array]:
    """Seconds of an iteration at the 5th and the 95th percentile of its slowest rank, and the standard error
    of the mean iteration.

    Only the passes of the slowest stage vary here. The exposed exchange of gradients and the bubble, which
    would vary with the passes, keep the seconds that they have in the mean iteration.
    """
    assert costs.spread is not None
    plans = costs.workload.plans
    column = np.arange(len(plans))
    low, high, error = (
        plans.microbatches * seconds[pipeline.slowest_kind, column]
        for seconds in (costs.spread.low, costs.spread.high, costs.spread.error)
    )
    return iteration + low, iteration + high, error


def _seconds_by_part(costs: StageCosts, pipeline: PipelineTime) -> Parts:
    """Seconds of all micro-batches on the slowest stage, by part, and its "bubble"."""
    stages, microbatches = costs.workload.partition.stages, costs.workload.plans.microbatches
    names, absent = list({**costs.forward, **costs.backward}), np.zeros(stages.shape)
    passes = [costs.forward.get(name, absent) + costs.backward.get(name, absent) for name in names]
    on_slowest = np.array(passes)[:, pipeline.slowest_kind, np.arange(len(microbatches))]
    if pipeline.mirror_kind is not None:
        mirrored = np.array(passes)[:, pipeline.mirror_kind, np.arange(len(microbatches))]
        on_slowest = (on_slowest + mirrored) / 2
    parts = dict(zip(names, microbatches * on_slowest, strict=True))
    return parts | {"bubble": pipeline.bubble_s}


def where_time_goes(prediction: Prediction) -> dict[str, float]:
    """Seconds by group, in the order of `GROUPS`; they sum to the iteration. Recomputation includes its
    communication.
    """
    parts = prediction.breakdown
    return {group: sum(parts.get(name, 0.0) for name in names) for group, names in GROUPS.items()}


def difference(best: Mapping[str, float], alternative: Mapping[str, float]) -> dict[str, float]:
    """How much more `alternative` has of every part, largest differences first.

    >>> difference({"gemm": 1.0, "bubble": 0.5}, {"gemm": 1.0, "bubble": 0.25, "tp_comm": 1.0})
    {'tp_comm': 1.0, 'bubble': -0.25, 'gemm': 0.0}
    """
    names = sorted({*best, *alternative})
    excess = {name: alternative.get(name, 0.0) - best.get(name, 0.0) for name in names}
    return dict(sorted(excess.items(), key=lambda item: (-abs(item[1]), item[0])))


def in_words(excess: Mapping[str, float], unit: str, count: int = 4) -> str:
    """The `count` largest differences that matter, largest first.

    >>> in_words({"bubble": 1.5, "tp_comm": -0.25, "gemm": 0.0}, " s")
    'bubble +1.5 s, tp_comm -0.25 s'
    """
    scale = sum(abs(value) for value in excess.values())
    relevant = [(name, value) for name, value in excess.items() if abs(value) > SMALLEST_SHARE * scale]
    return ", ".join(f"{name} {value:+.3g}{unit}" for name, value in relevant[:count])
