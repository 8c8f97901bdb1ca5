"""What a worker does: batches of cells, one after the other, each in a child process.

A worker is a thread of this program or of a dask worker. Each has a fork server of its own. A fork server
that has died is replaced.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from clustersim.runs import code_hash

from .fork_server import main as serve
from .make_cell import CellVerdict

__all__ = ["end_campaign", "run_batch"]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_local = threading.local()
_servers: list[ForkServer] = []
_ended_campaigns: set[str] = set()


def run_batch(orders: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> list[CellVerdict]:
    """A verdict for every order, in the same order.

    `batch` has what all orders share: `store`, `base`, `time_s`, `memory_gb`, `code`, and `campaign`, which
    identifies the call that the orders are part of.
    """
    trouble = _why_unusable(batch)
    if trouble is not None:
        return [{"status": "unusable", "reason": trouble} for _ in orders]
    verdicts = _made_together(orders, batch)
    for order in orders:
        if order["key"] in verdicts:
            continue
        ended = batch["campaign"] in _ended_campaigns
        verdict = None if ended else _server().make({**batch, **order})
        verdicts[order["key"]] = verdict or {
            "status": "killed",
            "reason": "the process that starts cells was killed",
        }
    return [verdicts[order["key"]] for order in orders]


def _made_together(orders: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> dict[str, CellVerdict]:
    """The verdicts, by key, on cells that were made in one process. The others need one of their own: under
    limits, with code of the user, which may keep state, and where a cell failed or ended the process.
    """
    if batch["time_s"] is not None or batch["memory_gb"] is not None or batch["campaign"] in _ended_campaigns:
        return {}
    alike = [order for order in orders if not _has_own_code(order["inputs"]["config"])]
    if len(alike) < 2:
        return {}
    answer: Any = _server().make({**batch, "orders": alike}) or {}
    if answer.get("status") == "unusable":
        return {order["key"]: answer for order in alike}
    verdicts: dict[str, CellVerdict] = {}
    for order, verdict in zip(alike, answer.get("verdicts", ()), strict=False):
        if verdict["status"] != "failed":
            verdicts[order["key"]] = verdict
            verdict["peak_gb"] = answer["peak_gb"]
    return verdicts


def _has_own_code(config: Mapping[str, Any]) -> bool:
    """Whether the run takes a policy from a file, by itself or in the routing of a fleet."""
    return ".py:" in json.dumps([config["policy"], config.get("routing")])


def end_campaign(campaign: str) -> None:
    """Start no more cells of a campaign in this process; kill the fork servers here, with their cells."""
    _ended_campaigns.add(campaign)
    for server in list(_servers):
        server.kill()
    _servers.clear()


def _why_unusable(batch: Mapping[str, Any]) -> str | None:
    where = f"worker on {socket.gethostname()}"
    if not (Path(batch["store"]) / "grid.json").is_file():
        return f"{where} does not see {batch['store']}; use a folder that all machines share"
    if not Path(batch["base"]).is_dir():
        return f"{where} does not see {batch['base']}, the folder of the grid file; use one that all share"
    if code_hash() != batch["code"]:
        return f"{where} has another version of clustersim; install the same one and restart the worker"
    return None


class ForkServer:
    """A fork server in a process of its own."""

    def __init__(self) -> None:
        self.complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        package_root = str(Path(__file__).parents[3])
        path = os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", serve.__module__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is handled by the client
        )  # fmt: skip

    def make(self, order: Mapping[str, Any]) -> CellVerdict | None:
        """The verdict on one cell; None if the server was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except (OSError, ValueError):  # the pipe is broken, or was closed by `kill`
            line = b""
        if line.endswith(b"\n"):
            verdict: CellVerdict = json.loads(line)
            return verdict
        code = self.process.wait()
        if code > 0:  # not a signal but an error: something is wrong with the installation
            self.complaints.seek(0)
            text = self.complaints.read().decode(errors="replace")
            return {"status": "unusable", "reason": f"cells cannot be started: {text.strip()[-2000:]}"}
        return None

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.wait()


def _server() -> ForkServer:
    """The fork server of this thread, started when first needed."""
    current: ForkServer | None = getattr(_local, "server", None)
    if current is None or not current.alive():
        if current in _servers:
            _servers.remove(current)
        current = _local.server = ForkServer()
        _servers.append(current)
    return current
