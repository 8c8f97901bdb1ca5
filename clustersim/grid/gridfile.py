"""Grid files, read and validated but not yet expanded (docs/grids.md is their manual).

A grid file is YAML and is not trusted. `read_document` turns it into plain data and notes the line of every
value: mappings with text keys, lists, and scalars of the core schema of YAML 1.2 (`yes` and `1:30` are text,
`1e3` is a number), without tags. Size, depth and the number of values, with aliases expanded, are bounded.
`read_grid_file` then checks the parts; its errors name file and line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from clustersim.analysis import METRICS
from itertime.errors import UserError, known_names
from itertime.io import NonNegative, Positive, Whole, YamlError, read_text, shown, yaml_nodes

__all__ = [
    "NUMERIC_METRICS",
    "Document",
    "GridFile",
    "Limits",
    "Naming",
    "Place",
    "Window",
    "dotted",
    "parse_document",
    "parse_grid",
    "read_document",
    "read_grid_file",
]

MAX_BYTES, MAX_VALUES, MAX_DEPTH = 1_000_000, 200_000, 12

# The document

Place = tuple[str | int, ...]
"""Keys and positions from the top of a document to a value."""

Naming = Callable[[Place, str], str]
"""An error at a place, in the terms of the option or file that states the value."""

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")


@dataclass(frozen=True)
class Document:
    """`data` of the file `path`; `lines`: the line (from 1) on which the value at a place begins.

    `naming`: how errors name a place where the user did not write the file.
    """

    path: Path
    data: Any
    lines: dict[Place, int]
    naming: Naming | None = None

    def error(self, place: Place, text: str) -> UserError:
        """An error to raise: `file:line: place: text`; the line of the innermost known part of `place`."""
        if self.naming is not None:
            return UserError(self.naming(place, text))
        known_place = place
        while known_place not in self.lines and known_place:
            known_place = known_place[:-1]
        where = f"{self.path}:{self.lines.get(known_place, 1)}"
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


def suggestion(name: str, catalogue: Iterable[str]) -> str:
    """`did you mean ...?` if a known name is similar, else the known names."""
    names = sorted(catalogue)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else known_names(name, names)


def read_document(path: str | Path) -> Document:
    """The document in a YAML file. UserError, with file and line, for anything but bounded data."""
    return parse_document(read_text(Path(path), MAX_BYTES), Path(path))


def parse_document(text: str, path: Path, naming: Naming | None = None) -> Document:
    """The document in the text of the file `path`, as `read_document`."""
    try:
        node = yaml_nodes(text)
    except YamlError as error:
        line = "" if error.line is None else f":{error.line}"
        raise UserError(f"{path}{line}: is not valid YAML: {error}") from None
    if node is None:
        raise UserError(f"{path}: is empty; a grid file has at least a matrix")
    walk = _Walk(path)
    return Document(path, walk.value(node, ()), walk.lines, naming)


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
            problem = f"holds more than {MAX_VALUES:,} values or is nested more than {MAX_DEPTH} deep"
            raise UserError(f"{self.path}:{line}: {problem}, with aliases expanded")
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


# The parts of a grid file

ON_DEMAND = ("energy_kwh",)
"""Metrics of runs that a setting asks for. A table has their columns where a cell has a value."""
NUMERIC_METRICS = (
    *(name for name in METRICS if name not in ("covers", "wall_s", "policy_wall_s")),
    *ON_DEMAND,
)
"""The metrics of a cell: all but the one that is text, and the two that depend on the machine."""

SHOWN_METRICS = ("jct_mean_s", "wait_mean_s", "makespan_s", "deadline_met_ratio", "rejected")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(_Part):
    """Limits of one cell: seconds of wall-clock time, GB (1e9 bytes) of resident memory; None: no limit.

    `retries`: how often a failed cell is tried again within one call.
    """

    time_s: Positive | None = None
    memory_gb: Positive | None = None
    retries: Annotated[Whole, Field(le=100)] = 1


class Window(_Part):
    """Metrics cover jobs submitted from `warmup_s` after the first submission on, for `measure_s` seconds."""

    warmup_s: NonNegative = 0.0
    measure_s: Positive | None = None


def _seed_list(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | list):
        raise ValueError("must be a number of seeds, or a list of seeds")
    if isinstance(value, list):
        return value
    if not 1 <= value <= 100_000:
        raise ValueError("must be between 1 and 100000 seeds")
    return list(range(value))


class GridFile(_Part):
    """The parts of a grid file. `seeds`: a count N stands for 0 to N - 1. `keep`: what stays of a cell, the
    folder of its run or its row of metrics.
    """

    matrix: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    include: list[dict[str, Any]] = Field(default_factory=list)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(_seed_list), Field(min_length=1)] = (0,)
    limits: Limits = Limits()
    baseline: dict[str, Any] | None = None
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] = SHOWN_METRICS
    window: Window | None = None
    keep: Literal["runs", "rows"] = "runs"


def read_grid_file(path: str | Path) -> tuple[GridFile, Document]:
    """Read and validate a grid file; the document has the lines for later errors.

    UserError, with file and line, for a file that cannot be read, unknown keys and values of a wrong kind.
    """
    document = read_document(path)
    return parse_grid(document), document


def parse_grid(document: Document) -> GridFile:
    """The parts of a document, validated. UserError as of `read_grid_file`."""
    if not isinstance(document.data, dict):
        raise document.error((), "must be a mapping with a matrix; see docs/grids.md")
    try:
        grid = GridFile.model_validate(document.data)
    except ValidationError as error:
        raise _complaint(document, error) from None
    if not grid.matrix and not grid.include:
        raise document.error((), "has neither a matrix nor an include: there is nothing to run")
    if grid.keep == "rows" and grid.window is not None:
        text = "needs the records of cells, which keep: rows does not write; remove one of them"
        raise document.error(("window",), text)
    if len(set(grid.seeds)) < len(grid.seeds):
        raise document.error(("seeds",), "names a seed twice; remove one")
    for i, name in enumerate(grid.metrics):
        if name not in NUMERIC_METRICS:
            text = f"unknown metric {shown(name)}; {suggestion(name, NUMERIC_METRICS)}"
            raise document.error(("metrics", i), text)
    return grid


def _complaint(document: Document, error: ValidationError) -> UserError:
    complaints = error.errors(include_url=False)
    first_complaint = next(
        (complaint for complaint in complaints if complaint["type"] == "extra_forbidden"), complaints[0]
    )
    place: Place = tuple(first_complaint["loc"])
    if first_complaint["type"] == "extra_forbidden":
        kinds: dict[str, type[BaseModel]] = {"limits": Limits, "window": Window}
        kind = kinds.get(str(place[0]), GridFile)
        names = [field.alias or name for name, field in kind.model_fields.items()]
        return document.error(place, f"unknown key; {suggestion(str(place[-1]), names)}")
    message = first_complaint["msg"].removeprefix("Value error, ")
    value = first_complaint.get("input")
    value_text = "" if isinstance(value, dict | list) else f"is {shown(value)}; "
    return document.error(place, f"{value_text}{message[:1].lower()}{message[1:]}")
