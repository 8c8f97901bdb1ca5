"""How much tests do by default: a quarter of the examples of property tests, all with
CLUSTERSIM_EXAMPLES=all; and a part of the combinations of parametrised tests, all with `-m ""`.
"""

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

__all__ = ["examples", "first", "rotated"]


def examples(number: int) -> int:
    """`number` in a long campaign, a quarter of it otherwise, at least 5 if `number` is."""
    if os.environ.get("CLUSTERSIM_EXAMPLES") == "all":
        return number
    return max(min(number, 5), number // 4)


def rotated(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of the axes' values, as the arguments of a parametrised test; most of them are `long`.

    By default each combination of all axes but the last runs once, with a value of the last axis that goes
    round: with three values each, 9 of the 27.
    """
    lists = [list(axis) for axis in axes]
    turns = len(lists[-1])
    found = []
    for places in product(*(range(len(values)) for values in lists)):
        marks = [pytest.mark.long] if sum(places) % turns else []
        found.append(
            pytest.param(*(values[place] for values, place in zip(lists, places, strict=True)), marks=marks)
        )
    return found


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """The values, as the arguments of a parametrised test; all after the first `count` are `long`."""
    return [
        value
        if place < count
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]
