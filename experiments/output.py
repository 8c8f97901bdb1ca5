"""Where the programs of experiments write: a folder of results, and pictures that need matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from itertime.errors import UserError
from itertime.io import read_text, replacing, write_text

MOST_BYTES = 1_000_000  # of a page


def make_folder(folder: Path) -> None:
    """Makes the folder of the option --out. Raises UserError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={folder}: {error.strerror}") from None


def draw_if_possible(path: Path, draw: Callable[[Path], None]) -> None:
    """The picture that `draw` writes to a path, whole or not at all; without matplotlib a note on stderr."""
    if find_spec("matplotlib") is None:
        print(f"{path} is not drawn: matplotlib is not installed (extra plots)", file=sys.stderr)
        return
    with replacing(path) as temporary:
        draw(temporary)


def write_tables(page: Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Writes the lines of tables into a page: each between its name and the next end, as comments of HTML.
    Says so on stdout.
    """
    text = read_text(page, MOST_BYTES)
    for name, lines in tables.items():
        start, mark, behind = text.partition(f"<!-- {name} -->")
        rest = behind.partition("<!-- end -->")[2]
        text = f"{start}{mark}\n\n" + "\n".join(lines) + f"\n\n<!-- end -->{rest}"
    write_text(page, text)
    print(f"{page} written")
