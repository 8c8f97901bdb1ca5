"""Tables of inputs and right values, published or worked out by hand, with their sources: `tables.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["TABLES", "table_rows"]

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def table_rows(name: str) -> list[tuple[Any, ...]]:
    """The rows of a table, as the arguments of a parametrised test."""
    return [tuple(row) for row in TABLES[name]]
