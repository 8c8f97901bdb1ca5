"""What a program prints beside what a page shows: the same words, and numbers that are nearly equal."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

__all__ = ["Call", "Done", "assert_nearly_printed", "parts"]


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
CHANGE = re.compile(r"\([^)\d]*(\d[\d,]*(?:\.\d+)?) (?:%|pp)\)")  # against the first policy


def numbers_of(pattern: re.Pattern[str], text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in pattern.findall(text)]


def parts(table: str) -> tuple[list[float], list[float], str]:
    """The changes in brackets, all other numbers, and the words, with blanks of any length as one."""
    changes, rest = numbers_of(CHANGE, table), CHANGE.sub("(change)", table)
    return changes, numbers_of(NUMBER, rest), re.sub(r"[ ─]+", " ", NUMBER.sub("#", rest)).strip()


def assert_nearly_printed(shown: str, printed: str) -> None:
    """Numbers within 3 % or 1, changes within 5 points: the last bits of predictions differ between CPUs, and
    with them which of two equal jobs runs first. All else is equal.
    """
    (changes, numbers, words), (new_changes, new_numbers, new_words) = parts(shown), parts(printed)
    assert words == new_words
    assert changes == pytest.approx(new_changes, abs=5)
    assert numbers == pytest.approx(new_numbers, rel=0.03, abs=1)
