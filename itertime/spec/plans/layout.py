"""Layers of each chunk of a pipeline, as a list or as Megatron Core's layout string.

A list is "7,8,9,8". A string is one of `pipeline_model_parallel_layout`: "E" is the embedding, "t" a layer,
"L" the loss, "|" ends a chunk, "x*3" and "(..)*3" repeat, and commas say nothing: "Et*7|(t*8|)*2t*9L".
"""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 10_000
"""Characters of a string at most, repetitions written out."""


@lru_cache(maxsize=256)
def layers_of_chunks(text: str) -> tuple[int, ...]:
    """Layers of each chunk; () for a text that is no list and no string, or a wrong one.

    >>> layers_of_chunks("7,8,9,8"), layers_of_chunks("Et*7|(t*8|)*2t*9L"), layers_of_chunks("even")
    ((7, 8, 9, 8), (7, 8, 8, 9), ())
    """
    return () if not is_layout(text) or layout_problem(text) else _sizes(text)


@lru_cache(maxsize=256)
def is_layout(text: object) -> bool:
    """Whether a value of `Plan.split` is meant as a list or as a string, and not as a word."""
    return (
        isinstance(text, str) and re.fullmatch(r"[EtmL|()*0-9, ]*[0-9|*][EtmL|()*0-9, ]*", text) is not None
    )


def layout_problem(text: str) -> str:
    """Why a list or a string is none; "" if it is one."""
    if re.fullmatch(r"\s*[0-9]+(\s*,\s*[0-9]+)*\s*", text):
        sizes = _sizes(text)
        if max(sizes) > _LONGEST:
            return f"a chunk has at most {_LONGEST:,} layers"
        return "" if min(sizes[:-1], default=1) else "a chunk before the last one must have a layer"
    written = _written_out(text)
    if written is None:
        return (
            "write E, t, L and |, each or a part in brackets repeated as in (t*2|)*3; or layers as in 7,8,9,8"
        )
    if "m" in written:
        return "m predicts further tokens, which is not modelled; leave it out"
    if "E" in written[1:] or "L" in written[:-1]:
        return "E must stand first and L last"
    return "" if min(_sizes(text)[:-1], default=1) else "a chunk before the last one must have a layer"


def _sizes(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"[0-9, ]*", text):
        return tuple(int(number) for number in text.split(","))
    return tuple(chunk.count("t") for chunk in (_written_out(text) or "").split("|"))


def _written_out(text: str) -> str | None:
    """The string without repetitions; None if it has other parts or becomes too long."""
    written = re.sub(r"[, ]", "", text)
    while "*" in written:
        longer = re.sub(r"\(([^()]*)\)\*([0-9]{1,4})", lambda m: m[1] * int(m[2]), written, count=1)
        longer = longer if longer != written else _with_one_repeated(written)
        if longer == written or len(longer) > _LONGEST:
            return None
        written = longer
    return written if re.fullmatch(r"[EtmL|]*", written) else None


def _with_one_repeated(written: str) -> str:
    return re.sub(r"([EtmL|])\*([0-9]{1,4})", lambda m: m[1] * int(m[2]), written, count=1)
