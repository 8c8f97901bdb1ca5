"""A YAML file as plain data with the line of every value. The file is not trusted.

The result is data only: mappings with text keys, lists, and scalars of the core schema of YAML 1.2 (`yes`
and `1:30` are text, `1e3` is a number), without tags. Size, depth and the number of values, with aliases
expanded, are bounded.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from itertime.errors import UserError
from traces.files import shown

__all__ = ["Document", "Place", "read_document"]

MAX_BYTES, MAX_VALUES, MAX_DEPTH = 1_000_000, 200_000, 12

Place = tuple[str | int, ...]
"""Keys and positions from the top of a document to a value."""

_NULL, _TRUE, _FALSE = (
    ("", "~", "null", "Null", "NULL"),
    ("true", "True", "TRUE"),
    ("false", "False", "FALSE"),
)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")


@dataclass(frozen=True)
class Document:
    """`data` of the file `path`; `lines`: the line (from 1) on which the value at a place begins."""

    path: Path
    data: Any
    lines: dict[Place, int]

    def error(self, place: Place, text: str) -> UserError:
        """An error to raise: `file:line: place: text`; the line of the innermost known part of `place`."""
        known = place
        while known not in self.lines and known:
            known = known[:-1]
        where = f"{self.path}:{self.lines.get(known, 1)}"
        return UserError(f"{where}: {dotted(place)}: {text}" if place else f"{where}: {text}")


def dotted(place: Place) -> str:
    """A place as readers write it.

    >>> dotted(("include", 2, "policy"))
    'include[2].policy'
    """
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if text else shown(part)
    return text


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` if a known name is similar, else all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"


def read_document(path: str | Path) -> Document:
    """The document in a YAML file. UserError, with file and line, for anything but bounded data."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(
                f"{path}: has {path.stat().st_size:,} bytes; a grid file has at most {MAX_BYTES:,}"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UserError(f"{path}{line}: is not valid YAML: {reason}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deeply") from None
    if node is None:
        raise UserError(f"{path}: is empty; a grid file has at least a matrix")
    walk = _Walk(path)
    return Document(path, walk.value(node, ()), walk.lines)


class _Walk:
    """Turns nodes into data and notes their lines; an alias is expanded wherever it is used."""

    def __init__(self, path: Path):
        self.path, self.count = path, 0
        self.lines: dict[Place, int] = {}

    def value(self, node: yaml.Node, place: Place) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        self.count += 1
        if self.count > MAX_VALUES or len(place) > MAX_DEPTH:
            what = f"holds more than {MAX_VALUES:,} values or is nested more than {MAX_DEPTH} deep"
            raise UserError(f"{self.path}:{line}: {what}, aliases multiplied out")
        if node.tag.removeprefix(_STANDARD) not in _PLAIN_TAGS:
            raise UserError(
                f"{self.path}:{line}: tags such as {shown(node.tag)} are not used here; remove it"
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_STANDARD}merge":
                raise UserError(f"{self.path}:{line}: a key must be a name")
            key = key_node.value
            if key in values:
                raise UserError(f"{self.path}:{line}: {dotted((*place, key))}: is given twice; remove one")
            self.lines[(*place, key)] = line
            values[key] = self.value(value_node, (*place, key))
        return values

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        text: str = node.value
        if getattr(node, "style", None) is not None:  # quoted
            return text
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            number = float(text)
            if abs(number) == float("inf"):
                line = node.start_mark.line + 1
                raise UserError(f"{self.path}:{line}: {dotted(place)}={shown(text)}: is too large a number")
            return number
        return text
