"""Cells of tables of measured runs: what a column holds, and the rule that its text must keep.

Every parser takes the text of a cell that is not empty, without white space around it, and raises ValueError
with the rule that the text breaks; a reader adds file, line, column and value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itertime.io import GPU_W

__all__ = [
    "Column",
    "count",
    "free_text",
    "marked",
    "nic_gbps",
    "number",
    "of_node",
    "one_of",
    "positive",
    "power",
    "share",
    "stage",
    "switch",
    "whole",
]


@dataclass(frozen=True)
class Column:
    """How the text of a column's cells is read, and whether a table needs the column."""

    parse: Callable[[str], Any]
    needed: bool = True


def free_text(value: str) -> str:
    return value


def count(value: str) -> int:
    found = number(value)
    if found != int(found) or not 1 <= found <= 10**12:
        raise ValueError("must be a whole number of at least 1")
    return int(found)


def whole(value: str) -> int:
    return 0 if value == "0" else count(value)


def share(value: str) -> float:
    found = number(value)
    if not 0 <= found <= 1:
        raise ValueError("must be a number from 0 to 1")
    return found


def stage(value: str) -> int:
    if value not in ("0", "1", "2", "3"):
        raise ValueError("must be 0, 1, 2 or 3")
    return int(value)


_SMALLEST, _LARGEST = 1e-12, 1e12  # of a measured quantity in the units of these columns


def positive(value: str) -> float:
    found = number(value)
    if found <= 0:
        raise ValueError("must be above 0")
    if not _SMALLEST <= found <= _LARGEST:
        raise ValueError("is beyond what any machine has; check its unit")
    return found


_MOST_OF_NODE, _MOST_GBPS = 10_000, 1e6


def of_node(value: str) -> int:
    """GPUs of a node."""
    found = count(value)
    if found > _MOST_OF_NODE:
        raise ValueError(f"must be at most {_MOST_OF_NODE:,}, the GPUs of one node")
    return found


def nic_gbps(value: str) -> float:
    """Gb/s of a node's NICs."""
    found = positive(value)
    if found > _MOST_GBPS:
        raise ValueError("is beyond what any node has; check its unit, Gb/s")
    return found


def power(value: str) -> float:
    found, (least, most) = number(value), GPU_W
    if not least <= found <= most:
        raise ValueError(
            f"must be the limit of one GPU, {least} to {most:,} W; leave it empty for the usual one"
        )
    return found


def number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(found):
        raise ValueError("must be a finite number")
    return found


def marked(value: str) -> bool:
    if value.lower() not in ("yes", "no"):
        raise ValueError("must be yes or no")
    return value.lower() == "yes"


def switch(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be True or False")
    return value.lower() == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return value

    return parse
