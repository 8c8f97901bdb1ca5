"""The schedules of pipelines, step by step: exact max-plus recurrences, for many plans at once.

A stage runs one operation at a time, in the order of the schedule. An operation starts when its stage is free
and its input has arrived. Micro-batch k goes forward through stages 0..p-1 and backward through p-1..0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array, Flags, Whole

from .single_pipeline import TOLERANCE, interleaved_single_s, one_f_one_b_single_s

_BLOCK = 512  # pipelines of similar depth that are stepped together


def one_f_one_b_s(
    forward: Array, backward: Array, microbatches: ArrayLike, stages: ArrayLike | None = None
) -> Array:
    """Seconds from the first forward to the last backward of a 1F1B (PipeDream-flush) pipeline, exactly.

    `forward`, `backward`: seconds of each stage, sends included, shape (plans, max stages). One number per
    plan: `stages`, how many of the columns it uses (default all); `microbatches`.

    Stage i holds at most p - i micro-batches (Narayanan et al., SC'21, section 2.2.1). With e = p - 1 - i,
    step j of stage i is the forward of micro-batch j + e and then the backward of micro-batch j: the forwards
    of a step depend only on the step before; the backwards form a prefix maximum over the stages. So a step
    is a few array operations.
    """
    forward, backward, count, p = _columns(forward, backward, microbatches, stages)
    plans, width = forward.shape
    if plans == 1:
        stage_count = p[0, 0]
        passes = forward[0, :stage_count].tolist(), backward[0, :stage_count].tolist()
        return np.array([one_f_one_b_single_s(*passes, int(count[0, 0]))])
    # Stages are counted from the last one, which every plan has; stages that a plan lacks take no time.
    depth = np.arange(width)  # e: distance from the last stage
    is_stage = depth < p
    rows = np.arange(plans)[:, None]
    source = np.where(is_stage, p - 1 - depth, 0)
    f = np.where(is_stage, forward[rows, source], 0.0)
    b = np.where(is_stage, backward[rows, source], 0.0)
    # The backwards from the last stage to each stage. The prefix maximum runs on times less this sum.
    backward_path_s = np.cumsum(b, axis=1)
    earlier_path_s = backward_path_s - b
    free = np.zeros((plans, width))  # when a stage finished its last operation
    forward_end = np.zeros((plans, width))  # when the last forward of a stage ended
    end = np.zeros(plans)
    for step in range(1 - width, int(count.max(initial=0))):
        # All forwards of the step: micro-batch j + e, once the next stage towards the input has sent it.
        index = step + depth
        input_s = np.concatenate([forward_end[:, 1:], np.zeros((plans, 1))], axis=1)
        runs = (index >= 0) & (index < count)
        forward_end = np.where(runs, np.maximum(free, input_s) + f, forward_end)
        free = np.where(runs, forward_end, free)
        # All backwards of micro-batch j, from the last stage to the first: each waits for the one before.
        if step >= 0:
            active = step < count[:, 0]
            backward_end = np.maximum.accumulate(free - earlier_path_s, axis=1) + backward_path_s
            free = np.where(active[:, None], backward_end, free)
            end = np.where(active, backward_end[np.arange(plans), p[:, 0] - 1], end)
    return end


def one_f_one_b_ahead_s(
    forward: Array, ahead: Array, backward: Array, microbatches: ArrayLike, stages: ArrayLike | None = None
) -> Array:
    """Seconds of 1F1B where a stage does a part of each backward pass, `ahead`, as soon as it is free, and
    only the other part, `backward`, waits for gradients; exactly. Arguments as `one_f_one_b_s`.
    """
    forward, backward, count, p = _columns(forward, backward, microbatches, stages)
    seconds, order = np.zeros(len(forward)), np.argsort(p[:, 0], kind="stable")
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        source = p[rows] - 1 - np.arange(p[rows].max())  # stages are counted from the last one
        f, a, b = (
            np.take_along_axis(times[rows], source % p[rows], 1) for times in (forward, ahead, backward)
        )
        seconds[rows] = _stepped_ahead_s(f, a, b, count[rows], source >= 0)
    return seconds


def _stepped_ahead_s(f: Array, a: Array, b: Array, count: Whole, is_stage: Flags) -> Array:
    """Seconds of pipelines with these seconds for each stage, by distance from the last one, (plans, stages).

    The steps are those of `one_f_one_b_s`, in which a backward pass starts no sooner than `a` seconds after
    the forward pass of the step. Steps that repeat are skipped, as in `single_pipeline.py`, pipeline by
    pipeline, and pipelines at their end leave.
    """
    f, a, b = (np.where(is_stage, times, 0.0) for times in (f, a, b))
    plans, width = f.shape
    depth, p = np.arange(width), is_stage.sum(axis=1, keepdims=True)
    path_s = np.cumsum(b, axis=1)
    state = np.zeros((2, plans, width))  # when a stage is free, and when its last forward pass ended
    step, seconds, rows = np.full((plans, 1), 1 - width), np.zeros(plans), np.arange(plans)
    while len(rows):
        free, forward_end = state
        index = step + depth
        input_s = np.concatenate([forward_end[:, 1:], np.zeros((len(rows), 1))], axis=1)
        runs = is_stage & (index >= 0) & (index < count)
        forward_end = np.where(runs, np.maximum(free, input_s) + f, forward_end)
        free = np.where(runs, forward_end, free)
        backward_end = np.maximum.accumulate(free + a - (path_s - b), axis=1) + path_s
        previous_state, state = state, np.stack([np.where(step >= 0, backward_end, free), forward_end])
        step = step + 1
        shift = _common_shift(previous_state, state, is_stage)
        steady_steps = np.where((step > 0) & ~np.isnan(shift), np.maximum(count - p - step, 0), 0)
        state = state + np.where(is_stage, steady_steps * np.nan_to_num(shift), 0.0)
        step = step + steady_steps
        done = (step >= count)[:, 0]
        if done.any():
            seconds[rows[done]] = np.take_along_axis(state[0], p - 1, 1)[done, 0]
            rows, is_stage = rows[~done], is_stage[~done]
            step, count, p = (column[~done] for column in (step, count, p))
            f, a, b, path_s = (times[~done] for times in (f, a, b, path_s))
            state = state[:, ~done]
    return seconds


def _common_shift(previous: Array, current: Array, is_stage: Flags) -> Array:
    """By how much all numbers of a pipeline's state, (numbers, plans, stages), have grown, (plans, 1); NaN
    where not by the same.
    """
    shift = current - previous
    low = np.where(is_stage, shift, np.inf).min(axis=(0, 2))
    high = np.where(is_stage, shift, -np.inf).max(axis=(0, 2))
    same = high - low <= TOLERANCE * current.max(axis=(0, 2))
    return np.where(same, low, np.nan)[:, None]


def gpipe_s(
    forward: Array, backward: Array, microbatches: ArrayLike, stages: ArrayLike | None = None
) -> Array:
    """Seconds of a GPipe schedule (Huang et al. 2019): all forwards, then all backwards. Arguments as
    `one_f_one_b_s`.

    Two permutation flow shops with equal jobs, one after the other: each takes sum + (m - 1) max of its stage
    times.
    """
    forward, backward, count, p = _columns(forward, backward, microbatches, stages)
    is_stage = np.arange(forward.shape[1]) < p
    f, b = np.where(is_stage, forward, 0.0), np.where(is_stage, backward, 0.0)
    repeats = count[:, 0] - 1
    return f.sum(axis=1) + repeats * f.max(axis=1) + b.sum(axis=1) + repeats * b.max(axis=1)


def _columns(
    forward: Array, backward: Array, microbatches: ArrayLike, stages: ArrayLike | None
) -> tuple[Array, Array, Whole, Whole]:
    forward, backward = np.atleast_2d(np.asarray(forward, float)), np.atleast_2d(np.asarray(backward, float))
    column = (len(forward), 1)
    count = np.broadcast_to(np.reshape(np.asarray(microbatches, np.int64), (-1, 1)), column)
    stage_count = forward.shape[1] if stages is None else stages
    p = np.broadcast_to(np.reshape(np.asarray(stage_count, np.int64), (-1, 1)), column)
    return forward, backward, count, p


def interleaved_s(forward: Array, backward: Array, microbatches: int) -> Array:
    """Seconds of the interleaved 1F1B schedule (Narayanan et al., SC'21, section 2.2.2), exactly.

    `forward`, `backward`: seconds of each chunk on each device, shape (plans, p, v); chunk c of device r is
    stage c p + r. One number of micro-batches, a multiple of p, for all plans. The order is Megatron-LM's:
    device r runs 2 (p - 1 - r) + (v - 1) p forwards ahead, and the k-th forward belongs to chunk (k mod p v)
    // p.

    In slot k + r a device runs its k-th forward, then the backward that follows in this order. Every input of
    a slot comes from the slot before, so a slot is a few array operations over devices and plans.
    """
    forward, backward = np.asarray(forward, float), np.asarray(backward, float)
    plans, p, v = forward.shape
    if plans == 1:
        return np.array([interleaved_single_s(forward[0].tolist(), backward[0].tolist(), int(microbatches))])
    total, rank = microbatches * v, np.arange(p)
    offset = (p - 1) + (v - 1) * p
    free, forward_end, backward_end = (np.zeros((plans, p)) for _ in range(3))
    for slot in range(total + offset + p - 1):
        # Every device's k-th forward. Its input is what the device before sent in the slot before; that of
        # the first device comes from the last one, or, for the model's first chunk, from nowhere.
        k = slot - rank
        runs = (k >= 0) & (k < total)
        chunk = k % (p * v) // p
        input_s = np.roll(forward_end, 1, axis=1)
        if chunk[0] == 0:
            input_s[:, 0] = 0.0
        forward_end = np.where(runs, np.maximum(free, input_s) + forward[:, rank, chunk], forward_end)
        free = np.where(runs, forward_end, free)
        # Every device's k-th backward, in the opposite direction and `offset` slots later.
        k = slot - offset - (p - 1 - rank)
        runs = (k >= 0) & (k < total)
        chunk = v - 1 - k % (p * v) // p
        input_s = np.roll(backward_end, -1, axis=1)
        if chunk[-1] == v - 1:
            input_s[:, -1] = 0.0
        backward_end = np.where(runs, np.maximum(free, input_s) + backward[:, rank, chunk], backward_end)
        free = np.where(runs, backward_end, free)
    return free.max(axis=1)
