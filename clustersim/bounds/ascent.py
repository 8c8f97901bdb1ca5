"""Better prices, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, inf

import numpy as np

from .columns import Floats
from .prices import Market

__all__ = ["Ascent", "ascend"]

_SPREAD = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 1.7, 2.6, 5.0, 12.0])
_FINE = np.geomspace(0.1, 12.0, 33)
_DECAY, _MEMORY, _FARTHEST = 10.0, 0.5, 2.0


@dataclass(frozen=True, eq=False)
class Ascent:
    """The best prices found, as (GPU type, interval), and what they prove: `worth`, the sum of the jobs'
    values less the price of all GPUs. `steps`: how many prices were tried.
    """

    worth: float
    price: Floats
    steps: int


def ascend(
    market: Market,
    price: Floats,
    steps: int,
    *,
    least: Floats,
    unit_price: float,
    enough: float = inf,
    first_step: float = 0.4,
) -> Ascent:
    """Improve `price` in `steps` steps, or until its worth is above `enough`.

    `least`: what each job's value is at least, at any prices. `unit_price`: the smallest price that matters.
    `first_step`: by which share prices change in the first step where demand is twice the GPUs.

    Each step follows a supergradient of the concave function D (see `Market`): prices rise in proportion
    where the cheapest plans hold more GPUs than there are, and fall where they hold fewer. Two steps are
    averaged, and steps shrink as 1 / (1 + step / 10). Validity does not depend on how good the steps are:
    what any prices prove is valid, and the best is kept.
    """
    best = Ascent(-inf, price, 0)
    multipliers = market.multipliers(price, len(_SPREAD))
    gpu_seconds = market.gpus[:, None] * market.spans_s
    direction = None
    for step in range(steps):
        answer = market.answer(price, multipliers, held=True)
        worth = fsum(np.maximum(answer.value, least).tolist()) - market.worth(price)
        if worth > best.worth:
            best, found, used = Ascent(worth, price, step + 1), answer.value, multipliers
            if worth > enough:
                return best
        assert answer.held is not None
        assert answer.multiplier is not None
        excess = answer.held / gpu_seconds - 1.0
        direction = excess if direction is None else (1 - _MEMORY) * direction + _MEMORY * excess
        scale = first_step / (1.0 + step / _DECAY) * np.maximum(price, unit_price)
        price = np.maximum(0.0, price + scale * direction.clip(-1.0, _FARTHEST))
        price[:, -1] = 0.0
        multipliers = answer.multiplier[:, None] * _SPREAD
    middle = np.sqrt(used[:, 5] * used[:, 6])[:, None]
    value = np.maximum(found, market.answer(best.price, middle * _FINE).value)
    worth = fsum(np.maximum(value, least).tolist()) - market.worth(best.price)
    return Ascent(worth, best.price, steps)
