"""Files: those of others are checked, those of ours are written whole or not at all.

| name | what |
|---|---|
| `open_table`, `Table` | a CSV or Parquet file, read row by row as untrusted text |
| `Layout` | separator, comments and header of a table |
| `open_input` | a file or pipe, opened for reading it several times |
| `read_mapping` | the mapping in a YAML or JSON file |
| `parse_yaml` | the data in YAML text |
| `construct` | a mapping as a pydantic dataclass; an error names the file and the key |
| `CONFIG` | configuration of these dataclasses: no unknown keys, no infinities |
| `Name` | field type: text that is not empty |
| `Count`, `Whole` | field types: whole numbers from 1, from 0 |
| `Positive`, `NonNegative` | field types: numbers above 0, from 0, of a magnitude that a machine can have |
| `Fraction`, `Share`, `Ratio` | field types: above 0 to 1, 0 to 1, from 1 |
| `Latency` | field type: 0 to 1 s |
| `MAX_BYTES` | the largest data file that is read |
| `replacing` | a temporary path whose file replaces the real one if all goes well |
| `write_text`, `write_bytes` | a file, written whole or not at all |
| `sha256` | hash of a file |
| `digest` | hash of plain data |
| `with_guard`, `without_guard` | text for a CSV cell that no spreadsheet evaluates as a formula, and back |
| `shown` | a user's value as an error message shows it |
| `separator_hint` | the remedy for a table whose separators are not commas |

The package lies in `itertime` because `itertime` is the lowest package, and all others need it.
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
from .tables import Layout, Table, open_input, open_table, separator_hint, shown

__all__ = [
    "CONFIG",
    "MAX_BYTES",
    "Count",
    "Fraction",
    "Latency",
    "Layout",
    "Name",
    "NonNegative",
    "Positive",
    "Ratio",
    "Share",
    "Table",
    "Whole",
    "construct",
    "digest",
    "open_input",
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
