"""Files that Slurm's commands print: which one a file is, and its entries of names and values, with their
lines.

Files are untrusted. Errors name file, line, name and remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from itertime.errors import UserError
from itertime.io import quoted, read_text, shown
from traces.host_lists import hosts_of

__all__ = ["Entry", "Text", "complaint_of", "entries_of", "lines_of", "pairs_of", "rows_of", "text_of"]

T = TypeVar("T")

_MAX_BYTES = 64_000_000
_PAIR = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:\[\d+\])?=")
_ABSENT = ("", "(null)", "n/a", "n/s")

_COMMANDS = {
    "config": "scontrol show config",
    "slurm.conf": "slurm.conf",
    "gres.conf": "gres.conf",
    "node": "scontrol show node",
    "partition": "scontrol show partition",
    "reservation": "scontrol show reservation",
    "qos": "sacctmgr show qos -P",
    "assoc": "sacctmgr show assoc tree -P",
}
"""What prints a kind of file."""

_OPTIONS = {
    "config": "--config",
    "slurm.conf": "--config",
    "gres.conf": "--gres",
    "node": "--nodes",
    "partition": "--partitions",
    "reservation": "--reservations",
    "qos": "--qos",
    "assoc": "--assoc",
}


@dataclass(frozen=True)
class Text:
    """The lines of a file that are not blank, with their numbers."""

    path: Path
    lines: Sequence[tuple[int, str]]

    def at(self, line: int) -> str:
        """Where a line stands, for messages."""
        return f"{self.path}:{line}"


@dataclass(frozen=True)
class Entry:
    """Names in lower case with their values, and where they stand."""

    where: str
    values: Mapping[str, str]

    def stated(self, *names: str) -> str | None:
        """The value of the first of these names that has one; None where Slurm states none."""
        for name in names:
            value = self.values.get(name.lower())
            if value is not None and value.lower() not in _ABSENT:
                return value
        return None

    def whole(self, *names: str, default: int | None) -> int | None:
        """The whole number of the first of these names that has one; UNLIMITED, and none, is the default."""
        value = self.stated(*names)
        if value is None or value.upper() in ("UNLIMITED", "INFINITE"):
            return default
        if not value.isdecimal() or len(value) > 9:
            name = next(name for name in names if self.stated(name) == value)
            raise self.fault(name, value, "must be a whole number")
        return int(value)

    def hosts(self, name: str) -> list[str]:
        """The nodes in the list of hosts under a name; none without a value. UserError for other text."""
        text = self.stated(name)
        try:
            return [] if text is None else hosts_of(text)
        except UserError as error:
            raise UserError(f"{self.where}: {name}: {error}") from None

    def made(self, kind: type[T], values: Mapping[str, Any]) -> T:
        """An instance of a part of a site. UserError for a value that it may not have."""
        try:
            return kind(**values)
        except ValidationError as error:
            name, reason = complaint_of(error)
            raise self.fault(name, self.stated(name) or values.get(name), reason) from None

    def fault(self, name: str, value: object, reason: str) -> UserError:
        """The error for a value of this entry."""
        return UserError(f"{self.where}: {name}={shown(str(value))}: {reason}")


def complaint_of(error: ValidationError) -> tuple[str, str]:
    """The first field that may not have its value, and why."""
    complaint = error.errors(include_url=False)[0]
    return str(complaint["loc"][0]), complaint["msg"].removeprefix("Value error, ")


def text_of(path: str | Path, *kinds: str) -> Text:
    """The lines of a file of one of these kinds. UserError for an empty file, and for another kind."""
    text = lines_of(path)
    path, lines = text.path, text.lines
    if not lines:
        raise UserError(f"{path}: is empty; write the output of {quoted(_COMMANDS[kinds[0]])} into it")
    line, kind = _kind_of(lines)
    if kind not in kinds:
        expectation = f"expected the output of {quoted(_COMMANDS[kinds[0]])}"
        if kind is None:
            raise UserError(f"{path}:{line}: {quoted(lines[0][1].strip())} is not of Slurm; {expectation}")
        option = f"; give it with {_OPTIONS[kind]}" if kind in _OPTIONS else ""
        remedy = "; backtest and trace import read logs" if kind == "job" else option
        raise UserError(f"{path}:{line}: is {_described(kind)}, {expectation}{remedy}")
    return text


def _described(kind: str) -> str:
    return "a log of jobs" if kind == "job" else f"the output of {quoted(_COMMANDS[kind])}"


def lines_of(path: str | Path) -> Text:
    """The lines of any file of text. UserError for one that cannot be read."""
    content = read_text(Path(path), _MAX_BYTES).splitlines()
    return Text(Path(path), [(number, line) for number, line in enumerate(content, 1) if line.strip()])


def _kind_of(lines: Sequence[tuple[int, str]]) -> tuple[int, str | None]:
    """What a file is by its first lines, and the line that shows it; None for anything else."""
    for line, text in lines[:200]:
        for kind, sign in _SIGNS:
            if sign.match(text):
                return line, kind
    return lines[0][0], None


_SIGNS = [
    (kind, re.compile(sign, re.IGNORECASE))
    for kind, sign in (
        ("config", r"Configuration data as of|\s*AccountingStorage\w+\s+=\s"),
        ("job", r"JobId=|.*\bJobID(Raw)?\b.*\||\{|\s*JOBID\s"),
        ("node", r"NodeName=\S+ (Arch=\S+ )?CoresPerSocket=\d+\s*$|NodeName=.*\bCPUAlloc="),
        ("partition", r"PartitionName=\S+\s*$|PartitionName=.*\bTotalNodes="),
        ("gres.conf", r"\s*(NodeName=\S+\s(.*\s)?)?(AutoDetect|Name)=\w"),
        ("reservation", r"ReservationName=|No reservations in the system"),
        ("qos", r"(?=.*\bName\b)(?=.*\b(Priority|MaxTRES\w*|Flags|Preempt)\b)(?!.*\bAccount\b).*\|"),
        ("assoc", r"(?=.*\bAccount\b)(?=.*\b(User|Share)\b).*\|"),
        (
            "slurm.conf",
            r"\s*(ClusterName|(Slurm|Auth|Select|Sched|Prio|Acc)\w+|(Node|Partition)Name|Include)\s*[=\s]",
        ),
    )
]


def entries_of(text: Text, name: str) -> Iterator[Entry]:
    """The entries that begin with `name=`, on one line or on several. Values may hold blanks; the first value
    of a name counts, since what follows may be the text of a person.
    """
    where, words = "", list[str]()
    for number, line in text.lines:
        if line.lower().startswith(f"{name.lower()}="):
            if words:
                yield Entry(where, pairs_of(words))
            where, words = text.at(number), []
        if where:
            words += line.split()
    if words:
        yield Entry(where, pairs_of(words))


def pairs_of(words: Sequence[str]) -> dict[str, str]:
    """Names, in lower case, and values of `Name=value` words; a word that is no pair belongs to the last
    value.
    """
    pairs: dict[str, str] = {}
    name = ""
    for word in words:
        if _PAIR.match(word):
            name, _, value = word.partition("=")
            name = name.lower()
            pairs.setdefault(name, value)
        elif name:
            pairs[name] = f"{pairs[name]} {word}".strip()
    return pairs


def rows_of(text: Text, *columns_of_table: str) -> Iterator[Entry]:
    """The rows of a table whose cells are separated by |, by the names of its columns. UserError for a table
    without these columns, and for a row with another number of cells.
    """
    line, header = text.lines[0]
    columns = [column.strip().lower().replace(" ", "") for column in header.rstrip("|").split("|")]
    for column in columns_of_table:
        if column.lower() not in columns:
            remedy = (
                f"columns are {', '.join(header.split('|')[:8])} ...; add it to format=, or leave format= out"
            )
            raise UserError(f"{text.at(line)}: column {column} is missing; {remedy}")
    for number, row in text.lines[1:]:
        cells = row.split("|")
        if len(cells) not in (len(columns), len(columns) + 1):
            raise UserError(
                f"{text.at(number)}: {len(cells)} cells in {len(columns)} columns; export it again with -P"
            )
        yield Entry(text.at(number), dict(zip(columns, cells, strict=False)))
