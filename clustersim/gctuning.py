"""The threshold of the garbage collector during a run, or while a log is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_less_often"]

_YOUNG = 50_000
"""New objects, less those freed since, before a collection: a few MiB at most."""


@contextmanager
def collect_less_often() -> Iterator[None]:
    """Raise the garbage collector's threshold. Neither the engine nor the reading of a log creates reference
    cycles per job, so frequent collections only rescan what is kept.

    No effect where the collector is off or its threshold is higher already.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _YOUNG), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
