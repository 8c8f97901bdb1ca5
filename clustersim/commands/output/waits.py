"""The wait of a job in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustersim.analysis import Wait

__all__ = ["counted", "named", "num", "wait_lines"]

_NAMED = 5


def wait_lines(wait: Wait, gpus: int, host_text: str = "") -> Iterator[str]:
    """Why a job waited on a cluster of so many GPUs, without when and for how long. `host_text`: what it
    needs beside each of its GPUs, where nodes limit that.
    """
    length_s, low, high = wait.to_s - wait.from_s, *wait.free
    free = f"{low} free" if low == high else f"{low} to {high} free"
    if wait.short_s > 0:
        out = f", up to {wait.down} out of service" if wait.down else ""
        yield f"      lacked GPUs for {num(wait.short_s)} s: {free} of {gpus}{out}"
    if wait.short_s < length_s:
        enough_s = length_s - wait.short_s
        yield f"      for {num(enough_s)} s enough were free ({free}), but not given to it"
        if host_text:
            yield f"      beside each GPU it needs {host_text}, which their nodes may have lacked"
    if wait.ahead:
        yield f"      ahead of it when it began to wait, submitted earlier: {named(wait.ahead)}"
    if wait.overtakers:
        yield f"      overtaken by jobs submitted later: {named(wait.overtakers)}"
    if wait.holders:
        held = [f"{job_id} ({num(seconds / length_s)} on average)" for job_id, seconds in wait.holders]
        yield f"      GPUs were held by {named(held)}"


def counted(gpus: int, kind: str = "") -> str:
    """GPUs in words, of a kind if the cluster has several.

    >>> counted(1), counted(8, "h100")
    ('1 GPU', '8 h100 GPUs')
    """
    return f"{gpus} {kind}{' ' if kind else ''}GPU{'' if gpus == 1 else 's'}"


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more_text = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more_text


def num(value: float) -> str:
    """A number with one decimal, if that is not 0.

    >>> num(1234.0), num(0.25)
    ('1,234', '0.2')
    """
    return f"{value:,.1f}".removesuffix(".0")
