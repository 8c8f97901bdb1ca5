"""Processes that run each kernel while it is timed, as the other processes of a training on one machine do.

Cores of a CPU share its last cache and its memory. So a kernel of a training of several processes takes
longer than alone on the machine, and what such a training launches has to be timed in company.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from dataclasses import replace
from types import TracebackType

from itertime.errors import UserError

from .bench import Unsupported, bench_on
from .model_cases import ModelGrid
from .timing import Pace, timed

PATIENCE_S = 300.0  # until all processes are ready for the next kernel
LONGER_S = 0.05  # by which the others run on, so that none of them ends first


class Company:
    """`count` processes beside this one, which run the same kernels; without any, `meet` returns at once."""

    def __init__(self, count: int, device: str, grid: ModelGrid, pace: Pace, places: list[int]):
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(count + 1)
        self._processes = [
            context.Process(
                target=_accompany, args=(self._barrier, device, grid, _longer(pace), places), daemon=True
            )
            for _ in range(count)
        ]

    def __enter__(self) -> Company:
        for process in self._processes:
            process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._barrier.abort()
        for process in self._processes:
            process.join(PATIENCE_S)

    def meet(self) -> None:
        """Wait until all processes are about to run the next kernel. Raises UserError if one has ended."""
        try:
            self._barrier.wait(PATIENCE_S)
        except threading.BrokenBarrierError:
            raise UserError("--processes: one of the processes beside this one has ended") from None


def _longer(pace: Pace) -> Pace:
    return pace if pace.seconds is None else replace(pace, seconds=pace.seconds + LONGER_S)


def _accompany(barrier: object, device: str, grid: ModelGrid, pace: Pace, places: list[int]) -> None:
    """Run the kernels at these places of the grid, each when all processes are ready."""
    wait = barrier.wait  # type: ignore[attr-defined]
    bench, cases = bench_on(device), grid.cases()
    with contextlib.suppress(threading.BrokenBarrierError):
        for place in places:
            wait(PATIENCE_S)
            with contextlib.suppress(Unsupported, MemoryError, RuntimeError):
                timed(bench, cases[place].prepare, pace, None)
