"""Decides every cell: hands batches to a pool of workers, tries again, gives up, and reports progress."""

from __future__ import annotations

import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from itertime.errors import UserError

from .dask_pool import dask_pool
from .local_pool import local_pool
from .make_cell import CellVerdict
from .pool import Order, PoolLost, Verdicts, WorkerPool

__all__ = ["CellOutcome", "Progress", "Unfinished", "run_orders"]

BATCH_S, LARGEST_BATCH = 1.0, 256
QUEUED_PER_SLOT, QUEUED_AT_LEAST = 2, 4
MOST_KILLS = 10
"""A cell fails if its process or worker is killed more often than this."""

BUSY_AGAIN_S, LOOK_EVERY_S = 0.5, 0.5


class Unfinished(UserError):
    """Some cells were not made: they failed, or nothing more could be run or written."""

    exit_code = 5


@dataclass(frozen=True)
class CellOutcome:
    """The last verdict on one order (made, present or failed), and the number of attempts."""

    order: Order
    verdict: CellVerdict
    attempts: int


@dataclass(frozen=True)
class Progress:
    """How many cells of a grid are made, failed, or running.

    `slots`: cells that can be made at the same time, 0 while a scheduler has no workers. `remaining_s` is an
    estimate, None until a cell has been made. `dashboard`: the address of dask's page, if
    it has one.
    """

    total: int
    made: int
    failed: int
    running: int
    slots: int
    remaining_s: float | None
    dashboard: str | None = None


def run_orders(
    orders: Sequence[Order],
    batch: Mapping[str, Any],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 1,
    on_outcome: Callable[[CellOutcome], None],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> None:
    """Make all cells. `on_outcome` is called in this process, once for each order, when it is decided.

    `workers`: cells made at the same time on this machine (default: one per processor). `scheduler`: the
    address of a running dask scheduler instead. Raises Unfinished if the disk is full or the scheduler is
    lost; finished cells stay in the store.
    """
    if not orders:
        return
    campaign = uuid.uuid4().hex
    context = local_pool(workers, len(orders), campaign) if scheduler is None else dask_pool(scheduler)
    with context as pool:
        _Dispatch(pool, orders, {**batch, "campaign": campaign}, retries, on_outcome, on_progress).run()


class _Dispatch:
    """The cells that are not decided yet, and the batches in progress."""

    def __init__(
        self, pool: WorkerPool, orders: Sequence[Order], batch: Mapping[str, Any], retries: int,
        on_outcome: Callable[[CellOutcome], None], on_progress: Callable[[Progress], None],
    ):  # fmt: skip
        self.pool, self.batch, self.retries = pool, dict(batch), retries
        self.on_outcome, self.on_progress = on_outcome, on_progress
        self.waiting: deque[Order] = deque(orders)
        self.busy: deque[tuple[float, Order]] = deque()  # made by another client: try again at that time
        self.under_way: dict[int, list[Order]] = {}  # by the number of the batch
        self.batches = 0
        self.ended: queue.SimpleQueue[tuple[int, Verdicts]] = queue.SimpleQueue()
        self.attempts = dict.fromkeys((order["key"] for order in orders), 0)
        self.kills = dict.fromkeys(self.attempts, 0)
        self.total, self.made, self.failed = len(orders), 0, 0
        self.spent_s, self.timed = 0.0, 0
        self.slots, self.slots_known_at = 1, float("-inf")

    def run(self) -> None:
        while self.waiting or self.busy or self.under_way:
            try:
                self._submit()
            except PoolLost as error:
                self._lost(str(error))
            self.on_progress(self.progress())
            self._take(LOOK_EVERY_S)
        self.on_progress(self.progress())

    def progress(self) -> Progress:
        remaining = self.total - self.made - self.failed
        running = min(sum(map(len, self.under_way.values())), self.slots)
        is_timed = self.timed and self.slots
        remaining_s = remaining * self.spent_s / self.timed / self.slots if is_timed else None
        dashboard = self.pool.dashboard
        return Progress(self.total, self.made, self.failed, running, self.slots, remaining_s, dashboard)

    def _submit(self) -> None:
        now = time.monotonic()
        if now - self.slots_known_at > LOOK_EVERY_S:
            self.slots, self.slots_known_at = self.pool.slots(), now
        while self.busy and self.busy[0][0] <= now:
            self.waiting.append(self.busy.popleft()[1])
        while self.waiting and len(self.under_way) < max(QUEUED_AT_LEAST, QUEUED_PER_SLOT * self.slots):
            orders = [self.waiting.popleft() for _ in range(min(self._batch_size(), len(self.waiting)))]
            for order in orders:
                self.attempts[order["key"]] += 1
            self.batches += 1
            number = self.batches
            self.under_way[number] = orders
            self.pool.submit(orders, self.batch, partial(self._ended, number))

    def _ended(self, number: int, verdicts: Verdicts) -> None:
        self.ended.put((number, verdicts))

    def _batch_size(self) -> int:
        """Cells that take about a second together; fewer near the end, so that all slots end together."""
        if not self.timed:
            return 1
        by_time = int(BATCH_S * self.timed / max(self.spent_s, 1e-9))
        fair = len(self.waiting) // (QUEUED_PER_SLOT * max(1, self.slots))
        return max(1, min(by_time, fair, LARGEST_BATCH))

    def _take(self, wait_s: float) -> None:
        """Judge the cells of batches that have ended; wait `wait_s` for the first of them."""
        with suppress(queue.Empty):
            while True:
                number, verdicts = self.ended.get(timeout=wait_s)
                wait_s = 0.0
                orders = self.under_way.pop(number)
                for order, verdict in zip(orders, verdicts(), strict=True):
                    self._judge(order, verdict)

    def _judge(self, order: Order, verdict: CellVerdict) -> None:
        key, status = order["key"], verdict["status"]
        if "wall_s" in verdict and status == "made":
            self.spent_s, self.timed = self.spent_s + verdict["wall_s"], self.timed + 1
        if status in ("made", "present"):
            self.made += 1
            self.on_outcome(CellOutcome(order, verdict, self.attempts[key]))
        elif status == "busy":
            self.attempts[key] -= 1
            self.busy.append((time.monotonic() + BUSY_AGAIN_S, order))
        elif status in ("unwritable", "unusable", "lost"):
            self._lost(verdict["reason"])
        elif self._may_try_again(key, status):
            self.waiting.append(order)
        else:
            self.failed += 1
            self.on_outcome(CellOutcome(order, {**verdict, "status": "failed"}, self.attempts[key]))

    def _may_try_again(self, key: str, status: str) -> bool:
        if status == "killed":
            self.kills[key] += 1
            return self.kills[key] <= MOST_KILLS
        return self.attempts[key] - self.kills[key] <= self.retries

    def _lost(self, reason: str) -> None:
        remaining = self.total - self.made - self.failed
        remedy = "finished cells are kept; correct the cause and run the grid again"
        raise Unfinished(f"{reason}; {remaining} of {self.total} cells are left; {remedy}")
