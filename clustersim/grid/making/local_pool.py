"""Workers on this machine: one thread per slot, each with a fork server. Nothing listens on a port."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from .make_cell import CellVerdict
from .pool import Order, Verdicts, WorkerPool
from .worker import end_campaign, run_batch

__all__ = ["local_pool"]


@contextmanager
def local_pool(workers: int | None, worker_limit: int, campaign: str) -> Iterator[WorkerPool]:
    """A pool of `workers` threads (default: one per processor), at most `worker_limit`."""
    slots = min(workers or os.cpu_count() or 1, worker_limit)
    threads = ThreadPoolExecutor(slots, thread_name_prefix="grid")
    try:
        yield _LocalPool(threads, slots)
    finally:
        end_campaign(campaign)  # so that threads that wait for a cell can end
        threads.shutdown(cancel_futures=True)


class _LocalPool:
    def __init__(self, threads: ThreadPoolExecutor, slots: int):
        self._threads, self._slots = threads, slots
        self.dashboard: str | None = None

    def slots(self) -> int:
        return self._slots

    def submit(
        self, orders: Sequence[Order], batch: Mapping[str, Any], on_end: Callable[[Verdicts], None]
    ) -> None:
        def ended(future: Future[list[CellVerdict]]) -> None:
            if not future.cancelled():
                on_end(lambda: _verdicts(future, orders))

        self._threads.submit(run_batch, orders, batch).add_done_callback(ended)


def _verdicts(future: Future[list[CellVerdict]], orders: Sequence[Order]) -> Sequence[CellVerdict]:
    try:
        return future.result()
    except OSError as error:
        return [{"status": "unusable", "reason": f"cells cannot be started: {error}"}] * len(orders)
