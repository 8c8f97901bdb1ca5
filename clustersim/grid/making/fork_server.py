"""A program that forks a fresh process for every cell or batch of cells, and kills those that exceed a limit.

Orders are lines of JSON on stdin, verdicts lines of JSON on stdout, one at a time. The server has no threads,
and has imported everything, so a cell starts in milliseconds. No cell leaves anything behind for the next
one: results do not depend on which cells ran before.

Limits: `time_s` of wall-clock time, and `memory_gb` (1e9 bytes) of resident memory, sampled ten times a
second. A cell that exceeds one is asked for its stack and killed, with all processes that it started. When
the server's stdin closes, because the process that started it has ended, the server and its cell end too.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NoReturn

from clustersim.grid.store import Store
from clustersim.runs import run
from clustersim.scheduler import Proposal, Scheduler, State
from traces.synthetic import Recipe, generate

from .make_cell import CellVerdict, make_cell, make_cells

__all__ = ["main"]

LOOK_EVERY_S, LAST_WORDS_S, KEPT_OUTPUT = 0.1, 0.3, 8_000
OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""Signals that a cell does not send to itself: it was killed from outside, or for lack of memory."""


def main() -> None:
    """Serve orders until stdin closes."""
    verdicts = os.dup(1)
    os.dup2(2, 1)  # so that nothing that is printed is read as a verdict
    _warm_up()
    gc.collect()
    gc.freeze()  # collections in children do not touch the pages that they share
    waiting = b""
    while True:
        line, newline, waiting = waiting.partition(b"\n")
        if not newline:
            data = os.read(0, 1 << 20)
            if not data:
                return
            waiting = line + data
            continue
        if b'"preset": "' in line:
            import scipy.special  # noqa: F401 - what a preset's arrivals need, once for all cells
        order = json.loads(line)
        verdict = Child(order, _store_of(order), verdicts).watch()
        os.write(verdicts, json.dumps(verdict).encode() + b"\n")


def _warm_up() -> None:
    """Import and cache what every cell needs, by a small run of a generated trace."""
    run(generate(Recipe(3))[0], _InOrder)


_stores: dict[str, Store] = {}
"""By campaign, of the last one alone: the store, which knows the cells that became rows during it, here or by
another client.
"""


def _store_of(order: Mapping[str, Any]) -> Store:
    campaign = order["campaign"]
    if campaign not in _stores:
        _stores.clear()
        _stores[campaign] = Store(order["store"])
        _stores[campaign].rows.pass_over()  # the client has read these
    if order.get("keep") == "rows":
        _stores[campaign].rows.refresh(keep_values=False)
    return _stores[campaign]


class _InOrder(Scheduler):
    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(lambda job: job.order)
        return proposal


class Child:
    """A forked process that makes one cell."""

    def __init__(self, order: Mapping[str, Any], store: Store, verdicts: int):
        self.order, self.began = order, monotonic()
        result, result_end = os.pipe()
        output, output_end = os.pipe()
        life, life_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for file in (result, output, life_end, verdicts):
                os.close(file)
            _be_child(order, store, result_end, output_end, life)
        for file in (result_end, output_end, life):
            os.close(file)
        self.result, self.output, self.life = result, output, life_end
        self.texts = {result: b"", output: b""}

    def watch(self) -> CellVerdict:
        """Wait for the verdict, within the limits."""
        beyond = None
        while beyond is None and not self._listen(LOOK_EVERY_S):
            beyond = self._beyond_limit()
        if beyond is not None:
            _signal(self.pid, signal.SIGUSR1)  # writes its stack to its output
            until = monotonic() + LAST_WORDS_S
            while monotonic() < until and not self._listen(until - monotonic()):
                pass
        _signal_all(self.pid, signal.SIGKILL)  # also processes that it started and left running
        _, status, usage = os.wait4(self.pid, 0)
        self._listen(0)
        for file in (self.result, self.output, self.life):
            os.close(file)
        verdict = self._verdict(beyond, os.waitstatus_to_exitcode(status))
        verdict["wall_s"] = monotonic() - self.began
        verdict["cpu_s"] = usage.ru_utime + usage.ru_stime
        verdict["peak_gb"] = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
        return verdict

    def _listen(self, wait_s: float) -> bool:
        """Read what the child has written; whether its verdict is complete, or the child has ended."""
        ready, _, _ = select.select([0, *self.texts], [], [], max(0.0, wait_s))
        if 0 in ready:  # no second order is ever sent: the owner has ended
            _signal_all(self.pid, signal.SIGKILL)
            os._exit(0)
        done = False
        for file in ready:
            data = os.read(file, 1 << 16)
            self.texts[file] += data
            done |= file == self.result and not data
        self.texts[self.output] = self.texts[self.output][-KEPT_OUTPUT:]
        return done

    def _beyond_limit(self) -> str | None:
        limit_s, limit_gb = self.order.get("time_s"), self.order.get("memory_gb")
        if limit_s is not None and monotonic() - self.began > limit_s:
            return f"took longer than limits.time_s = {limit_s:g} s"
        if limit_gb is not None and (resident_bytes := _resident_bytes(self.pid)) > limit_gb * 1e9:
            return f"used {resident_bytes / 1e9:.3g} GB of memory, more than limits.memory_gb = {limit_gb:g}"
        return None

    def _verdict(self, beyond: str | None, code: int) -> CellVerdict:
        output = self.texts[self.output].decode(errors="replace")
        try:
            verdict: CellVerdict = json.loads(self.texts[self.result])
        except ValueError:
            if beyond is not None:
                return {"status": "failed", "reason": beyond, "traceback": output}
            by_signal = -code if code < 0 else 0
            status = "killed" if by_signal in OUTSIDE else "failed"
            how = f"by signal {signal.Signals(by_signal).name}" if by_signal else f"with exit code {code}"
            return {"status": status, "reason": f"its process ended {how}", "traceback": output}
        if output and verdict["status"] == "failed":
            verdict["output"] = output
        return verdict


def _be_child(order: Mapping[str, Any], store: Store, result: int, output: int, life: int) -> NoReturn:
    """Make the cell, write the verdict, and end without running any more code of the server."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    faulthandler.enable(file=2, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
    threading.Thread(target=_end_with_server, args=(life,), daemon=True).start()
    try:
        verdict: Any
        verdict = {"verdicts": make_cells(order, store)} if "orders" in order else make_cell(order, store)
        text = json.dumps(verdict).encode()
        sys.stdout.flush()
        with open(result, "wb") as file:
            file.write(text)
    finally:
        os._exit(0)


def _end_with_server(life: int) -> None:
    os.read(life, 1)  # returns when the other end closes
    os._exit(1)


def _resident_bytes(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_all(pid: int, number: int) -> None:
    """Signal a child's whole process group, and the child itself, which may not have made the group yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, number)


if __name__ == "__main__":
    main()
