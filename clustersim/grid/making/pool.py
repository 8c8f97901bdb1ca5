"""What `dispatch` asks of a pool of workers, on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .make_cell import CellVerdict

__all__ = ["Order", "PoolLost", "Verdicts", "WorkerPool"]

Order = Mapping[str, Any]
"""What a worker needs to make one cell; `key` identifies it."""

Verdicts = Callable[[], Sequence[CellVerdict]]
"""Hands over the verdicts on a batch that has ended, one for each order; never raises."""


class PoolLost(Exception):
    """The pool takes no more batches; the text says why."""


class WorkerPool(Protocol):
    """Workers that make batches of cells. Left as a context manager, a pool gives up what is under way."""

    @property
    def dashboard(self) -> str | None:
        """The address of a page that shows the workers, if there is one."""
        ...

    def slots(self) -> int:
        """How many cells can be made at the same time; 0 while there is no worker. PoolLost."""
        ...

    def submit(
        self, orders: Sequence[Order], batch: Mapping[str, Any], on_end: Callable[[Verdicts], None]
    ) -> None:
        """Make the cells of `orders` on some worker. `on_end` is called once, in any thread. PoolLost."""
        ...
