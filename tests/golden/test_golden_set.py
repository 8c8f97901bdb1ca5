"""The golden set of `golden_set.py`: every run, and each tenth prediction and search by default."""

import platform
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.golden import golden_set

ROOT = Path(__file__).parents[2]
PARTS = 5
"""Into how many tests a table of many entries is divided."""


@cache
def same_libraries() -> bool:
    """Whether hashes hold here: other versions, or another processor, may differ in the last bits."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    libraries = ("numpy", "scipy", "pandas")
    return platform.machine() == "x86_64" and all(version(name) == pins[name] for name in libraries)


def differences(table: str, part: int, parts: int, every: int) -> list[str]:
    """What moved in the entries `part`, `part + parts`, ... of each `every`-th one."""
    recorded = golden_set.recorded(table)
    lines = []
    for label, compute in list(golden_set.entries(table, every=every))[part::parts]:
        before, now = recorded[label], compute()
        same = before == now if same_libraries() else _alike(before[1:], now[1:])
        if not same:
            lines.append(golden_set.moved(table, label, before, now))
    return lines


def _alike(before: golden_set.Entry, now: golden_set.Entry) -> bool:
    """Whether figures are the same but for rounding."""
    for old, new in zip(before, now, strict=True):
        try:
            if float(new) != pytest.approx(float(old), rel=1e-9):
                return False
        except ValueError:
            if old != new:
                return False
    return True


@pytest.mark.parametrize("part", range(10))
def test_runs_write_the_same_folders(part: int) -> None:
    assert differences("runs", part, 10, every=1) == []


@pytest.mark.parametrize("table", ["predictions", "plans"])
def test_some_answers_of_itertime_are_the_same(table: str) -> None:
    assert differences(table, 0, 1, every=10) == []


@pytest.mark.long
@pytest.mark.parametrize("table", ["predictions", "plans"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_answers_of_itertime_are_the_same(table: str, part: int) -> None:
    assert differences(table, part, PARTS, every=1) == []


def test_a_difference_is_told_with_its_size() -> None:
    before, now = ("a1", "2.0", "10", ""), ("b2", "2.5", "10", "")
    assert golden_set.moved("predictions", "x", before, before) == ""
    assert golden_set.moved("predictions", "x", before, now) == (
        "predictions: x: iteration_s 2.0 -> 2.5 (+25.000%)"
    )
    assert "other bytes" in golden_set.moved("predictions", "x", before, ("b2", *before[1:]))
