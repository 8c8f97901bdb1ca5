"""Data files that describe models, systems, profiles and rules: YAML or JSON mappings, untrusted.

`construct` turns a mapping into a pydantic dataclass, whose fields have the annotated types of this module.
Every error names the file and the key. Keys carry their unit, so a key without its unit is unknown.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from itertime.errors import UserError, quoted, shown

from .files import read_text
from .yaml_text import TOO_DEEP, YamlError, parse_yaml

ENDINGS = (".yaml", ".yml", ".json")

MAX_BYTES = 4_000_000
LONGEST_TEXT = 2_000  # characters of keys and values on a command line
SMALLEST, LARGEST = 1e-30, 1e30  # of numbers other than 0: products of a few of them stay finite
GPU_W = (50, 3000)  # least and most watts of one GPU's power limit; the largest of 2026 takes 1,400
MOST = 10**9  # of whole numbers: the product of two fits into 64 bits

UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")  # types of pydantic's errors
_KINDS = {type(None): "nothing", list: "a list", str: "bare text"}

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


def _power(value: Any) -> Any:
    _not_bool(value)
    if isinstance(value, int | float) and not GPU_W[0] <= value <= GPU_W[1]:
        low_w, high_w = GPU_W
        raise ValueError(
            f"must be the limit of one GPU, {low_w} to {high_w:,} W; leave it out for the usual one"
        )
    return value


CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)  # built when first used
Name = Annotated[str, AfterValidator(_nonempty)]
Positive = Annotated[float, BeforeValidator(_not_bool), Field(gt=0), AfterValidator(_plausible)]
NonNegative = Annotated[float, BeforeValidator(_not_bool), Field(ge=0), AfterValidator(_plausible)]
Latency = Annotated[float, BeforeValidator(_not_bool), Field(ge=0), AfterValidator(_at_most_1_s)]
Fraction = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, le=1), AfterValidator(_plausible)]
Ratio = Annotated[float, BeforeValidator(_not_bool), Field(ge=1), AfterValidator(_plausible)]
Share = Annotated[float, BeforeValidator(_not_bool), Field(ge=0, le=1)]
GpuPower = Annotated[float, BeforeValidator(_power), Field(ge=GPU_W[0], le=GPU_W[1])]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=MOST)]
Whole = Annotated[int, BeforeValidator(_not_bool), Field(ge=0, le=MOST)]


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {quoted(key)} is given twice; remove one")
            seen.add(key)
    return document


def key_values(text: str, where: str, example: str) -> dict[str, object]:
    """The keys and values of a text KEY=VALUE,KEY=VALUE: numbers (in ASCII digits) and true or false as such,
    else text. Raises `UserError`, beginning with `where`, for text of another form, with `example` as a
    remedy, and for a repeated key.

    >>> key_values("workers=4, outer=diloco", "options", "workers=4")
    {'workers': 4, 'outer': 'diloco'}
    """
    if len(text) > LONGEST_TEXT:
        raise UserError(f"{where}: has {len(text)} characters; the limit is {LONGEST_TEXT}")
    values: dict[str, object] = {}
    for part in text.split(",") if text.strip() else ():
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not part.strip():
            raise UserError(f"{where}: {shown(text)}: has an empty part; remove a comma")
        if not equals or not key or not value:
            raise UserError(f"{where}: {shown(part.strip())}: must be KEY=VALUE, like {example}")
        if key in values:
            raise UserError(f"{where}: key {quoted(key)} is given twice; remove one")
        values[key] = _value(value)
    return values


def _value(text: str) -> object:
    for kind in (int, float) if text.isascii() else ():
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def names_file(text: str) -> bool:
    """Whether what a user named is the path of a YAML or JSON file, rather than a shipped name."""
    return text.endswith(ENDINGS)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, or in a JSON file (by the suffix `.json`).

    Raises `UserError`, naming the file, if the file cannot be read, is not a regular file, is larger than
    4 MB, is not YAML or JSON, gives a key twice, or holds something other than a mapping of names. Pipes are
    refused because opening one blocks until another process writes, and an untrusted file may name one.
    """
    path = Path(path)
    text = read_text(path, MAX_BYTES)
    value = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if not isinstance(value, Mapping):
        kind = _KINDS.get(type(value), "no mapping")
        raise UserError(f"{path}: holds {kind}; expected a mapping of keys to values, like `name: value`")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{path}: key {quoted(key)} is not a name")
    return dict(value)


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_json_object)
    except RecursionError as error:
        raise UserError(f"{path}: not valid JSON: {TOO_DEEP}") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        return parse_yaml(text)
    except YamlError as error:
        line = "" if error.line is None else f":{error.line}"
        raise UserError(f"{path}{line}: not valid YAML: {error}") from error


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
    complaint = next(
        (candidate for candidate in complaints if candidate["type"] in UNKNOWN_KEY), complaints[0]
    )
    key = ".".join(str(part) for part in complaint["loc"])
    if complaint["type"] in UNKNOWN_KEY:
        hint = "remove it or correct its name (keys carry their unit)"
        return f"unknown key {quoted(key)}{_suggestion(key, kind)}; {hint}"
    if complaint["type"] in ("missing", "missing_argument"):
        return f"key {quoted(key)} is missing; add it"
    message = complaint["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}"
    value = quoted(complaint.get("input"))
    value_text = "" if "..." in value else f"={value}"  # the beginning of a list says little
    return f"{key}{value_text}: {message}" if key else f"the file: {message}"


def _suggestion(key: str, kind: type) -> str:
    close = difflib.get_close_matches(key.rpartition(".")[2], _keys(kind), n=1, cutoff=0.5)
    return f" (did you mean {quoted(close[0])}?)" if close else ""


def _keys(kind: Any) -> list[str]:
    """Names of the fields of a dataclass and of the dataclasses nested in it."""
    names = []
    for name, field in getattr(kind, "__pydantic_fields__", {}).items():
        names += [name, *_keys(field.annotation)]
    return names
