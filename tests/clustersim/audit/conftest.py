"""What makes a single pass over a folder hard: blocks of few rows, and hashes that tell few jobs apart."""

from __future__ import annotations

import pytest

from clustersim.audit import history, log_pass
from clustersim.audit.rules import records
from clustersim.rundir import csv_in


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_in, "_BLOCK", 7)
    monkeypatch.setattr(records, "_BLOCK", 3)


@pytest.fixture
def equal_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (history, records, log_pass):
        monkeypatch.setattr(module, "hash", len, raising=False)
