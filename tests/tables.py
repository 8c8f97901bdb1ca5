"""Tables of inputs and right values, published or worked out by hand, with their sources: `*/tables.yaml`;
and texts of programs and files that tests write: `*/texts.yaml`.
"""

from pathlib import Path
from typing import Any

import yaml

__all__ = ["TABLES", "TEXTS", "table_rows"]


def _merged(name: str) -> dict[str, Any]:
    files = sorted(Path(__file__).parent.glob(f"*/{name}"))
    documents = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)
    return {key: value for document in documents for key, value in document.items()}


TABLES = _merged("tables.yaml")
TEXTS: dict[str, str] = _merged("texts.yaml")


def table_rows(name: str) -> list[tuple[Any, ...]]:
    """The rows of a table, as the arguments of a parametrised test."""
    return [tuple(row) for row in TABLES[name]]
