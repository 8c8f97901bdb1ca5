"""Ctrl-C and SIGTERM: a run ends between two instants, with consistent records."""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

__all__ = ["end_with_parent", "interrupting", "without_interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ECHO_S = 1.0
"""Terminals, and programs that run a command, may send the same signal twice within this time."""
_end_asked = False


@contextmanager
def interrupting(end: Callable[[], None]) -> Iterator[None]:
    """Within the block, the first SIGINT or SIGTERM calls `end`. The next one raises KeyboardInterrupt,
    unless it follows within a second.

    Has no effect outside the main thread, and on signals that are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked_s: float | None = None

    def handle(*_: object) -> None:
        nonlocal asked_s
        if asked_s is None:
            asked_s = monotonic()
            end()
        elif monotonic() > asked_s + _ECHO_S:
            raise KeyboardInterrupt

    replaced: dict[signal.Signals, Any] = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:
            replaced[number] = handler
            signal.signal(number, handle)
    if _end_asked:
        handle()
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block SIGINT until the end of the block, where the system supports it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_with_parent() -> None:
    """In a worker process: end when the parent process ends, for whatever reason.

    SIGTERM ends the current run and all later ones by `interrupting`, but not the process: a pool that loses
    one worker kills the others, even while they write.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGTERM, _note_end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends its workers

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _note_end(*_: object) -> None:
    global _end_asked
    _end_asked = True
