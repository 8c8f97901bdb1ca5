"""A valid iteration table of one row, as fixtures that the conftest files of tests of such tables import."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest


def table_of(row: Mapping[str, Any], folder: Path) -> Path:
    """A table `runs.csv` of one row in a folder, which has no other columns."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return path


@pytest.fixture
def table_row() -> dict[str, str]:
    """One run, column by column, as text."""
    names = (
        "id site gpu gpus gpus_per_node node_nic_gbps layers hidden heads kv_heads ffn_hidden gated_mlp "
        "vocab seq_len attention tp pp dp interleave micro_batch global_batch zero_stage zero_group "
        "recompute sequence_parallel grad_overlap iteration_s memory_gb source note"
    )
    values = (
        "run-1;here;A100-SXM-80GB;64;8;800;30;3072;32;32;12288;False;51200;2048;core;8;1;8;1;4;512;0;;full;"
        "False;False;5.618;;a, b;"
    )
    return dict(zip(names.split(), values.split(";"), strict=True))


@pytest.fixture
def write_table(tmp_path: Path, table_row: dict[str, str]) -> Callable[..., Path]:
    """Write rows given as changes of the valid one; without changes, the valid row alone."""

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
