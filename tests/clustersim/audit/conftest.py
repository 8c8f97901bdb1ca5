"""The command, and what makes a single pass hard: blocks of few rows, and hashes that tell few jobs apart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.audit import history, log_pass
from clustersim.audit.rules import records
from clustersim.cli import main
from clustersim.rundir import csv_in


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The code and the output of `clustersim check`."""

    def checked(folder: Path, *options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["check", str(folder), *options])
        return code, *capsys.readouterr()

    return checked


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_in, "_BLOCK", 7)
    monkeypatch.setattr(records, "_BLOCK", 3)


@pytest.fixture
def equal_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (history, records, log_pass):
        monkeypatch.setattr(module, "hash", len, raising=False)
