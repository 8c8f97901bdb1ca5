"""Files that others wrote, checked, and files of ours, written whole or not at all.

| name | what |
|---|---|
| `digest` | SHA-256 of plain data |
| `replacing` | Yield a temporary path beside `path` |
| `sha256` | Hex digest of a file's bytes |
| `write_bytes` | Write a file atomically |
| `write_text` | Write a UTF-8 file atomically |
| `CONFIG` |  |
| `Count` |  |
| `Fraction` |  |
| `Latency` |  |
| `MAX_BYTES` |  |
| `Name` |  |
| `NonNegative` |  |
| `Positive` |  |
| `Ratio` |  |
| `Share` |  |
| `Whole` |  |
| `construct` | `values` as an instance of the pydantic dataclass `kind` |
| `parse_yaml` | The data in YAML text |
| `read_mapping` | The mapping in a YAML file, or in a JSON file (by the suffix `.json`) |
| `with_guard` | The cell to write for a text |
| `without_guard` | The text that a cell stands for |
| `Table` | An opened table |
| `open_table` | Open a CSV file (plain or gzip, by content) or a Parquet file (by content) row by row |
| `separator_hint` | The remedy for a header that is a single column because its separators are not commas |
| `shown` | A user's value for a message |
"""

from .files import digest, replacing, sha256, write_bytes, write_text
from .mappings import (
    CONFIG,
    MAX_BYTES,
    Count,
    Fraction,
    Latency,
    Name,
    NonNegative,
    Positive,
    Ratio,
    Share,
    Whole,
    construct,
    parse_yaml,
    read_mapping,
)
from .spreadsheets import with_guard, without_guard
from .tables import Table, open_table, separator_hint, shown

__all__ = [
    "CONFIG",
    "MAX_BYTES",
    "Count",
    "Fraction",
    "Latency",
    "Name",
    "NonNegative",
    "Positive",
    "Ratio",
    "Share",
    "Table",
    "Whole",
    "construct",
    "digest",
    "open_table",
    "parse_yaml",
    "read_mapping",
    "replacing",
    "separator_hint",
    "sha256",
    "shown",
    "with_guard",
    "without_guard",
    "write_bytes",
    "write_text",
]
