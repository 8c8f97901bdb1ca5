"""How often the garbage collector looks for cycles while a run goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["rare_collection"]

_YOUNG = 50_000
"""New objects, less those freed since, before the collector looks at them: a few MiB at the most."""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Look for cycles less often. Nothing that the engine makes for a job is part of one by the time that the
    job leaves, so what is found is the policy's; records that wait to be written are looked at in vain.

    Where the collector is off, or looks even less often, nothing changes.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _YOUNG), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
