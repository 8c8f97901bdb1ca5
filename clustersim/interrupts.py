"""Ctrl-C and requests to end: a run ends between two instants, and its records stay whole."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

__all__ = ["end_with_parent", "interrupting", "without_interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ECHO_S = 1.0
"""Within so many seconds terminals, and programs that a command runs under, send the same request twice."""
_end_asked = False


@contextmanager
def interrupting(end: Callable[[], None]) -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM calls `end`; another one raises KeyboardInterrupt,
    unless it comes at once after the first.

    Where signals cannot be handled (not in the main thread), or are ignored, nothing changes.
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

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    caught = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, handle)
    if _end_asked:
        handle()
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block, where the system can do that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """In a worker process: end when the parent does, however it ends, instead of waiting for it for ever.

    SIGTERM ends what runs, and what would run next, by `interrupting`, but not the process: a pool that loses
    one worker kills the others, whatever they are writing.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGTERM, _note_end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its workers

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _note_end(*_: object) -> None:
    global _end_asked
    _end_asked = True
