"""What the fields of a pydantic dataclass say about themselves: unit, values, default and meaning.

The keys of data files are these fields, so the pages about them are made from the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import Field

from .mappings import MOST

_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
_BOUNDS = {"ge": "from {:g}", "gt": "above {:g}", "le": "to {:g}"}


def described(text: str, unit: str = "", default: str | None = None) -> Any:
    """Metadata of a field that has no default (`Annotated[int, described(...)]`): its meaning, its unit, and
    its default in words where the code that reads a file has one.
    """
    return Field(description=text, json_schema_extra={"unit": unit, "default": default})


def optional(default: Any, text: str, unit: str = "", values: str = "") -> Any:
    """A field that a file may leave out (`int = optional(1, ...)`): its default, its meaning, its unit, and
    in words what it accepts where its type does not say so.
    """
    return Field(default, description=text, json_schema_extra={"unit": unit, "values": values})


@dataclass(frozen=True)
class Key:
    """One key of a data file. `default` is None for a key that must be given, otherwise text."""

    name: str
    unit: str
    values: str
    default: str | None
    text: str


def keys_of(kind: type, prefix: str = "") -> Iterator[Key]:
    """The keys of a pydantic dataclass in their order; those of nested ones as `outer.inner`."""
    for name, field in _fields(kind).items():
        if is_dataclass(field.annotation) and isinstance(field.annotation, type):
            yield from keys_of(field.annotation, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra or {}
        default = None if field.is_required() else _default(field.get_default(call_default_factory=True))
        yield Key(
            name=prefix + name,
            unit=extra.get("unit", ""),
            values=extra.get("values") or _values(field),
            default=extra.get("default") or default,
            text=field.description or "",
        )


def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a pydantic dataclass by name; none for any other type."""
    return getattr(kind, "__pydantic_fields__", {})


def _values(field: Any) -> str:
    """What a field accepts, in words: its type with the bounds that pydantic checks. Bounds from `MOST` on
    only keep arithmetic exact, and are left out.
    """
    kind = field.annotation
    choices = [str(choice) for choice in _leaves(kind) if isinstance(choice, str | int)]
    if choices:
        return " or ".join(choices)
    words = " or ".join(dict.fromkeys(_KINDS[leaf] for leaf in _leaves(kind) if leaf in _KINDS))
    words = f"list of {words}" if _is_list(kind) else words
    metadata = [item for part in (field.metadata, _metadata(kind)) for item in part]
    bounds = [
        text.format(getattr(item, name))
        for name, text in _BOUNDS.items()
        for item in metadata
        if getattr(item, name, None) is not None and getattr(item, name) < MOST
    ]
    return " ".join([words, *dict.fromkeys(bounds)])


def _leaves(kind: Any) -> Iterator[Any]:
    """The plain types and the literal values in a type."""
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_args(kind):
        for part in get_args(kind):
            yield from _leaves(part)
    else:
        yield kind


def _metadata(kind: Any) -> Iterator[Any]:
    for part in get_args(kind):
        yield from getattr(part, "metadata", ())
        yield from _metadata(part)
    yield from getattr(kind, "__metadata__", ())


def _is_list(kind: Any) -> bool:
    return any(get_origin(part) is tuple for part in (kind, *get_args(kind)))


def _default(value: Any) -> str:
    if value is None or value == () or value == "":
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return (
        str(value).lower() if isinstance(value, bool) else f"{value:g}" if _is_number(value) else str(value)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
