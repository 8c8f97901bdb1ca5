"""The newer tables, and which chip stands for which."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from itertime.errors import UserError

__all__ = ["CUDNN_TABLE", "NORMS_TABLE", "like", "read_training_table", "training_tables"]

CUDNN_TABLE = "attention_fwd_bwd_cudnn"
NORMS_TABLE = "norms_fwd_bwd_cudnn"

# A chip without tables of its own -> the chip whose fractions of peak and of HBM bandwidth it takes. H100 and
# H200 hold the same die; B300 and GB300, B200 and GB200 differ in host and power limit.
STANDS_FOR = {
    "attention": {"h100": "h200", "b300": "gb300"},
    "serving": {"h100": "h200", "b300": "b200", "gb300": "gb200"},
    "norms": {"a100": "h200", "h100": "h200", "b200": "gb200", "b300": "gb300"},
    "casts": {"h100": "h200", "b300": "b200", "gb300": "gb200"},
}


def like(what: str, tables: str) -> str:
    """The chip whose table of `what` a chip uses, by the first part of its file names."""
    return STANDS_FOR[what].get(tables, tables)


def training_tables(folder: Path) -> Path:
    """The folder of the newer tables: `modern_gpus/operators` beside the folder of the older ones."""
    return folder.resolve().parent / "modern_gpus" / "operators"


def read_training_table(folder: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows of `folder/name.csv.gz`. Raises `UserError` naming the file if it is missing or lacks one of
    `columns`.
    """
    path = folder / f"{name}.csv.gz"
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read as gzip CSV: {error}") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"{path}: column {missing[0]!r} is missing; found {', '.join(table.columns)}")
    return table
