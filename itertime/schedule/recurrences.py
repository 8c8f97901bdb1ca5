"""The schedules of pipelines, step by step: exact max-plus recurrences, for many plans at once.

A stage runs one operation at a time, in the order of the schedule. An operation starts when its stage is free
and its input has arrived. Micro-batch k goes forward through stages 0..p-1 and backward through p-1..0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array, Whole

from .single_pipeline import interleaved_single_s, one_f_one_b_single_s


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
