"""Names of nodes as Slurm writes them: host lists."""

from __future__ import annotations

import re

from traces.native import whole

__all__ = ["host_list"]

_PART = re.compile(r"[^,\[\]]*(?:\[[^\[\]]*\][^,\[\]]*)*")
_MOST_NODES, _LONGEST = 20_000, 200


def host_list(text: str) -> tuple[str, ...]:
    """The nodes of a host list of Slurm (scontrol(1), "show hostnames"), in its order, each once.

    >>> host_list("gpu[01-03,07],login1")
    ('gpu01', 'gpu02', 'gpu03', 'gpu07', 'login1')
    """
    names = dict[str, None]()
    position = 0
    text = text.strip()
    while position < len(text):
        match = _PART.match(text, position)
        part = match[0] if match else ""
        if not part or text[position + len(part) : position + len(part) + 1] not in ("", ","):
            raise ValueError("is no list of nodes such as node[01-03],gpu7")
        names.update(dict.fromkeys(_expanded(part, _MOST_NODES - len(names))))
        position += len(part) + 1
    if not names:
        raise ValueError("names no node")
    if any(len(name) > _LONGEST or not name.isprintable() for name in names):
        raise ValueError(f"names a node with more than {_LONGEST} letters, or with a control character")
    return tuple(names)


def _expanded(part: str, maximum: int) -> list[str]:
    """The nodes of a part such as `rack[1-2]node[01-02]`."""
    names = [""]
    for piece in re.split(r"(\[[^\[\]]*\])", part):
        ends = _numbers(piece[1:-1], maximum) if piece.startswith("[") else [piece]
        if len(names) * len(ends) > maximum:
            raise ValueError(f"names more than {_MOST_NODES:,} nodes")
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str, maximum: int) -> list[str]:
    numbers = list[str]()
    for piece in text.split(","):
        start, dash, end = piece.partition("-")
        if not (start.isascii() and start.isdecimal() and (not dash or end.isdecimal())):
            raise ValueError("is no list of nodes such as node[01-03],gpu7")
        low, high = whole(start), whole(end or start)
        if high < low or high - low >= maximum:
            raise ValueError(f"names more than {_MOST_NODES:,} nodes, or counts backwards")
        numbers += [str(number).zfill(len(start)) for number in range(low, high + 1)]
    return numbers
