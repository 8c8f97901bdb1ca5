"""Files written whole or not at all, and hashes of files and of plain data."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from itertime.errors import UserError

__all__ = ["digest", "replacing", "sha256", "write_bytes", "write_text"]


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


def sha256(path: str | Path, most: float = inf) -> str:
    """Hex digest of a file's bytes. Raises OSError if the file cannot be read, is not a regular file, or has
    more than `most` bytes.
    """
    found = os.stat(path)
    if stat.S_IFMT(found.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise OSError(errno.EINVAL, "is not a regular file")
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"has {found.st_size:,} bytes, more than {most:,}")
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of plain data; the order of keys does not matter."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
