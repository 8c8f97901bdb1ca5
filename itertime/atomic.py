"""Atomic writes: an output file is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from itertime.errors import UserError

__all__ = ["replacing", "write_bytes", "write_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; if the block succeeds, that file replaces `path`.

    A reader never sees half a file, and a failure leaves the old one. Raises UserError if the file cannot be
    written, and for anything but a regular file: replacing a device would destroy it.
    """
    path = Path(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path}: cannot be written: not a regular file; give the name of a file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file atomically. Raises UserError if it cannot be written."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically. Raises UserError if it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
