"""Where the programs of experiments write: a folder of results, and pictures that need matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from itertime.errors import UserError
from itertime.io import replacing


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
