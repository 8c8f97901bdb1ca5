"""Runs cells on dask.distributed: batches, retries, and the loss of workers and schedulers.

Without an address, the dask cluster is in this process: a scheduler and a worker with one thread per slot.
They communicate without a socket, so that no other user of the machine can reach them; cells are made in
child processes. With an address, the same batches go to the workers there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from itertime.errors import UserError, shown

from .make_cell import CellVerdict
from .worker import end_campaign, run_batch

__all__ = ["CellOutcome", "Progress", "Unfinished", "run_orders"]

BATCH_S, LARGEST_BATCH = 1.0, 64
QUEUED_PER_SLOT, QUEUED_AT_LEAST = 2, 4
MOST_KILLS = 10
"""A cell fails if its process or worker is killed more often than this."""

BUSY_AGAIN_S, LOOK_EVERY_S, CONNECT_S = 0.5, 0.5, 10.0

_NO_DASHBOARD = "127.0.0.1:0"  # dask insists on web servers; these have no pages, for this machine alone

_ADDRESS = re.compile(r"(?:(?:tcp|tls|wss?)://)?(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}", re.ASCII)

Order = Mapping[str, Any]
"""What a worker needs to make one cell; `key` identifies it."""


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
    estimate, None until a cell has been made.
    """

    total: int
    made: int
    failed: int
    running: int
    slots: int
    remaining_s: float | None


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
    with _client(workers, scheduler, len(orders), campaign) as client:
        _Dispatch(client, orders, {**batch, "campaign": campaign}, retries, on_outcome, on_progress).run()


class _Dispatch:
    """The cells that are not decided yet, and the batches in progress."""

    def __init__(
        self, client: Any, orders: Sequence[Order], batch: Mapping[str, Any], retries: int,
        on_outcome: Callable[[CellOutcome], None], on_progress: Callable[[Progress], None],
    ):  # fmt: skip
        self.client, self.batch, self.retries = client, dict(batch), retries
        self.on_outcome, self.on_progress = on_outcome, on_progress
        self.waiting: deque[Order] = deque(orders)
        self.busy: deque[tuple[float, Order]] = deque()  # made by another client: try again at that time
        self.under_way: dict[Any, list[Order]] = {}
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.attempts = dict.fromkeys((order["key"] for order in orders), 0)
        self.kills = dict.fromkeys(self.attempts, 0)
        self.total, self.made, self.failed = len(orders), 0, 0
        self.spent_s, self.timed = 0.0, 0
        self.slots, self.slots_known_at = 1, float("-inf")

    def run(self) -> None:
        try:
            while self.waiting or self.busy or self.under_way:
                try:
                    self._submit()
                except (OSError, TimeoutError, RuntimeError, asyncio.CancelledError) as error:
                    self._lost(f"the dask scheduler cannot be reached ({type(error).__name__})")
                self.on_progress(self.progress())
                self._take(LOOK_EVERY_S)
            self.on_progress(self.progress())
        finally:
            with suppress(Exception):
                self.client.cancel(list(self.under_way))

    def progress(self) -> Progress:
        remaining = self.total - self.made - self.failed
        running = min(sum(map(len, self.under_way.values())), self.slots)
        known = self.timed and self.slots
        remaining_s = remaining * self.spent_s / self.timed / self.slots if known else None
        return Progress(self.total, self.made, self.failed, running, self.slots, remaining_s)

    def _submit(self) -> None:
        now = time.monotonic()
        if now - self.slots_known_at > LOOK_EVERY_S:
            if self.client.status not in ("running", "connecting"):
                self._lost("the connection to the dask scheduler is lost")
            self.slots, self.slots_known_at = sum(self.client.nthreads().values()), now
        while self.busy and self.busy[0][0] <= now:
            self.waiting.append(self.busy.popleft()[1])
        while self.waiting and len(self.under_way) < max(QUEUED_AT_LEAST, QUEUED_PER_SLOT * self.slots):
            orders = [self.waiting.popleft() for _ in range(min(self._batch_size(), len(self.waiting)))]
            for order in orders:
                self.attempts[order["key"]] += 1
            future = self.client.submit(run_batch, orders, self.batch, pure=False, retries=0)
            self.under_way[future] = orders
            future.add_done_callback(self.ended.put)

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
                future = self.ended.get(timeout=wait_s)
                wait_s = 0.0
                orders = self.under_way.pop(future)
                for order, verdict in zip(orders, _verdicts(future, orders), strict=True):
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


def _verdicts(future: Any, orders: Sequence[Order]) -> Sequence[CellVerdict]:
    """The verdicts of a batch that has ended, with a result or without."""
    if future.status == "finished":
        with suppress(Exception):  # the result was on a worker that has been lost
            result: Sequence[CellVerdict] = future.result()
            return result
    if future.status == "error":
        reason = f"the worker was killed, or cannot run cells: {future.exception()}"
        return [{"status": "killed", "reason": reason}] * len(orders)
    return [{"status": "lost", "reason": "the dask scheduler has ended"}] * len(orders)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log lines of dask and of its event loop off stderr; a grid reports the same events in its own
    words, and an interrupt can fail a callback of theirs.
    """
    chatty = ("distributed", "tornado")
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in chatty]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _reaching(scheduler: str) -> Iterator[None]:
    try:
        yield
    except (OSError, TypeError, ValueError, TimeoutError, RuntimeError) as error:
        what = f"--scheduler {shown(scheduler)}: cannot be reached: {error!s:.200}"
        raise UserError(f"{what}; give an address such as tcp://host:8786") from None


async def _knock(scheduler: str) -> None:
    """Connect and hang up. A client whose first connection fails would wait for it again at exit."""
    from distributed import Security
    from distributed.comm import connect

    if not _ADDRESS.fullmatch(scheduler):
        raise ValueError("is no address of a scheduler")
    comm = await connect(scheduler, timeout=CONNECT_S, **Security().get_connection_args("client"))
    await comm.close()


@contextmanager
def _client(workers: int | None, scheduler: str | None, most: int, campaign: str) -> Iterator[Any]:
    """A client of the given dask cluster, or of a new one in this process."""
    import dask
    import distributed

    settings = {
        "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with _quiet(), dask.config.set(settings):
        if scheduler is not None:
            with _reaching(scheduler):
                asyncio.run(_knock(scheduler))
                client = distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False)
            with client:
                yield client
            return
        slots = min(workers or os.cpu_count() or 1, most)
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=slots, processes=False, memory_limit=0,
            dashboard_address=_NO_DASHBOARD, worker_dashboard_address=_NO_DASHBOARD,
            scheduler_kwargs={"dashboard": False},
        ) as cluster, distributed.Client(cluster, set_as_default=False) as client:  # fmt: skip
            try:
                yield client
            finally:
                end_campaign(campaign)  # so that threads that wait for a cell can end
