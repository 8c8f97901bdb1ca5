"""An iteration table of one good row, for the tests of everything that reads such tables."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest


@pytest.fixture
def table_row() -> dict[str, str]:
    """One run, column by column, as text."""
    return {
        "id": "run-1", "site": "here", "gpu": "A100-SXM-80GB", "gpus": "64", "gpus_per_node": "8", "node_nic_gbps": "800",
        "layers": "30", "hidden": "3072", "heads": "32", "kv_heads": "32", "ffn_hidden": "12288", "gated_mlp": "False",
        "vocab": "51200", "seq_len": "2048", "attention": "core", "tp": "8", "pp": "1", "dp": "8", "interleave": "1",
        "micro_batch": "4", "global_batch": "512", "zero_stage": "0", "zero_group": "", "recompute": "full",
        "sequence_parallel": "False", "grad_overlap": "False", "iteration_s": "5.618", "memory_gb": "", "source": "a, b",
        "note": "",
    }  # fmt: skip


@pytest.fixture
def write_table(tmp_path: Path, table_row: dict[str, str]) -> Callable[..., Path]:
    """Writes rows given as changes to the good one; without any, just the good one."""

    def write(*changes: dict[str, str], columns: Sequence[str] = (), name: str = "t.csv") -> Path:
        header = list(columns or table_row)
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            for change in changes:
                row = table_row | change
                writer.writerow([row.get(column, "") for column in header])
        return tmp_path / name

    return write
