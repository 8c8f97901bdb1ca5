"""Text files of others, read within limits; files written whole or not at all; hashes of files and data."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, cast

from itertime.errors import UserError

from .door import not_utf8_byte, open_regular, read_bytes


def read_text(path: str | Path, max_bytes: int) -> str:
    """The text of a regular UTF-8 file of at most `max_bytes`.

    UserError names the file and what is wrong. Pipes are refused because opening one blocks until another
    process writes, devices because they may never end.
    """
    content = _read(Path(path), max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(not_utf8(path, error)) from error


def file_state(path: str | Path) -> tuple[int, ...] | None:
    """What differs where a file has changed: its time, size and number; None where there is no file."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def not_utf8(path: object, error: UnicodeDecodeError) -> str:
    """What to say of a file whose whole content could not be decoded: the line, and the byte on it."""
    return not_utf8_byte(path, error.object.count(b"\n", 0, error.start) + 1, error)


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        return read_bytes(path, max_bytes)
    except (OSError, ValueError) as error:  # a ValueError for a name with a null character
        problem = getattr(error, "strerror", None) or error
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise UserError(f"{path}: {problem}") from error
        remedy = "; save its content to one" if str(problem).endswith("regular file") else ""
        raise UserError(f"{path}: cannot be read: {problem}{remedy}") from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; if the block succeeds, that file replaces `path`.

    A reader never sees half a file, and a failure leaves the old one. The temporary file exists, empty, with
    an unpredictable name, so that no link that another user has put in its place is followed. Raises
    UserError if the file cannot be written, and for anything but a regular file: replacing a device would
    destroy it.
    """
    path = Path(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path}: cannot be written: not a regular file; give the name of a file")
    temporary = None
    try:
        temporary = temporary_beside(path)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def temporary_beside(path: Path) -> Path:
    """A new, empty file in the folder of `path`, named `.NAME.PID.RANDOM.tmp`, with the permissions of any
    new file. OSError if it cannot be made.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.{os.getpid()}.", suffix=".tmp", dir=path.parent)
    try:
        os.fchmod(handle, 0o666 & ~_umask())
    finally:
        os.close(handle)
    return Path(name)


def _umask() -> int:
    """The mask of this process, which can only be read by setting it."""
    try:
        status = read_bytes("/proc/self/status").decode("ascii").splitlines()
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file atomically. Raises UserError if it cannot be written."""
    write_bytes(path, text.encode("utf-8"))


def check_absent(paths: Iterable[Path], force: bool, text: str = "") -> None:
    """UserError for the first file that exists, unless it holds just this text, or `force` says that it may
    be replaced.
    """
    for path in paths:
        if not force and os.path.lexists(path) and not (text and _holds(path, text)):
            raise UserError(f"{path}: already exists; choose another name, or replace it with --force")


def _holds(path: Path, text: str) -> bool:
    content = text.encode("utf-8")
    with suppress(UserError):
        return _read(path, len(content)) == content
    return False


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several UTF-8 files, or none of them. Raises UserError if one cannot be written."""
    with ExitStack() as stack:
        temporaries = {path: stack.enter_context(replacing(path)) for path in texts}
        for path, text in texts.items():
            temporaries[path].write_bytes(text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically. Raises UserError if it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sha256(path: str | Path, max_bytes: float = inf) -> str:
    """Hex digest of a file's bytes. Raises OSError if the file cannot be read, is not a regular file, or has
    more than `max_bytes`.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"has {size:,} bytes, more than {max_bytes:,}")
        return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of plain data; the order of keys does not matter."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
