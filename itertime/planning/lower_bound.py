"""Seconds that an iteration takes at least, many plans together, for much less than its evaluation costs.

A pipeline of equal chunks takes at least as long as its last device: p - 1 forward passes of a chunk before
it begins, all micro-batches in its chunks and the model's head, and p - 1 backward passes after it. The same
holds for a device in the middle, which has no head, and where the ends are split unevenly a layer more.
Where a split gives the stages other numbers of layers, the slowest one has at least the mean of all. Then
follow the exchange of gradients and the optimizer's step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from itertime.arrays import Array
from itertime.costs import (
    KernelTimes,
    Pass,
    Workload,
    micro_batch_columns,
    micro_batch_passes,
    once_s,
    stage_costs,
)
from itertime.schedule import least_pipeline_s
from itertime.spec import DEFAULT_RULES, ModelSpec, PlanBatch, System

_ONCE_COLUMNS = tuple(
    name
    for name in PlanBatch.__dataclass_fields__
    if name not in ("micro_batch", "recompute", "recompute_permille", "sequence_parallel")
    and name not in ("rules", "chunk_layers", "options")
)
"""The columns of a `PlanBatch` that decide what an iteration does once."""
_EVERYTHING_S = 1e30
"""Seconds of a pass behind which all communication hides that can hide at all."""
_ROUNDING = 1e-9  # of the bound: sums in another order differ by far less


def lower_bound_s(model: ModelSpec, plans: PlanBatch, system: System, profile: KernelTimes) -> Array:
    """Seconds that an iteration takes at least, (plans,), whatever rounding does to the sums.

    Sends, and what ZeRO-2 and -3 move with each micro-batch, count as nothing. By other rules than those of
    this package all costs of the stages count, which take no longer than a bound of them.
    """
    if plans.rules != DEFAULT_RULES:
        costs = stage_costs(Workload.of(model, plans, system, profile))
        least_s = least_pipeline_s(costs.stage_times, plans.microbatches)
        return sum(costs.once.values(), least_s) * (1 - _ROUNDING)
    *forms_s, ends_s = _layers_and_ends_s(model, plans, system, profile)
    layer_s, dense_s = forms_s[0], forms_s[-1]
    chunk_layers = (model.layers + 2 * plans.ends) // (plans.pp * plans.interleave)
    beside_s = model.dense_layers * (dense_s - layer_s)  # of the first chunk, which has the dense layers
    stage_s = (model.layers // plans.pp) * layer_s + np.where(plans.pp == 1, beside_s, 0.0)
    # A pass through a chunk of each device but the last; the first chunk lacks a layer if the ends do.
    filling_s = ((plans.pp - 1) * chunk_layers - plans.ends) * layer_s
    filling_s = filling_s + np.where(plans.pp > 1, beside_s, 0.0)
    last_device_s = plans.microbatches * (stage_s + ends_s) + filling_s
    middle_stage_s = plans.interleave * chunk_layers * layer_s
    middle_device_s = plans.microbatches * middle_stage_s + filling_s - chunk_layers * layer_s
    pipeline_s = np.where(plans.pp > 2, np.maximum(last_device_s, middle_device_s), last_device_s)
    # Stages that are filled in turn or listed, and schedules that fill their bubbles: the mean stage's work.
    fills_stages_in_turn = plans.by_compute | plans.remainder | (plans.zero_bubble > 0)
    if plans.chunk_layers or fills_stages_in_turn.any():
        fills_stages_in_turn = fills_stages_in_turn | bool(plans.chunk_layers)
        mean_stage_s = (model.layers * layer_s + beside_s) / plans.pp
        pipeline_s = np.where(fills_stages_in_turn, plans.microbatches * mean_stage_s, pipeline_s)
    if model.stack:
        counted = zip(model.form_layers, forms_s, strict=True)
        pipeline_s = plans.microbatches * sum(count * form_s for count, form_s in counted) / plans.pp
    return (pipeline_s + _least_once_s(model, plans, system, profile)) * (1 - _ROUNDING)


def _layers_and_ends_s(
    model: ModelSpec, plans: PlanBatch, system: System, profile: KernelTimes
) -> tuple[Array, ...]:
    """Seconds of both passes of a micro-batch: in a layer of each form, and in the model's ends on the last
    device.
    """
    representatives, where = plans.distinct((*micro_batch_columns(plans), "pp"))
    work = Workload.of(model, plans.take(representatives), system, profile)
    layers_s, ends_s = np.zeros((len(work.forms), len(work))), np.zeros(len(work))
    for micro_batch in micro_batch_passes(work):
        nothing = np.zeros(len(work))
        layers_s += [sum(parts.values(), nothing) for parts in micro_batch.layers]
        ends_s += np.maximum(
            _of_ends_s(micro_batch, work.plans) - _idle_s(model, micro_batch, work.plans), 0.0
        )
    return *layers_s[:, where], ends_s[where]


def _of_ends_s(micro_batch: Pass, plans: PlanBatch) -> Array:
    """Seconds of the head, and of the embedding where one device has both."""
    return micro_batch.head + np.where(plans.pp == 1, micro_batch.embedding, 0.0)


def _idle_s(model: ModelSpec, micro_batch: Pass, plans: PlanBatch) -> Array:
    """Seconds at most that the GPU waits for launches in a stage's layers, which the ends may fill."""
    waits = [parts["launch"] for parts in micro_batch.layers if "launch" in parts]
    if not waits:
        return np.zeros(len(plans))
    return (model.layers // plans.pp + 1) * np.maximum.reduce([*waits, np.zeros(len(plans))])


def _least_once_s(model: ModelSpec, plans: PlanBatch, system: System, profile: KernelTimes) -> Array:
    """Seconds of what an iteration does once, if the passes hide as much of it as passes can."""
    representatives, where = plans.distinct(_ONCE_COLUMNS)
    few_plans = plans.take(representatives)
    work = Workload.of(model, replace(few_plans, micro_batch=np.ones_like(few_plans.tp)), system, profile)
    everything_s = np.full(len(work), _EVERYTHING_S)
    once, _ = once_s(work, (everything_s, everything_s), everything_s)
    if few_plans.splits_backward:  # gradients may travel while other stages compute
        once["dp_comm"] = np.where(few_plans.zero_bubble > 0, 0.0, once["dp_comm"])
    return sum(once.values(), np.zeros(len(work)))[where]
