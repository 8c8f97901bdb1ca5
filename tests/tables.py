"""Tables of inputs and right values, published or worked out by hand, with their sources: `*/tables.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["TABLES", "table_rows"]

TABLES: dict[str, Any] = {
    name: rows
    for file in sorted(Path(__file__).parent.glob("*/tables.yaml"))
    for name, rows in yaml.safe_load(file.read_text(encoding="utf-8")).items()
}


def table_rows(name: str) -> list[tuple[Any, ...]]:
    """The rows of a table, as the arguments of a parametrised test."""
    return [tuple(row) for row in TABLES[name]]
