"""Kernels are compiled where that pays, survive what can go wrong, and never change a result."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clustersim import jit
from clustersim.jit import Kernels
from tests.places import ROOT

SOURCE = """
from typing import Any, NamedTuple


class Row(NamedTuple):
    values: Any
    counts: Any


def share(value, count):
    return value / count if count else 0.0


def total(row, scale):
    result = 0.0
    for i in range(len(row.values)):
        result += scale * share(row.values[i], row.counts[i])
    return result
"""
RUN = """
import sys, numpy as np
from clustersim.jit import Kernels, load_ahead
sys.path.insert(0, sys.argv[1])
import small
kernels = Kernels("small")
if "ahead" in sys.argv:
    load_ahead()
row = small.Row(np.array([1.0, 0.7]), np.array([3, 0]))
for _ in range(2):
    kernels.call(small.total, row, 0.1)
    if kernels.worth_compiling():
        kernels.compile_for({small.total: (row, 0.1)})
print(kernels.compiled, kernels.call(small.total, row, 0.1))
"""


def run(folder: Path, mode: str = "always", *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), jit.VARIABLE: mode}
    command = [sys.executable, "-c", RUN, str(folder), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.strip() + err.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "small.py").write_text(SOURCE)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("small", None)


def machine_code(folder: Path) -> Path:
    (place,) = (path for path in (folder / "__pycache__").iterdir() if path.is_dir())
    return place


def test_one_process_compiles_and_what_is_damaged_is_made_anew(folder: Path) -> None:
    answer = f"True {0.0 + 0.1 * (1.0 / 3)}"
    killed = run(folder)
    while not (folder / "__pycache__").exists() or not any((folder / "__pycache__").glob("small-*-*/")):
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (machine_code(folder) / "complete").exists()
    both = [run(folder), run(folder)]
    assert answer in {outcome(process) for process in both}
    files = sorted(path for path in machine_code(folder).rglob("*.nb*"))
    stamps = [path.stat().st_mtime_ns for path in files]
    assert outcome(run(folder, mode="")) == answer.replace("True", "False")  # too short for a load
    assert outcome(run(folder, "", "ahead")) == answer
    assert [path.stat().st_mtime_ns for path in files] == stamps, "loaded, not compiled"
    for path in files:
        path.write_bytes(b"\x80garbage" + path.read_bytes()[9:])
    assert outcome(run(folder)) == answer


def test_where_nothing_can_be_written_the_plain_functions_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "__pycache__").write_text("no folder")  # as for a folder without permission, also for root
    monkeypatch.setenv(jit.VARIABLE, "always")
    small = importlib.import_module("small")
    for _ in range(2):
        kernels = Kernels("small")
        arguments = small.Row([1.0, 0.7], [3, 0]), 0.1
        assert kernels.worth_compiling()
        with caplog.at_level(logging.WARNING, "clustersim"):
            assert not kernels.compile_for({small.total: arguments})
        assert not kernels.worth_compiling()
        assert kernels.call(small.total, *arguments) == 0.1 / 3
    assert len(caplog.records) == 1
    assert "runs uncompiled" in caplog.text


def test_it_pays_when_plain_functions_took_as_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jit.VARIABLE, raising=False)
    small = importlib.import_module("small")
    kernels = Kernels("small")
    assert not kernels.worth_compiling()
    kernels.spent_s = jit.LOAD_S
    assert kernels.worth_compiling()
    assert not kernels.compile_for({small.total: (small.Row([1.0], [1]), 0.1)}), "no machine code to load"
    assert not kernels.worth_compiling(), "before as much time as compilation takes"
    kernels.spent_s = jit.COMPILE_S
    assert kernels.worth_compiling()
    with jit.uncompiled():
        fresh = Kernels("small")
        fresh.spent_s = 1e9
        assert fresh.worth_compiling()
        assert not fresh.compile_for({small.total: (small.Row([1.0], [1]), 0.1)})
        assert not fresh.worth_compiling()
    assert jit.VARIABLE not in os.environ
