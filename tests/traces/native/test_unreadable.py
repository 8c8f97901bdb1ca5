"""A job that no trace can hold is told from one that a trace can, at every bound."""

from __future__ import annotations

import math

import pytest

from traces.job import MAX_GPUS, Job
from traces.native import COLUMNS, MAX_COUNT, MAX_SECONDS, MIN_SECONDS, unreadable

BOUNDS = {
    "submit_s": (0.0, MAX_SECONDS),
    "duration_s": (MIN_SECONDS, MAX_SECONDS),
    "estimate_s": (MIN_SECONDS, MAX_SECONDS),
    "gpus": (1, MAX_GPUS),
    "priority": (-MAX_COUNT, MAX_COUNT),
    "weight": (1e-6, 1e6),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_is_readable_exactly_if_its_parser_takes_it(name: str) -> None:
    low, high = BOUNDS[name]
    whole = isinstance(low, int)
    near = [low - 1, low, low + 1, high - 1, high, high + 1]
    odd = [] if whole else [-1e-9, math.nan, math.inf, math.nextafter(low, 0) if low else -0.0]
    for value in [*near, *odd, 1.5, True] if whole else [*map(float, near), *odd]:
        try:
            COLUMNS[name](repr(value))
            taken = True
        except ValueError:
            taken = False
        fields = {"gpus": 1, "duration_s": 60.0, "submit_s": 0.0, name: value}
        assert (unreadable(Job("a", **fields)) is None) == taken, value  # type: ignore[arg-type]
