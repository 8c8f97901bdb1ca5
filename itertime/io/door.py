"""The door: every file that the program reads is opened here, and `tests/house` asserts it.

Files come from others, so nothing behind a name may block, be endless or lead elsewhere by surprise.

- Opening never waits. What is opened is a regular file, whatever its name; anything else is an OSError.
- A link is followed where a user names the file: data often lie elsewhere. It must end at a regular file.
- A link is refused, `links=False`, where the program trusts a name that it gave itself: the entries of caches
  and of `.serve`, logs of runs in progress, locks and journals. No link there is ours.
- Writing follows no link: a new file replaces what stands there (`replacing`).
- A pipe is read where a user names it and the reader needs it once. Its content becomes a temporary file.
- Text has a longest line and a longest stretch without content; packed text has a size that it may reach.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import select
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import IO, BinaryIO, cast

from itertime.errors import TableError, UserError

GZIP = b"\x1f\x8b"
DAMAGED_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
LONGEST_ROW = 10_000_000  # characters; memory holds a whole row, and no real table has one this long
MOST_BLANK_LINES = 1_000_000  # between two rows

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 18  # bytes
_PATIENCE_MS = 10_000  # for the first writer of a pipe
_LARGEST_PIPE = 20_000_000_000  # bytes
_ANY_SIZE, _MOST_TIMES = 32_000_000, 100
"""Bytes that any gzip file may hold, and the multiple of its own size that a larger one may. Job logs become
10 to 40 times as large, and gzip reaches 1,032 times where all bytes are equal.
"""


def open_regular(path: str | Path, *, links: bool = True) -> BinaryIO:
    """A regular file, opened for reading. `links`: whether the name may be that of a link. OSError for
    anything else, at once.
    """
    _check(path, os.stat(path, follow_symlinks=links))  # opening a device may already act on it
    return _opened(path, _READING | (0 if links else os.O_NOFOLLOW), "rb")


def _opened(path: str | Path, flags: int, mode: str) -> BinaryIO:
    file = cast(BinaryIO, os.fdopen(os.open(path, flags, 0o666), mode))
    try:
        _check(path, os.fstat(file.fileno()))  # it may have been replaced in between
    except OSError:
        file.close()
        raise
    return file


def _check(path: str | Path, status: os.stat_result) -> None:
    """OSError for anything but a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "is a link; remove it", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_bytes(path: str | Path, max_bytes: float = inf, *, links: bool = True) -> bytes:
    """The content of a regular file. OSError if it has more than `max_bytes`, or is no such file."""
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size  # /proc reports 0
        end = -1 if max_bytes == inf else int(min(size or max_bytes, max_bytes)) + 1
        content = file.read(end) or b""  # None for a file of /proc that would block
    if len(content) > max_bytes:
        size = max(size, len(content))
        raise OSError(errno.EFBIG, f"has {size:,} bytes; such a file has at most {max_bytes:,}", str(path))
    return content


def open_own(path: str | Path) -> BinaryIO:
    """A file that only the program writes, as a lock or a journal, opened for reading and for adding to its
    end; made if it is not there. OSError for a link, and for anything else but a regular file.
    """
    with suppress(FileNotFoundError):
        _check(path, os.lstat(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _opened(path, flags, "r+b")


def reopened(file: BinaryIO) -> BinaryIO:
    """An open file once more, from its beginning; closing it leaves `file` open."""
    again = os.fdopen(os.dup(file.fileno()), "rb")
    again.seek(0)
    return again


# Files and pipes that a user names


@contextmanager
def open_seekable(path: Path, *, pipes: bool) -> Iterator[BinaryIO]:
    """A regular file, or with `pipes` a temporary copy of the content of a pipe or terminal.

    UserError for a pipe without `pipes`, for a pipe that nothing writes to, and for a device, which may never
    end. OSError for what cannot be opened.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        with open_regular(path) as file:
            yield file
        return
    if stat.S_ISFIFO(mode) and not pipes:
        raise UserError(f"{path}: is a pipe, and is needed more than once; save it to a file first")
    descriptor = os.open(path, _READING)
    try:
        if not stat.S_ISFIFO(mode) and not os.isatty(descriptor):
            raise UserError(f"{path}: is a device; give a file or a pipe")
        copy = _copy(path, descriptor)
    finally:
        os.close(descriptor)
    with copy:
        yield copy


def _copy(path: Path, descriptor: int) -> BinaryIO:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (on a full disk closing it fails too)
    try:
        for piece in _pieces(path, descriptor):
            copy.write(piece)
        copy.seek(0)
    except OSError as error:
        with suppress(OSError):
            copy.close()
        problem = f"cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}"
        raise UserError(f"{path}: {problem}; set TMPDIR to another folder") from None
    except UserError:
        copy.close()
        raise
    return copy


def _pieces(path: Path, descriptor: int) -> Iterator[bytes]:
    """The content of a pipe that was opened without waiting for its writer. A slow writer is waited for, one
    that does not come is not.
    """
    events, size = select.poll(), 0
    events.register(descriptor, select.POLLIN)
    while True:
        is_ready = bool(events.poll(_PATIENCE_MS))
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            continue  # a writer has it open
        if not piece and not is_ready:
            raise UserError(f"{path}: nothing writes to this pipe; start what writes first, or give a file")
        if not piece:
            return
        size += len(piece)
        if size > _LARGEST_PIPE:
            raise UserError(f"{path}: gives more than {_LARGEST_PIPE:,} bytes; save it to a file")
        yield piece


# Text


def unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """The content of an opened file from its beginning: unpacked if it is gzip, by its first bytes.

    Reading it raises TableError where it expands beyond what such a file has, and gzip's own errors for a
    damaged one. `path` names it in messages.
    """
    file.seek(0)
    is_packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    if not is_packed:
        return file
    return io.BufferedReader(cast(io.RawIOBase, _Unpacked(path, file)), _PIECE)


class _Unpacked(gzip.GzipFile):
    """The content of a gzip file up to a size that follows from that of the file. It is read in pieces."""

    def __init__(self, path: Path, file: BinaryIO):
        super().__init__(fileobj=file)
        self._path = path
        self._max_bytes = max(_ANY_SIZE, _MOST_TIMES * os.fstat(file.fileno()).st_size)

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        if self.tell() > self._max_bytes:
            problem = f"holds more than {self._max_bytes:,} bytes, {_MOST_TIMES} times its own size or more"
            raise TableError(f"{self._path}: {problem}; unpack it first if this is right")
        return content


def text_of(binary: BinaryIO) -> IO[str]:
    """UTF-8 text, with or without a byte order mark, and its line ends as they are. It owns `binary`."""
    return io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")


def text_lines(path: Path, file: BinaryIO) -> Iterator[str]:
    """The lines of UTF-8 text with their ends, from the place of an opened file on. TableError, with file and
    line, for what is no such text, for a line of too many bytes, and for too many without content.
    """
    number = blank_lines = 0
    try:
        while line := file.readline(LONGEST_ROW + 1):
            number += 1
            blank_lines = blank_lines + 1 if line.isspace() else 0
            if len(line) > LONGEST_ROW:
                raise too_long(f"{path}:{number}")
            if blank_lines > MOST_BLANK_LINES:
                raise too_blank(f"{path}:{number}")
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise TableError(not_utf8_byte(path, number, error)) from None
    except DAMAGED_GZIP as error:
        raise damaged_gzip(path, error) from None


def not_utf8_byte(path: object, line: int, error: UnicodeDecodeError) -> str:
    """What to say of a byte that is not UTF-8."""
    return f"{path}:{line}: byte {error.object[error.start]:#04x} is not UTF-8 text; save the file in UTF-8"


def damaged_gzip(path: object, error: Exception) -> TableError:
    """The error of a packed file that does not unpack."""
    return TableError(f"{path}: damaged gzip file ({error}); copy or compress it again")


def too_long(where: str) -> TableError:
    """The error of a row of too many characters."""
    return TableError(f"{where}: a row of more than {LONGEST_ROW:,} characters; look for missing line breaks")


def too_blank(where: str) -> TableError:
    """The error of too many lines without a row."""
    return TableError(f"{where}: more than {MOST_BLANK_LINES:,} lines without content; remove them")
