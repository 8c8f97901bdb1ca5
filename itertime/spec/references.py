"""Models and systems as users name them: a shipped name, or a file that may extend another one.

A file with `extends: NAME|FILE` has all keys of the other, except those that it states itself. A file is
relative to the one that names it; those that a system names as `profile` and `framework`, and a model as
`lengths`, may also be relative to the current folder, if none lies beside its file. Nested keys (`site`) are
merged one by one. Bandwidths may be stated in Gb/s and times in microseconds: `nic_gbps` for
`nic_bytes_per_s`, `launch_us` for `launch_s`. A file that states other links of a GPU does not take
`nvlink_slowdown` from the one that it extends, as that was measured with the links there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from itertime.errors import UnknownName, UserError, quoted, shown
from itertime.io import file_state, keys_of, names_file, parse_yaml, read_mapping

_LONGEST_CHAIN = 8
_PACKAGE = Path(__file__).parents[1]
_FILES = ("profile", "framework", "lengths")
"""Keys of a system or a model that may name a file."""
_NOT_INHERITED = ("name", "parameters_published", "active_parameters_published")
"""Keys that a file does not take from the one that it extends, because they describe that one alone."""
_MEASURED_WITH = {"nvlink_slowdown": "nvlink_bytes_per_s"}
"""Keys that were measured with the value of another key: where that one changes, they hold no more."""


class _Unit(NamedTuple):
    """A value in another unit x `factor` / `divisor` is that of `field`."""

    field: str
    factor: float
    divisor: float


@dataclass(frozen=True)
class Reference:
    """The keys of a model or a system, resolved, and the chain of files that state them, own file first.

    `changes`: the outer keys that settings on top of the files have changed.
    """

    kind: type
    where: str
    content: Mapping[str, Any]
    files: tuple[Path, ...]
    changes: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        noun: str,
        name: str | Path,
        folder: Path,
        kind: type,
        converted: Callable[[dict[str, Any], Path], dict[str, Any]] = lambda content, path: content,
    ) -> Reference:
        """The shipped file `name` of `folder`, or the file at the path `name`. `converted` makes the keys of
        this program from the content of a file.

        Raises UnknownName for a name that is not shipped. Raises UserError, naming the file, for a file that
        cannot be read, and for a chain of files that has a cycle or is longer than 8.
        """
        path = _path(noun, name, folder)
        where = str(path) if path.parent != folder else f"{noun} {path.stem}"
        chain, contents = [path], []
        while True:
            content = in_field_units(kind, converted(read_mapping(chain[-1]), chain[-1]), str(chain[-1]))
            content |= _files_beside(chain[-1], content)
            base = content.pop("extends", None)
            contents.append(content)
            if base is None:
                break
            chain.append(_base(noun, base, chain, folder))
        if len(chain) > 1 or noun == "model":
            contents[0].setdefault("name", path.stem)
        merged: dict[str, Any] = {}
        for content in reversed(contents):
            for key in _NOT_INHERITED:
                merged.pop(key, None)
            merged = _merged(merged, content)
        return cls(kind=kind, where=where, content=merged, files=tuple(chain))

    def changed(self, settings: Iterable[str], prefix: str) -> Reference:
        """The same with `KEY=VALUE` settings, such as nic_gbps=400 or site.launch_us=30; values are YAML.

        `prefix`: what the user wrote before each of them, for errors. UserError for an unknown key, or text
        of another form. Types and ranges are checked when the model or system is made.
        """
        settings = list(settings)
        if not settings:
            return self
        changes: dict[str, Any] = {}
        for text in settings:
            where = f"{prefix}{shown(text)}"
            setting = in_field_units(self.kind, _setting(text, where, self.kind), where)
            changes = _overlaid(changes, setting)
        return replace(
            self,
            content=_merged(self.content, changes),
            where=f"{self.where} with {', '.join(map(shown, settings))}",
            changes=self.changes.union(changes),
        )

    @property
    def user_files(self) -> tuple[Path, ...]:
        """The files of the chain that do not ship with the package."""
        return tuple(path for path in self.files if _PACKAGE not in path.resolve().parents)


Spec = TypeVar("Spec")


class SpecCache(Generic[Spec]):
    """What names and files state, kept by name. The file of a user is read again where it has changed, or
    where one that it extends has.
    """

    def __init__(self, reference_of: Callable[[Any], Reference], spec_of: Callable[[Reference], Spec]):
        self._reference_of, self._spec_of = reference_of, spec_of
        self._entries: dict[str | Path, tuple[dict[Path, tuple[int, ...] | None], Spec]] = {}

    def load(self, name: str | Path) -> Spec:
        """What a name or a file states. Raises as the two functions do."""
        entry = self._entries.get(name)
        if entry is None or any(file_state(path) != state for path, state in entry[0].items()):
            reference = self._reference_of(name)
            states = {path: file_state(path) for path in reference.user_files}
            entry = self._entries[name] = states, self._spec_of(reference)
        return entry[1]


def resolved_digest(spec: object) -> str:
    """Hash of a model or a system as resolved: of all its values, whichever file states them."""
    return hashlib.sha256(repr(spec).encode()).hexdigest()


def _path(noun: str, name: str | Path, folder: Path) -> Path:
    text = str(name)
    if isinstance(name, Path) or names_file(text) or (noun == "system" and "/" in text):
        return Path(text)
    shipped = {path.stem: path for path in folder.glob("*.yaml")}
    if text not in shipped:
        raise UnknownName(noun, text, shipped)
    return shipped[text]


def _base(noun: str, base: Any, chain: list[Path], folder: Path) -> Path:
    """The file that the last of the chain extends."""
    where = f"{chain[-1]}: extends={quoted(base)}"
    if not isinstance(base, str) or not base.strip() or "\0" in base:
        raise UserError(f"{chain[-1]}: extends: must be the name of a {noun}, or a file")
    try:
        path = _path(noun, base, folder)
        path = path if path.parent == folder else chain[-1].parent / base
    except UnknownName as error:
        raise UserError(f"{where}: {error}") from None
    if any(os.path.realpath(path) == os.path.realpath(ancestor) for ancestor in chain):
        cycle = " extends ".join(str(link) for link in [*chain, path])
        raise UserError(f"{where}: is a cycle ({cycle}); let one of these files stand alone")
    if len(chain) == _LONGEST_CHAIN:
        raise UserError(f"{where}: more than {_LONGEST_CHAIN} files extend each other; merge some of them")
    return path


def _files_beside(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """The values of `_FILES` that are files relative to the folder of `path`, as paths."""
    names = {key: content[key] for key in _FILES if isinstance(content.get(key), str)}
    files = {key: value for key, value in names.items() if names_file(value) or value.endswith(".csv")}
    paths = {key: path.parent / value for key, value in files.items()}
    return {key: str(file) for key, file in paths.items() if os.path.isfile(file)}


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `change`, without what was measured with other values of these keys."""
    lasting = {key: value for key, value in base.items() if _MEASURED_WITH.get(key) not in change}
    return _overlaid(lasting, change)


def _overlaid(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `change`; mappings in both are merged key by key."""
    merged = dict(base)
    for key, value in change.items():
        base_value = merged.get(key)
        if isinstance(base_value, Mapping) and isinstance(value, Mapping):
            value = {**base_value, **value}
        merged[key] = value
    return merged


def in_field_units(kind: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`content` with its keys in Gb/s and microseconds replaced by those of the fields.

    UserError for a quantity that is stated in two units, and for one that is not a number.
    """
    fields = dict(content)
    for outer, value in content.items():
        if isinstance(value, Mapping):
            fields[outer] = _converted(value, f"{outer}.", kind, where)
    return _converted(fields, "", kind, where)


def _converted(content: Mapping[str, Any], prefix: str, kind: type, where: str) -> dict[str, Any]:
    fields = dict(content)
    for key, value in content.items():
        unit = _in_other_units(kind).get(f"{prefix}{key}")
        if unit is not None:
            name = unit.field.removeprefix(prefix)
            if name in content:
                raise UserError(f"{where}: {key} and {name} state the same quantity; keep one")
            del fields[key]
            fields[name] = _number(value, f"{where}: {key}={quoted(value)}") * unit.factor / unit.divisor
    return fields


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The keys of a file of this kind, nested ones as `outer.inner`."""
    return tuple(key.name for key in keys_of(kind))


@cache
def _in_other_units(kind: type) -> dict[str, _Unit]:
    """The keys of such a file in units that people use, and what turns them into those of the fields."""
    rate, time = "_bytes_per_s", "_s"
    fields = {}
    for name in _names(kind):
        if name.endswith(rate):
            fields[name.removesuffix(rate) + "_gbps"] = _Unit(name, 1e9, 8)
        elif name.endswith(time):
            fields[name.removesuffix(time) + "_us"] = _Unit(name, 1, 1e6)
    return fields


def _number(value: Any, where: str) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: must be a number") from None


def _setting(text: str, where: str, kind: type) -> dict[str, Any]:
    """The mapping that one KEY=VALUE stands for."""
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key or not raw.strip():
        raise UserError(f"{where}: write KEY=VALUE, as in nic_gbps=400")
    allowed = {*_names(kind), *_in_other_units(kind)}
    if key not in allowed:
        raise UserError(f"{where}: {UnknownName('key', key, allowed)}")
    try:
        value = parse_yaml(raw)
    except ValueError:
        raise UserError(f"{where}: the value is not valid YAML") from None
    outer, dot, inner = key.partition(".")
    return {outer: {inner: value}} if dot else {key: value}
