"""Workers of a running dask cluster, by the address of its scheduler. Needs the extra `dask`."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from itertime.errors import UserError, shown

from .make_cell import CellVerdict
from .pool import Order, PoolLost, Verdicts, WorkerPool
from .worker import run_batch

__all__ = ["CONNECT_S", "dask_pool"]

CONNECT_S = 10.0

_ADDRESS = re.compile(r"(?:(?:tcp|tls|wss?)://)?(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}", re.ASCII)


@contextmanager
def dask_pool(scheduler: str) -> Iterator[WorkerPool]:
    """The workers of the scheduler at an address. UserError if it cannot be reached, or dask is missing."""
    try:
        import dask
        import distributed
    except ImportError:
        remedy = "pip install 'clustersim[dask]'"
        raise UserError(f"--scheduler needs dask.distributed, which is not installed; {remedy}") from None

    with _quiet(), dask.config.set({"distributed.comm.timeouts.connect": f"{CONNECT_S}s"}):
        with _reaching(scheduler):
            with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
                thread.submit(asyncio.run, _knock(scheduler)).result()
            client = distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False)
        with client:
            pool = _DaskPool(client)
            try:
                yield pool
            finally:
                pool.cancel()


class _DaskPool:
    def __init__(self, client: Any):
        self._client = client
        self._under_way: set[Any] = set()
        self.dashboard: str | None = _dashboard_of(client)

    def slots(self) -> int:
        if self._client.status not in ("running", "connecting"):
            raise PoolLost("the connection to the dask scheduler is lost")
        with _asking():
            return sum(self._client.nthreads().values())

    def submit(
        self, orders: Sequence[Order], batch: Mapping[str, Any], on_end: Callable[[Verdicts], None]
    ) -> None:
        def ended(future: Any) -> None:
            self._under_way.discard(future)
            on_end(lambda: _verdicts(future, orders))

        with _asking():
            future = self._client.submit(run_batch, orders, batch, pure=False, retries=0)
            self._under_way.add(future)  # dask forgets a future that is not held
            future.add_done_callback(ended)

    def cancel(self) -> None:
        with suppress(Exception):
            self._client.cancel(list(self._under_way))


def _dashboard_of(client: Any) -> str | None:
    """The address of dask's page, as its scheduler states it; None where it serves none."""
    with suppress(Exception):  # the scheduler runs without a page, or does not say
        if "dashboard" in client.scheduler_info().get("services", {}):
            return str(client.dashboard_link)
    return None


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError, RuntimeError, asyncio.CancelledError) as error:
        raise PoolLost(f"the dask scheduler cannot be reached ({type(error).__name__})") from None


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
    level_before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in level_before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _reaching(scheduler: str) -> Iterator[None]:
    try:
        yield
    except (OSError, TypeError, ValueError, TimeoutError, RuntimeError) as error:
        problem = f"--scheduler {shown(scheduler)}: cannot be reached: {error!s:.200}"
        raise UserError(f"{problem}; give an address such as tcp://host:8786") from None


async def _knock(scheduler: str) -> None:
    """Connect and hang up. A client whose first connection fails would wait for it again at exit."""
    from distributed import Security
    from distributed.comm import connect

    if not _ADDRESS.fullmatch(scheduler):
        raise ValueError("is no address of a scheduler")
    comm = await connect(scheduler, timeout=CONNECT_S, **Security().get_connection_args("client"))
    await comm.close()
