"""Better prices, step by step: projected supergradient ascent of the dual function."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, inf

import numpy as np

from .columns import Floats
from .relaxation import Relaxation

__all__ = ["Ascent", "ascend"]

# Multipliers of a job's work, as factors of the best one at the prices before; the finer ones are for the
# best prices. Where jobs end anywhere, each end has a best multiplier, and often many ends cost about the
# same, so all need a near one. Where the end is given, one multiplier is enough. Where jobs have one option
# each, fewer are as good for a few steps.
_ANYWHERE, _ANYWHERE_FINE = np.geomspace(0.1, 12.0, 24), np.geomspace(0.07, 16.0, 161)
_ANYWHERE_RIGID = np.geomspace(0.1, 12.0, 12)
_ANYWHERE_RIGID_FINE = np.unique(
    np.concatenate([np.geomspace(0.07, 0.5, 9), np.geomspace(0.5, 2.0, 25), np.geomspace(2.0, 16.0, 9)])
)
_AT_TIME = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 1.7, 2.6, 5.0, 12.0])
_AT_TIME_FINE = np.geomspace(0.1, 12.0, 33)

_STEP = 0.3  # relative size of the first step
_MEMORY = 0.5  # weight of the present step, against those before
_FEW_STEPS = 10  # up to which time matters more than the last part of a per cent
_STEP_OF_FEW, _MEMORY_OF_FEW = 0.4, 0.7  # of so few steps, which have to go farther
_STEP_RIGID = 0.8  # of so few steps where jobs have one option each: their plans hardly follow prices
_DECAY, _DECAY_SHARE = 10.0, 0.25  # half of that after the larger of so many steps and this share of all
_SLOWER, _FINER = 0.1, 1.2  # how much slower gains may fall than before; what finer multipliers add
_FARTHEST = 2.0  # excess of held GPUs, over those that there are, beyond which a step grows no further


@dataclass(frozen=True, eq=False)
class Ascent:
    """The best prices found, as (GPU type, interval), and what they prove: `dual`, the value of the dual
    function, which is the sum of the jobs' values less the price of all GPUs.
    """

    dual: float
    price: Floats


def ascend(
    relaxation: Relaxation,
    price: Floats,
    steps: int,
    *,
    lower_bounds: Floats,
    unit_price: float,
    enough: float = inf,
    known: float = -inf,
) -> Ascent:
    """Improve `price` in `steps` steps, or until the dual is above `enough`.

    `lower_bounds`: what each job's value is at least, at any prices. `unit_price`: the smallest price that
    matters. `known`: a value that is proved already; the ascent ends where its gains, which shrink from step
    to step, do not lead there (`_leads_to`).

    Each step follows a supergradient of the concave function D (see `Relaxation`): prices rise in proportion
    where the cheapest plans hold more GPUs than there are, and fall where they hold fewer. Two steps are
    averaged, and steps shrink as 1 / (1 + step / d), d the larger of 10 and a quarter of all steps. A step
    that changes no price is the last. Validity does not depend on how good the steps are: what any prices
    prove is valid, and the best is kept.
    """
    best = Ascent(-inf, price)
    spread, fine, size, memory = _pace(relaxation, steps)
    multipliers = relaxation.multipliers(price, len(spread))
    gpu_seconds = relaxation.gpus[:, None] * relaxation.spans_s
    decay = max(_DECAY, _DECAY_SHARE * steps)
    direction, duals = None, list[float]()
    for step in range(steps):
        solution = relaxation.solve(price, multipliers, held=step < steps - 1)
        dual = fsum(np.maximum(solution.value, lower_bounds).tolist()) - relaxation.capacity_price(price)
        if dual > best.dual:
            best, best_solution = Ascent(dual, price), solution
            if dual > enough:
                return best
        duals.append(best.dual)
        if not _leads_to(known, duals, steps):
            return best
        if solution.held is None:
            break
        excess = solution.held / gpu_seconds - 1.0
        direction = excess if direction is None else (1 - memory) * direction + memory * excess
        scale = size / (1.0 + step / decay) * np.maximum(price, unit_price)
        former_price, price = price, np.maximum(0.0, price + scale * direction.clip(-1.0, _FARTHEST))
        price[:, -1] = 0.0
        if np.array_equal(price, former_price):
            break
        multipliers = solution.multiplier[:, None] * spread
    again = relaxation.solve(best.price, best_solution.multiplier[:, None] * fine)
    value = np.maximum(np.maximum(best_solution.value, again.value), lower_bounds)
    return Ascent(fsum(value.tolist()) - relaxation.capacity_price(best.price), best.price)


def _pace(relaxation: Relaxation, steps: int) -> tuple[Floats, Floats, float, float]:
    """The factors of multipliers in an ascent of `steps` steps, those at its end, the size of its first step,
    and the weight of each step against those before.
    """
    if not relaxation.free_end:
        return _AT_TIME, _AT_TIME_FINE, _STEP, _MEMORY
    if steps > _FEW_STEPS:
        return _ANYWHERE, _ANYWHERE_FINE, _STEP, _MEMORY
    if relaxation.rigid:
        return _ANYWHERE_RIGID, _ANYWHERE_RIGID_FINE, _STEP_RIGID, _MEMORY
    return _ANYWHERE, _ANYWHERE_FINE[::2], _STEP_OF_FEW, _MEMORY_OF_FEW


def _leads_to(value: float, duals: list[float], steps: int) -> bool:
    """Whether an ascent of `steps` steps may come to `value`. `duals`: the best one of each step so far.

    A guess that saves time alone. The larger of the last two gains counts, since some steps gain little; it
    falls as gains fell so far, less a little. As long as prices prove nothing, gains come and go, and it does
    not fall. The finer multipliers at the end add a few per cent, and up to 15 after large steps.
    """
    if len(duals) < 4 or value <= duals[-1]:
        return True
    gains = np.diff(duals[-4:])
    if gains.min() <= 0:
        return True
    decay = min(1.0, float((gains[1:] / gains[:-1]).max()) + _SLOWER) if duals[-1] > 0 else 1.0
    likely_gain = fsum(float(gains[1:].max()) * decay**k for k in range(1, steps - len(duals) + 1))
    return value < _FINER * (duals[-1] + likely_gain)
