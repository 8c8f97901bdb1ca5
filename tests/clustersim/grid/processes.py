"""Grids in processes of their own, and what their folders hold."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.places import ROOT

__all__ = ["contents", "dask_cluster", "descendants", "made", "spawn", "until"]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a results folder but the log of times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "timings.csv"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def made(folder: Path) -> int:
    """The number of whole cells."""
    return len(list(folder.glob("cells/[0-9a-f]*")))


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def spawn(here: Path, *words: object, limit_bytes: int | None = None) -> subprocess.Popen[str]:
    """`clustersim grid g.yaml` with these words; `limit_bytes`: of a file that it writes."""

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "clustersim", "grid", "g.yaml", *map(str, words)], cwd=here, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, preexec_fn=limit,
        start_new_session=True,
    )  # fmt: skip


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """What a process has started, and what that has."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


@contextmanager
def dask_cluster(here: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """The address of a dask scheduler, and its process before those of two workers."""
    file = here / "scheduler.json"
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
        *[["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"]] * 2,
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command], env=ENVIRONMENT, cwd=here, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for command in commands
    ]  # fmt: skip
    try:
        until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        yield file.read_text().partition('"address": "')[2].partition('"')[0], processes
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
