"""The time of a pipeline: all micro-batches on the slowest stage, and the fill and drain around them.

Micro-batch k goes forward through the stages 0..p-1 and backward through p-1..0. With p equal stages that
take S seconds for both passes of a micro-batch, 1F1B takes (m - 1 + p) S for m micro-batches: m S on every
stage, and a bubble of (p - 1) S, in which a stage waits while the pipeline fills and drains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of

from .closed_forms import last_stage_decides, middle_stages_decide, middle_stages_s
from .recurrences import gpipe_s, interleaved_s, one_f_one_b_ahead_s, one_f_one_b_s
from .stage_times import FIRST, HEAVY, LAST, LIGHT, StageTimes, stage_kinds
from .zero_bubble import SPLIT_SCHEDULES, split_schedule_s


@dataclass(frozen=True)
class PipelineTime:
    """Seconds from the first forward to the last backward pass, `run_s + bubble_s`; (plans,) each.

    `slowest_kind` is the kind of stage that takes longest for a micro-batch. `run_s` is what it takes for all
    micro-batches, and `bubble_s` what it waits for other stages, mostly while the pipeline fills and drains.
    Where schedules split backward passes, `mirror_kind` is the kind of the stage with which the slowest one
    shares its device, half of the micro-batches each, and `slack_s` how much earlier than the last device the
    first one has run its last pass; None where no plan has such a schedule.
    """

    slowest_kind: Whole
    run_s: Array
    bubble_s: Array
    mirror_kind: Whole | None = None
    slack_s: Array | None = None


def pipeline_s(
    stages: StageTimes, microbatches: Whole, gpipe: Flags, zero_bubble: Whole | None = None
) -> PipelineTime:
    """The time of `microbatches` in these stages, exactly.

    `microbatches` and `gpipe`, (plans,), say how many there are, and which plans run GPipe, `zero_bubble`
    which of `SPLIT_SCHEDULES`, from 1. All others run 1F1B, interleaved where a stage has several chunks.

    F and B are the seconds of a stage's forward and backward pass, sends included, and S = F + B; there are m
    micro-batches and p stages; max and sum are over the stages. The first case that holds decides:

    | schedule | case | seconds | why they are exact |
    |---|---|---|---|
    | 1F1B | `last_stage_decides` | m max S + (sum S - max S) | proof there |
    | 1F1B | `middle_stages_decide` | (m + p - 1) max S, less what the ends lack | `middle_stages_s` |
    | 1F1B | any other | `one_f_one_b_s` | it steps through the schedule |
    | GPipe | any | m max F + (sum F - max F), and the same of B | two flow shops: `gpipe_s` |
    | interleaved | `last_chunk_decides` | `InterleavedPasses.seconds` | proof there |
    | interleaved | `middle_may_decide` | the same, less what a path loses | proof there |
    | interleaved | any other | `interleaved_s` | it steps through the schedule |
    | `zb-h1`, `zb-v`, `dualpipe` | any | `split_schedule_s` | it steps through the schedule |
    | 1F1B | `StageTimes.ahead` | `one_f_one_b_ahead_s` | it steps through the schedule |

    The last case is that of all plans, or of none. The second case needs equal middle stages, and so do both
    closed forms of interleaved stages: no stage of the plan is LIGHT.

    Four equal stages of 3 s and eight micro-batches take (8 - 1 + 4) 3 s:

    >>> zeros = np.zeros((4, 1))
    >>> passes = {"gemm": zeros + 1.0, "embedding": zeros, "head": zeros, "p2p": zeros}
    >>> count = np.array([[1], [2], [0], [1]])  # a first, two middle and a last stage
    >>> stages = StageTimes(passes, passes | {"gemm": zeros + 2.0}, count, interleave=np.array([1]))
    >>> time = pipeline_s(stages, np.array([8]), np.array([False]))
    >>> time.run_s.tolist(), time.bubble_s.tolist()
    ([24.0], [9.0])
    """
    both_passes_s = stages.forward_s + stages.backward_s
    slowest_kind = both_passes_s.argmax(axis=0)
    slowest_s = both_passes_s[slowest_kind, np.arange(len(microbatches))]
    run_s = microbatches * slowest_s
    if stages.ahead:
        return PipelineTime(slowest_kind, run_s, np.maximum(_ahead_s(stages, microbatches) - run_s, 0.0))
    # One micro-batch, on its way through all other stages, fills and drains; other cases replace that bubble.
    bubble_s = (both_passes_s * stages.count).sum(axis=0) - slowest_s
    interleaved = stages.interleave > 1
    remaining_1f1b, time = ~interleaved & ~gpipe, PipelineTime(slowest_kind, run_s, bubble_s)
    if zero_bubble is not None and any_of(zero_bubble):
        remaining_1f1b, interleaved = remaining_1f1b & (zero_bubble == 0), interleaved & (zero_bubble == 0)
        time = _with_split_schedules(time, stages, microbatches, zero_bubble)
    if any_of(remaining_1f1b):
        remaining_1f1b &= ~last_stage_decides(stages.forward_s, stages.backward_s, stages.present)
    for plans, schedule_s in (
        (remaining_1f1b, _one_f_one_b_s),
        (gpipe & ~interleaved, _gpipe_s),
        (interleaved, _interleaved_s),
    ):
        rows = np.flatnonzero(plans)
        if len(rows):
            bubble_s[rows] = schedule_s(stages, microbatches, rows) - run_s[rows]
    return replace(time, bubble_s=np.maximum(bubble_s, 0.0))  # rounding may leave less than 0


def _with_split_schedules(
    time: PipelineTime, stages: StageTimes, microbatches: Whole, zero_bubble: Whole
) -> PipelineTime:
    """The time with that of the schedules that split backward passes filled in."""
    time = replace(time, mirror_kind=time.slowest_kind.copy(), slack_s=np.zeros(len(microbatches)))
    for rows in _alike(stages, microbatches, zero_bubble):
        _split_schedule(stages, microbatches, rows, SPLIT_SCHEDULES[zero_bubble[rows[0]] - 1], time)
    return time


def _alike(stages: StageTimes, microbatches: Whole, zero_bubble: Whole) -> list[Whole]:
    """The plans with a schedule that splits backward passes, in groups of one schedule, one number of stages
    and one of micro-batches.
    """
    keys = np.stack([zero_bubble, stages.count.sum(axis=0), microbatches], axis=1)
    rows = np.flatnonzero(zero_bubble)
    _, where = np.unique(keys[rows], axis=0, return_inverse=True)
    return [rows[where.reshape(-1) == group] for group in range(where.max(initial=-1) + 1)]


def _split_schedule(
    stages: StageTimes, microbatches: Whole, rows: Whole, schedule: str, time: PipelineTime
) -> None:
    """Fills in the `time` of the plans at `rows`, all of which have the `schedule`."""
    times = stages.split_chunks(schedule, rows)
    assert times.weight is not None
    assert time.mirror_kind is not None
    assert time.slack_s is not None
    forward_s, backward_s = times.forward + times.send_forward, times.backward + times.send_backward
    ends = split_schedule_s(schedule, forward_s, backward_s, times.weight, int(microbatches[rows[0]]))
    if schedule == "dualpipe":
        kinds = stage_kinds(stages.count[:, rows])
        passes_s = (forward_s + backward_s + times.weight).sum(axis=2)
        device, place = passes_s.argmax(axis=1), np.arange(len(rows))
        time.slowest_kind[rows], time.mirror_kind[rows] = kinds[place, device], kinds[place, -1 - device]
        time.run_s[rows] = microbatches[rows] * passes_s[place, device] / 2
    time.bubble_s[rows] = ends.last - time.run_s[rows]
    time.slack_s[rows] = ends.last - ends.first


def least_pipeline_s(stages: StageTimes, microbatches: Whole) -> Array:
    """Seconds that 1F1B takes at least, (plans,): all micro-batches on one stage, between the first forward
    passes and the last backward passes of the stages before it, for the stage where this is most.
    """
    both_passes_s = stages.forward_s + stages.backward_s
    filling_s = stages.count * (both_passes_s - stages.ahead_s)
    before_last_s = np.cumsum(filling_s, axis=0) - (both_passes_s - stages.ahead_s)
    least_s = np.where(stages.present, before_last_s + microbatches * both_passes_s, 0.0)
    return np.asarray(least_s.max(axis=0))


def _ahead_s(stages: StageTimes, microbatches: Whole) -> Array:
    """Seconds of 1F1B where stages do a part of their backward passes before the gradients come."""
    rows = np.arange(len(microbatches))
    times = stages.chunks(rows, 1)
    forward_s, ahead_s = (times.forward + times.send_forward)[:, :, 0], times.ahead[:, :, 0]
    waiting_s = (times.backward + times.send_backward)[:, :, 0] - ahead_s
    return one_f_one_b_ahead_s(forward_s, ahead_s, waiting_s, microbatches, stages.count.sum(axis=0))


def _one_f_one_b_s(stages: StageTimes, microbatches: Whole, rows: Whole) -> Array:
    """Seconds of the plans at `rows` under 1F1B, where the last stage does not decide."""
    seconds = np.empty(len(rows))
    kinds = np.array([FIRST, HEAVY, LAST])[:, None]
    forward_s, backward_s = stages.forward_s[kinds, rows], stages.backward_s[kinds, rows]
    equal_middles = stages.present[HEAVY, rows] & ~stages.present[LIGHT, rows]
    exact = equal_middles & middle_stages_decide(forward_s, backward_s)
    if any_of(exact):
        depth = stages.count[:, rows].sum(axis=0)
        seconds[exact] = middle_stages_s(forward_s, backward_s, depth, microbatches[rows])[exact]
    if any_of(~exact):
        stepped_rows = rows[~exact]
        depth = stages.count[:, stepped_rows].sum(axis=0)
        seconds[~exact] = one_f_one_b_s(
            *_passes_by_stage(stages, stepped_rows), microbatches[stepped_rows], depth
        )
    return seconds


def _gpipe_s(stages: StageTimes, microbatches: Whole, rows: Whole) -> Array:
    """Seconds of the plans at `rows` under GPipe."""
    return gpipe_s(*_passes_by_stage(stages, rows), microbatches[rows], stages.count[:, rows].sum(axis=0))


def _interleaved_s(stages: StageTimes, microbatches: Whole, rows: Whole) -> Array:
    """Seconds of the plans at `rows` under interleaved 1F1B.

    The recurrence runs plan by plan, because one pipeline alone can skip its repetitions. Such plans are few.
    """
    depth, chunk_count = stages.count[:, rows].sum(axis=0), stages.interleave[rows]
    passes = stages.interleaved_passes(rows)
    seconds = passes.seconds(depth, chunk_count, microbatches[rows])
    exact = passes.last_chunk_decides()
    if any_of(~exact):
        exact |= passes.middle_may_decide(depth, microbatches[rows])
    exact &= ~stages.present[LIGHT, rows] & (stages.shares is None)
    for index in np.flatnonzero(~exact):
        times = stages.chunks(rows[index : index + 1], int(chunk_count[index]))
        forward_s, backward_s = times.forward + times.send_forward, times.backward + times.send_backward
        seconds[index : index + 1] = interleaved_s(forward_s, backward_s, int(microbatches[rows[index]]))
    return seconds


def _passes_by_stage(stages: StageTimes, rows: Whole) -> tuple[Array, Array]:
    """Seconds of the forward and of the backward pass of every stage, sends included, (rows, stages)."""
    times = stages.chunks(rows, 1)
    forward_s, backward_s = times.forward + times.send_forward, times.backward + times.send_backward
    return forward_s[:, :, 0], backward_s[:, :, 0]
