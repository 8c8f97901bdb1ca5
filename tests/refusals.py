"""Wrong inputs and what is said of each, kept as text.

A file of refusals is YAML, a list of these:

| key | what |
|---|---|
| `case` | what is refused |
| `call` | the function or class, as `module:name` |
| `files` | texts that are there at every call |
| `inputs` | of each call: its `args` and `kwargs`, `files` that are there, what it `raises` and `says` |

Calls are made in an empty folder. A job is written as `{job: columns}`, a path as `{path: text}`, what
another call returns as `{call: module:name, args: ..., kwargs: ...}`, a class as `{object: module:name}`.

    python -m tests.refusals FILE...     # write what is said now into the files, and change nothing else
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from traces.job import Job

__all__ = ["Refusal", "load", "refused"]

Refusal = dict[str, Any]


def load(folder: Path) -> Iterator[tuple[str, Refusal]]:
    """Every input of the files of a folder: its name, and the entry with this input alone."""
    for file in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(file.read_text(encoding="utf-8")):
            for number, given in enumerate(entry["inputs"], 1):
                yield f"{file.stem}: {entry['case']} {number}", {**entry, "inputs": given}


def refused(entry: Refusal, folder: Path) -> tuple[str, str]:
    """The type of the error of an input, and what it says; "" if nothing is refused."""
    given = entry["inputs"]
    for name, text in {**entry.get("files", {}), **given.get("files", {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    with chdir(folder):
        try:
            _called(entry["call"], given)
        except Exception as error:
            return type(error).__name__, str(error).replace(f"{folder}/", "").replace(str(folder), ".")
    return "", ""


def _called(function: str, given: Refusal) -> Any:
    """What a function, as `module:name`, returns for the stated `args` and `kwargs`."""
    return _named(function)(*_made(given.get("args", [])), **_made(given.get("kwargs", {})))


def _named(place: str) -> Any:
    """What stands in a module, as `module:name`."""
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(module))


def _made(value: Any) -> Any:
    """The input that a text states."""
    if isinstance(value, dict):
        if "call" in value:
            return _called(value["call"], value)
        if set(value) == {"job"}:
            return Job(**value["job"])
        if set(value) == {"object"}:
            return _named(value["object"])
        if set(value) == {"path"}:
            return Path(value["path"])
        return {key: _made(inner) for key, inner in value.items()}
    return [_made(inner) for inner in value] if isinstance(value, list) else value


def renew(file: Path) -> None:
    """Write what is said now into a file."""
    text = file.read_text(encoding="utf-8")
    for entry in yaml.safe_load(text):
        for given in entry["inputs"]:
            with tempfile.TemporaryDirectory() as temporary:
                kind, said = refused({**entry, "inputs": given}, Path(temporary).resolve())
            old, new = (f"raises: {kind_}, says: {flow(said_)}" for kind_, said_ in (
                (given["raises"], given["says"]), (kind, said)
            ))  # fmt: skip
            text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def flow(value: Any) -> str:
    """A value as YAML on one line, within a mapping on this line."""
    return yaml.safe_dump([value], default_flow_style=True, width=10**6).strip()[1:-1]


if __name__ == "__main__":
    for each in sys.argv[1:]:
        renew(Path(each))
