"""Files: those of others are checked, those of ours are written whole or not at all.

`itertime.io.door` opens every file that is read, and says which links and pipes are followed.

| name | what |
|---|---|
| `open_table`, `Table` | a CSV or Parquet file, read row by row as untrusted text |
| `has_parquet`, `check_parquet` | whether Parquet can be read and written; the error where it cannot |
| `TextLayout` | separator, comments and header of a table |
| `open_input` | a file or pipe, opened for reading it several times |
| `open_regular`, `read_bytes` | a regular file, opened at once or not at all; its content |
| `open_own` | a file that only the program writes, as a lock or a journal |
| `unpacked`, `text_lines` | the content of a file that may be gzip; lines of text, both within limits |
| `DAMAGED_GZIP`, `damaged_gzip` | what reading a damaged gzip file raises, and the error for it |
| `read_mapping` | the mapping in a YAML or JSON file |
| `names_file` | whether a text is the path of such a file, rather than a shipped name |
| `parse_yaml`, `yaml_nodes` | the data in YAML text, its nodes; what aliases stand for has a limit |
| `YamlError` | why a text is not such YAML, and the line |
| `read_text` | the text of a regular UTF-8 file of limited size |
| `not_utf8` | the error of a file that is not UTF-8, with line and byte |
| `construct` | a mapping as a pydantic dataclass; an error names the file and the key |
| `key_values` | the keys and values of a text KEY=VALUE,KEY=VALUE |
| `described`, `optional` | a field of a file: its meaning and unit; one that has a default |
| `keys_of`, `Key` | the keys of a file, from the fields |
| `CONFIG` | configuration of these dataclasses: no unknown keys, no infinities |
| `Name` | field type: text that is not empty |
| `Count`, `Whole` | field types: whole numbers from 1, from 0 |
| `Positive`, `NonNegative` | field types: numbers above 0, from 0, of a magnitude that a machine can have |
| `Fraction`, `Share`, `Ratio` | field types: above 0 to 1, 0 to 1, from 1 |
| `Latency` | field type: 0 to 1 s |
| `GpuPower`, `GPU_W` | field type: the power limit of a GPU in watts; the least and the most |
| `MAX_BYTES` | the largest data file that is read |
| `replacing` | a temporary path whose file replaces the real one if all goes well |
| `temporary_beside` | a new file with an unpredictable name in the folder of another |
| `write_text`, `write_bytes` | a file, written whole or not at all |
| `write_texts` | several files, written all or none |
| `check_absent` | that a command replaces no file unasked |
| `sha256` | hash of a file |
| `file_state` | what differs where a file has changed |
| `digest` | hash of plain data |
| `with_guard`, `without_guard` | text for a CSV cell that no spreadsheet evaluates as a formula, and back |
| `shown`, `quoted` | a user's value as an error message shows it, without and with quotes; never long |
| `check_repeated` | an error for column names that appear twice |
| `separator_hint` | the remedy for a table whose separators are not commas |

The package lies in `itertime` because `itertime` is the lowest package, and all others need it.
"""

from itertime.errors import quoted, shown

from .door import DAMAGED_GZIP, damaged_gzip, open_own, open_regular, read_bytes, text_lines, unpacked
from .files import (
    check_absent,
    digest,
    file_state,
    not_utf8,
    read_text,
    replacing,
    sha256,
    temporary_beside,
    write_bytes,
    write_text,
    write_texts,
)
from .mappings import (
    CONFIG,
    GPU_W,
    MAX_BYTES,
    Count,
    Fraction,
    GpuPower,
    Latency,
    Name,
    NonNegative,
    Positive,
    Ratio,
    Share,
    Whole,
    construct,
    key_values,
    names_file,
    read_mapping,
)
from .parquet import check_parquet, has_parquet
from .schema import Key, described, keys_of, optional
from .spreadsheets import with_guard, without_guard
from .tables import Table, TextLayout, check_repeated, open_input, open_table, separator_hint
from .yaml_text import YamlError, parse_yaml, yaml_nodes

__all__ = [
    "CONFIG",
    "DAMAGED_GZIP",
    "GPU_W",
    "MAX_BYTES",
    "Count",
    "Fraction",
    "GpuPower",
    "Key",
    "Latency",
    "Name",
    "NonNegative",
    "Positive",
    "Ratio",
    "Share",
    "Table",
    "TextLayout",
    "Whole",
    "YamlError",
    "check_absent",
    "check_parquet",
    "check_repeated",
    "construct",
    "damaged_gzip",
    "described",
    "digest",
    "file_state",
    "has_parquet",
    "key_values",
    "keys_of",
    "names_file",
    "not_utf8",
    "open_input",
    "open_own",
    "open_regular",
    "open_table",
    "optional",
    "parse_yaml",
    "quoted",
    "read_bytes",
    "read_mapping",
    "read_text",
    "replacing",
    "separator_hint",
    "sha256",
    "shown",
    "temporary_beside",
    "text_lines",
    "unpacked",
    "with_guard",
    "without_guard",
    "write_bytes",
    "write_text",
    "write_texts",
    "yaml_nodes",
]
