"""Output files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from itertime.errors import UserError

__all__ = ["write_bytes", "write_text"]


def write_text(path: str | Path, text: str) -> None:
    """Writes a UTF-8 file under a temporary name in its folder, then renames it; UserError if it cannot."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """The same for bytes."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
