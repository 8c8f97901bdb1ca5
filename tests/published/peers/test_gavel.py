"""Gavel's programs on 200 random instances: what they optimise is as good here."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.peers.gavel import TOLERANCE, Program, programs


@pytest.fixture(scope="module")
def found(shared_reference: Path) -> dict[str, Program]:
    return {program.there: program for program in programs(shared_reference / "peers")}


@pytest.mark.parametrize("there", ["max_min", "ftf", "throughput_normalised"])
def test_values_are_equal(found: dict[str, Program], there: str) -> None:
    assert found[there].equal == 200


def test_levels_of_water_filling_are_never_lower(found: dict[str, Program]) -> None:
    assert found["water_filling"].equal >= 194
    assert min(found["water_filling"].differences) >= -TOLERANCE


def test_the_makespan_is_never_longer(found: dict[str, Program]) -> None:
    """Gavel's bisection stops within 5 %."""
    assert min(found["makespan"].differences) >= -0.05
    assert max(found["makespan"].differences) <= TOLERANCE
