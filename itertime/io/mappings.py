"""Data files that describe models, systems, profiles and rules: YAML or JSON mappings, untrusted.

`construct` turns a mapping into a pydantic dataclass, whose fields have the annotated types of this module.
Every error names the file and the key. Keys carry their unit, so a key without its unit is unknown.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from itertime.errors import UserError

__all__ = [
    "CONFIG",
    "MAX_BYTES",
    "Count",
    "Fraction",
    "Latency",
    "Name",
    "NonNegative",
    "Positive",
    "Ratio",
    "Share",
    "Whole",
    "construct",
    "parse_yaml",
    "read_mapping",
]

MAX_BYTES = 4_000_000
SMALLEST, LARGEST = 1e-30, 1e30  # of numbers other than 0: products of a few of them stay finite
MOST = 10**9  # of whole numbers: the product of two fits into 64 bits

UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")  # types of pydantic's errors
_KINDS = {type(None): "nothing", list: "a list", str: "bare text"}
_TOO_DEEP = "its lists and mappings are nested too deeply"

T = TypeVar("T")


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _nonempty(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("is not text that a file could hold")
    return value


def _plausible(value: float) -> float:
    if value != 0 and not SMALLEST <= value <= LARGEST:
        raise ValueError("is beyond what any machine has; check its unit")
    return value


def _at_most_1_s(value: float) -> float:
    if value > 1:
        raise ValueError("must be at most 1 s; a microsecond is 1e-6")
    return value


CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
Name = Annotated[str, AfterValidator(_nonempty)]
Positive = Annotated[float, BeforeValidator(_not_bool), Field(gt=0), AfterValidator(_plausible)]
NonNegative = Annotated[float, BeforeValidator(_not_bool), Field(ge=0), AfterValidator(_plausible)]
Latency = Annotated[float, BeforeValidator(_not_bool), Field(ge=0), AfterValidator(_at_most_1_s)]
Fraction = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, le=1), AfterValidator(_plausible)]
Ratio = Annotated[float, BeforeValidator(_not_bool), Field(ge=1), AfterValidator(_plausible)]
Share = Annotated[float, BeforeValidator(_not_bool), Field(ge=0, le=1)]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=MOST)]
Whole = Annotated[int, BeforeValidator(_not_bool), Field(ge=0, le=MOST)]


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a repeated key is an error (PyYAML silently keeps the last one), and 1e9 and 1.5e3 are
    numbers as in YAML 1.2 (text in YAML 1.1).
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        _refuse_duplicates(keys)
        return super().construct_mapping(node, deep=deep)


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, [*"-+.0123456789"])


def _refuse_duplicates(keys: list[Any]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"key {key!r} is given twice; remove one")
        seen.add(key)


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_duplicates([key for key, _ in pairs])
    return dict(pairs)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, or in a JSON file (by the suffix `.json`).

    Raises `UserError`, naming the file, if the file cannot be read, is not a regular file, is larger than
    4 MB, is not YAML or JSON, gives a key twice, or holds something other than a mapping of names. Pipes are
    refused because opening one blocks until another process writes, and an untrusted file may name one.
    """
    path = Path(path)
    content = _content(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        what = f"byte {byte:#04x} is not UTF-8 text; save the file in UTF-8"
        raise UserError(f"{path}:{line}: {what}") from error
    value = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if not isinstance(value, Mapping):
        kind = _KINDS.get(type(value), "no mapping")
        raise UserError(f"{path}: holds {kind}; expected a mapping of keys to values, like `name: value`")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{path}: key {key!r} is not a name")
    return dict(value)


def _content(path: Path) -> bytes:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise UserError(f"{path}: cannot be read: is not a regular file; save its content to one")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # /proc reports 0
            content = file.read(min(size or MAX_BYTES, MAX_BYTES) + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: {max(size, len(content))} bytes; a data file has at most {MAX_BYTES}")
    return content


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_json_object)
    except RecursionError as error:
        raise UserError(f"{path}: not valid JSON: {_TOO_DEEP}") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error


def parse_yaml(text: str) -> Any:
    """The data in YAML text. Raises ValueError if the text is not YAML."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from error


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        return parse_yaml(text)
    except ValueError as found:
        error = found.__cause__ or found
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UserError(f"{path}{line}: not valid YAML: {reason}") from error


def construct(kind: type[T], values: Mapping[str, Any], path: str | Path) -> T:
    """`values` as an instance of the pydantic dataclass `kind`.

    Raises `UserError` naming `path` and the first wrong key; an unknown key is reported before a missing key
    or a wrong value.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise UserError(f"{path}: {_complaint(error, kind)}") from error


def _complaint(error: ValidationError, kind: type) -> str:
    complaints = error.errors(include_url=False)
    first = next((found for found in complaints if found["type"] in UNKNOWN_KEY), complaints[0])
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] in UNKNOWN_KEY:
        hint = "remove it or correct its name (keys carry their unit)"
        return f"unknown key {key!r}{_suggestion(key, kind)}; {hint}"
    if first["type"] in ("missing", "missing_argument"):
        return f"key {key!r} is missing; add it"
    message = first["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}"
    value = repr(first.get("input"))
    return f"{key}={value}: {message}" if key and len(value) <= 60 else f"{key or 'the file'}: {message}"


def _suggestion(key: str, kind: type) -> str:
    close = difflib.get_close_matches(key.rpartition(".")[2], _keys(kind), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _keys(kind: Any) -> list[str]:
    """Names of the fields of a dataclass and of the dataclasses nested in it."""
    names = []
    for name, field in getattr(kind, "__pydantic_fields__", {}).items():
        names += [name, *_keys(field.annotation)]
    return names
