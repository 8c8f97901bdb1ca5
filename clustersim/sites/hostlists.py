"""Slurm's lists of host names: `n[01-03,7],gpu-[1-2]-[0-3]`, expanded and compressed.

Source: scontrol(1), `show hostnames` and `show hostlist`. Numbers keep their zeros: `n[08-10]` is n08, n09,
n10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product

from itertime.errors import UserError, quoted

__all__ = ["hostlist_of", "hosts_of"]

MOST_HOSTS = 1_000_000
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)", re.ASCII | re.DOTALL)


def hosts_of(text: str) -> list[str]:
    """The names in a list of hosts, in its order. UserError for text that is no such list.

    >>> hosts_of("n[01-03,7],gpu-[1-2]-[0-1]")
    ['n01', 'n02', 'n03', 'n7', 'gpu-1-0', 'gpu-1-1', 'gpu-2-0', 'gpu-2-1']
    """
    hosts: list[str] = []
    for word in filter(None, _words(text)):
        pieces = [_choices(text, *match.groups()) for match in _PIECE.finditer(word)]
        count = len(hosts) + _product_of(len(choices) for choices in pieces)
        if count > MOST_HOSTS:
            raise UserError(f"hosts {quoted(text)}: are more than {MOST_HOSTS:,} nodes; check the ranges")
        hosts += ["".join(parts) for parts in product(*pieces)]
    return hosts


def _words(text: str) -> Iterator[str]:
    """The words of a list: commas inside brackets separate no words."""
    depth = start = 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            break
        if sign == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    if depth:
        raise UserError(f"hosts {quoted(text)}: brackets do not match; write n[01-16]")
    yield text[start:].strip()


def _choices(text: str, ranges: str | None, plain: str | None) -> Sequence[str]:
    if ranges is None:
        return [plain or ""]
    choices: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(high) < int(low):
            raise UserError(f"hosts {quoted(text)}: {quoted(part)} is no range of numbers; write n[01-16]")
        if int(high) - int(low) >= MOST_HOSTS:
            raise UserError(f"hosts {quoted(text)}: are more than {MOST_HOSTS:,} nodes; check the ranges")
        choices += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return choices


def _product_of(counts: Iterable[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total


def hostlist_of(hosts: Iterable[str]) -> str:
    """The shortest list of hosts in this very order, so that `hosts_of` gives them back.

    >>> hostlist_of(["n01", "n02", "n03", "n07", "login"])
    'n[01-03,07],login'
    """
    words: list[str] = []
    matches = [_NUMBERED.fullmatch(host) or host for host in hosts]
    for (prefix, suffix), numbered in groupby(matches, _frame):
        if prefix is None:
            words += [str(host) for host in numbered]
            continue
        numbers = [match[2] for match in numbered if isinstance(match, re.Match)]
        ranges = list(_ranges(numbers))
        single = len(numbers) == 1
        words.append(f"{prefix}{numbers[0] if single else '[' + ','.join(ranges) + ']'}{suffix}")
    return ",".join(words)


def _frame(match: re.Match[str] | str) -> tuple[str | None, str]:
    """What stands before and after the number of a host; None for a host without a number."""
    return (None, "") if isinstance(match, str) else (match[1], match[3])


def _ranges(numbers: Sequence[str]) -> Iterator[str]:
    low = high = numbers[0]
    for number in numbers[1:]:
        if number != str(int(high) + 1).zfill(len(low)):
            yield low if low == high else f"{low}-{high}"
            low = number
        high = number
    yield low if low == high else f"{low}-{high}"
