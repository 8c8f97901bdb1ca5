"""The configuration of the controller: `scontrol show config`, or slurm.conf with the files that it includes.

Source: slurm.conf(5). Names are in any case; a text behind # is a comment, a \\ at the end of a line
continues it. An included file is looked for beside slurm.conf, since an export is rarely read where it lay.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from itertime.errors import UserError
from itertime.io import quoted

from .texts import Entry, Text, lines_of, pairs_of, text_of

__all__ = ["Configuration", "read_configuration"]

_MOST_FILES = 100
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*")
_PRINTED = re.compile(r"(\w+(?:\[\d+\])?)\s*=\s?(.*)")


@dataclass
class Configuration:
    """Parameters by their names in lower case, each with its value and where it stands. `names`: as they are
    written. `lines`: entries of slurm.conf by their first name, as `nodename`. `printed`: whether the
    controller printed it, so that all defaults are filled in.
    """

    path: Path
    printed: bool
    values: dict[str, str] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[Entry]] = field(default_factory=dict)

    def put(self, name: str, value: str, where: str) -> None:
        """Keep a parameter; the last one of a name counts."""
        key = name.lower()
        self.values[key], self.where[key], self.names[key] = value, where, name

    def stated(self, name: str) -> str | None:
        """The value of a parameter; None where none is stated."""
        value = self.values.get(name.lower())
        return None if value is None or value.lower() in ("", "(null)", "n/a") else value

    def fault(self, name: str, reason: str) -> UserError:
        """The error for the value of a parameter."""
        key = name.lower()
        return UserError(f"{self.where.get(key, self.path)}: {name}={self.values.get(key, '')}: {reason}")


def read_configuration(path: str | Path) -> Configuration:
    """The configuration in a file. UserError names file, line and remedy."""
    text = text_of(path, "config", "slurm.conf")
    printed = any(_is_printed(line) for _, line in text.lines[:3])
    configuration = Configuration(text.path, printed)
    if printed:
        for number, line in text.lines:
            match = _PRINTED.fullmatch(line.strip())
            # Further sections repeat names of other files: the first one is that of slurm.conf.
            if match and match[1].lower() not in configuration.values:
                configuration.put(match[1], match[2].strip(), text.at(number))
    else:
        _read_lines(text, configuration, [text.path.resolve()])
    return configuration


def _is_printed(line: str) -> bool:
    return line.startswith("Configuration data as of") or bool(re.match(r"AccountingStorage\w+\s+= ", line))


_ENTRIES = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")


def _read_lines(text: Text, configuration: Configuration, files: list[Path]) -> None:
    for where, line in _whole_lines(text):
        if match := _INCLUDE.fullmatch(line):
            _include(match[1], where, text, configuration, files)
            continue
        try:
            words = shlex.split(line.replace("\\#", "#"))
        except ValueError:
            raise UserError(f"{where}: {quoted(line.strip())}: a quote is not closed; close it") from None
        name, equals, value = line.strip().partition("=")
        key = name.strip().lower()
        if not equals:
            raise UserError(f"{where}: {quoted(line.strip())} is no Name=value; is it a line of slurm.conf?")
        if key in _ENTRIES:
            configuration.lines.setdefault(key, []).append(Entry(where, pairs_of(words)))
        elif len(words) > 1 and all("=" in word for word in words):
            for key, item in pairs_of(words).items():
                configuration.put(key, item, where)
        else:
            configuration.put(name.strip(), value.strip().strip("\"'"), where)


def _whole_lines(text: Text) -> Iterator[tuple[str, str]]:
    """Lines without comments, continued ones joined, each with where it begins."""
    where, parts = "", list[str]()
    for number, line in text.lines:
        plain = _COMMENT.sub("", line).rstrip()
        where = where or text.at(number)
        parts.append(plain.rstrip("\\"))
        if plain.endswith("\\"):
            continue
        line, place, where, parts = "".join(parts), where, "", []
        if line.strip():
            yield place, line
    if parts and "".join(parts).strip():
        yield where, "".join(parts)


def _include(name: str, where: str, text: Text, configuration: Configuration, files: list[Path]) -> None:
    """Read an included file, which lies beside the one that names it."""
    included = PurePosixPath(name)
    relative = PurePosixPath(included.name) if included.is_absolute() else included
    path = text.path.parent / relative
    if ".." in relative.parts or not path.is_file():
        raise UserError(
            f"{where}: Include {name}: there is no such file beside {text.path.name}; copy it there"
        )
    if path.resolve() in files or len(files) >= _MOST_FILES:
        raise UserError(f"{where}: Include {name}: is included already; remove the line")
    _read_lines(lines_of(path), configuration, [*files, path.resolve()])
