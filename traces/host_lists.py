"""Slurm's lists of host names: `n[01-03,7],gpu-[1-2]-[0-3]`, expanded and compressed.

Source: scontrol(1), `show hostnames` and `show hostlist`. Numbers keep their zeros: `n[08-10]` is n08, n09,
n10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product
from math import prod

from itertime.errors import UserError, quoted

__all__ = ["host_list", "hostlist_of", "hosts_of"]

_MOST_HOSTS = 1_000_000
_MOST_OF_JOB, _LONGEST = 20_000, 200
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,15})([^0-9]*)", re.ASCII | re.DOTALL)


def hosts_of(text: str) -> list[str]:
    """The names in a list of hosts of a site, in its order. UserError for text that is no such list.

    >>> hosts_of("n[01-03,7],gpu-[1-2]-[0-1]")
    ['n01', 'n02', 'n03', 'n7', 'gpu-1-0', 'gpu-1-1', 'gpu-2-0', 'gpu-2-1']
    """
    try:
        return _expanded(text, _MOST_HOSTS)
    except OverflowError:
        problem = f"are more than {_MOST_HOSTS:,} nodes; check the ranges"
        raise UserError(f"hosts {quoted(text)}: {problem}") from None
    except ValueError as error:
        raise UserError(f"hosts {quoted(text)}: {error}; write n[01-16]") from None


def host_list(text: str) -> tuple[str, ...]:
    """The names in a list of the hosts of a job, in its order, each once. ValueError says what is wrong.

    >>> host_list("gpu[01-03,07],login1,gpu01")
    ('gpu01', 'gpu02', 'gpu03', 'gpu07', 'login1')
    """
    try:
        names = tuple(dict.fromkeys(_expanded(text, _MOST_OF_JOB)))
    except OverflowError:
        raise ValueError(f"names more than {_MOST_OF_JOB:,} nodes") from None
    except ValueError:
        raise ValueError("is no list of nodes such as node[01-03],gpu7") from None
    if not names:
        raise ValueError("names no node")
    if any(len(name) > _LONGEST or not name.isprintable() for name in names):
        raise ValueError(f"names a node with more than {_LONGEST} letters, or with a control character")
    return names


def _expanded(text: str, maximum: int) -> list[str]:
    """The hosts of a list. ValueError for text that is none, OverflowError for more than the maximum."""
    hosts: list[str] = []
    for word in filter(None, _words(text)):
        pieces = [_choices(match[1], match[2], maximum) for match in _PIECE.finditer(word)]
        if len(hosts) + prod(map(len, pieces)) > maximum:
            raise OverflowError
        hosts += ["".join(names) for names in product(*pieces)]
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
        raise ValueError("brackets do not match")
    yield text[start:].strip()


def _choices(ranges: str | None, plain: str | None, maximum: int) -> Sequence[str]:
    """The texts that a piece of a word stands for."""
    if ranges is None:
        return [plain or ""]
    choices: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(high) < int(low):
            raise ValueError(f"{quoted(part)} is no range of numbers")
        if int(high) - int(low) >= maximum:
            raise OverflowError
        choices += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return choices


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
