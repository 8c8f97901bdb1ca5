"""The recurrences of `recurrences.py` for a single pipeline, in plain Python, which beats numpy there.

Both schedules repeat. A step, or a slot of the interleaved order, depends only on the one before, and in the
steady part all periods do the same work. Once a period has shifted every number of the state by the same
seconds, all further periods do so too (the state is that of a max-plus linear system). They are skipped,
exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

TOLERANCE = 1e-14  # of the latest time: rounding, not a difference


def one_f_one_b_single_s(forward: Sequence[float], backward: Sequence[float], microbatches: int) -> float:
    """Seconds of a 1F1B pipeline with these seconds per stage; `one_f_one_b_s` explains the steps."""
    f, b = forward[::-1], backward[::-1]  # by distance from the last stage
    p = len(f)
    free, forward_end = [0.0] * p, [0.0] * (p + 1)
    step = 1 - p
    while step < microbatches:
        previous_state = free + forward_end
        # The forwards of the step, then its backwards; before step 0 there are no backwards yet.
        for depth in range(max(0, -step), min(p, microbatches - step)):
            input_s = forward_end[depth + 1] if depth < p - 1 else 0.0
            forward_end[depth] = free[depth] = max(free[depth], input_s) + f[depth]
        if step >= 0:
            input_s = 0.0
            for depth in range(p):
                free[depth] = max(free[depth], input_s) + b[depth]
                input_s = free[depth]
        step += 1
        steady_steps = microbatches - p - step  # steps in which every stage still has a forward
        # If the step has shifted every stage by the same seconds, all further steady steps do so too.
        if step > 0 and steady_steps > 0:
            shift = _shift(previous_state[:-1], free + forward_end[:-1])
            if shift is not None:
                free = [time + steady_steps * shift for time in free]
                forward_end = [time + steady_steps * shift for time in forward_end]
                step += steady_steps
    return free[-1]


def interleaved_single_s(
    forward: Sequence[Sequence[float]], backward: Sequence[Sequence[float]], microbatches: int
) -> float:
    """Seconds of the interleaved schedule with these seconds per device and chunk; `microbatches` is a
    multiple of the devices. `interleaved_s` explains the slots.
    """
    p, v = len(forward), len(forward[0])
    period, total = p * v, microbatches * v
    offset = p - 1 + (v - 1) * p
    last_device = p - 1
    forwards = _by_slot([[time for time in times for _ in range(p)] for times in forward], range(p))
    backwards = _by_slot(
        [[time for time in times[::-1] for _ in range(p)] for times in backward], range(last_device, -1, -1)
    )
    free, forward_end, backward_end = [0.0] * p, [0.0] * p, [0.0] * p
    history: deque[list[float]] = deque(maxlen=period + 1)  # states of the steady part, up to a period back
    upwards, downwards = range(p), range(last_device, -1, -1)
    may_repeat = True
    slot = 0
    while slot < total + offset + last_device:
        # Forwards run from the last device to the first, so that each reads what was sent in the slot before.
        if slot < total + last_device:
            row = forwards[slot % period]
            end_input_s = forward_end[last_device] if slot % period >= p else 0.0
            if last_device <= slot < total:
                devices = downwards
            else:
                devices = range(min(last_device, slot), max(0, slot - total + 1) - 1, -1)
            for device in devices:
                time = free[device]
                input_s = forward_end[device - 1] if device else end_input_s
                forward_end[device] = free[device] = (time if time > input_s else input_s) + row[device]
        # Backwards run from the first device to the last, for the same reason.
        backward_slot = slot - offset  # backwards of the last device
        if backward_slot >= 0:
            row = backwards[backward_slot % period]
            end_input_s = backward_end[0] if backward_slot % period >= p else 0.0
            if last_device <= backward_slot < total:
                devices = upwards
            else:
                first_device = last_device - backward_slot  # the one that begins its backwards in this slot
                devices = range(max(0, first_device), min(p, first_device + total))
            for device in devices:
                time = free[device]
                input_s = backward_end[device + 1] if device < last_device else end_input_s
                backward_end[device] = free[device] = (time if time > input_s else input_s) + row[device]
        slot += 1
        # In the steady part, compare the state with that of one period ago; skip what repeats.
        if may_repeat and offset + p <= slot <= total:
            history.append(free + forward_end + backward_end)
            shift = _shift(history[0], history[-1]) if len(history) > period else None
            if shift is not None:
                may_repeat = False
                state = _steady_state(history, shift, total - slot, period)
                free, forward_end, backward_end = state[:p], state[p : 2 * p], state[2 * p :]
                slot = total
    return max(free)


def _steady_state(history: Sequence[list[float]], shift: float, slots: int, period: int) -> list[float]:
    """The state `slots` slots after the last one of `history`, where each period adds `shift` to the state.

    It is the state of a slot at most one period ago, plus the shifts of the periods between.
    """
    periods = -(-slots // period)
    state = history[slots - periods * period - 1]
    return [time + periods * shift for time in state]


def _by_slot(passes: Sequence[list[float]], delays: Iterable[int]) -> list[tuple[float, ...]]:
    """Seconds of every device in each slot of a period; a device's first pass is `delays` slots in."""
    rotations = [times[-delay:] + times[:-delay] for times, delay in zip(passes, delays, strict=True)]
    return list(zip(*rotations, strict=True))


def _shift(previous: Sequence[float], current: Sequence[float]) -> float | None:
    """The growth of the numbers, if it is the same for all; else None."""
    shift = current[0] - previous[0]
    tolerance = TOLERANCE * current[0]
    for old, new in zip(previous, current, strict=True):
        if abs(new - old - shift) > tolerance:
            return None
    return shift
