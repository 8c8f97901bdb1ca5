"""The files that a policy in a file of its own depends on: modules and data beside it.

They are found in the source, because running it would have effects and would miss modules that are already
loaded. Found are files in the folder of the policy, or below, that an import statement names, wherever it
stands, and files that a text in the source names (`open("weights.json")`, `import_module("helper")`). A name
that the source computes is not found.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from itertime.io import read_bytes, sha256

__all__ = ["files_of", "hash_of_files"]

_LONGEST_NAME = 200  # characters of a text that may be the name of a file


def hash_of_files(file: str | Path) -> str:
    """Hash of a policy's file and of all files beside it that it depends on: their names and contents. That
    of the file's bytes if it depends on no other. OSError if one cannot be read.
    """
    files = files_of(Path(file))
    if len(files) == 1:
        return sha256(file)
    folder, total = files[0].parent, hashlib.sha256()
    for one in files:
        total.update(f"{one.relative_to(folder).as_posix()} {sha256(one)}\n".encode())
    return total.hexdigest()


def files_of(file: Path) -> list[Path]:
    """The file of a policy, then the others that it depends on, directly or through another one, by name.
    OSError if one cannot be read.
    """
    file = Path(os.path.abspath(file))
    found, todo = {file}, [file]
    while todo:
        source = todo.pop()
        if source.suffix == ".py":
            named = {one for one in _named_in(source, file.parent) if one.is_file()} - found
            found |= named
            todo += sorted(named)
    return [file, *sorted(found - {file})]


def _named_in(source: Path, folder: Path) -> Iterator[Path]:
    """Paths in `folder` that the source of a module names; there need not be files."""
    try:
        tree = ast.parse(read_bytes(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # importing it fails too
    for node in ast.walk(tree):
        for path in _paths(node, source, folder):
            if path.is_relative_to(folder):
                yield path


def _paths(node: ast.AST, source: Path, folder: Path) -> Iterator[Path]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield from _modules(name.name.split("."), source, folder)
    elif isinstance(node, ast.ImportFrom):
        parts = node.module.split(".") if node.module else []
        for name in node.names:
            if node.level:
                home = source.parents[node.level - 1] if node.level <= len(source.parents) else source.parent
                yield from _chain(home, [*parts, name.name])
            else:
                yield from _modules([*parts, name.name], source, folder)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
        if 0 < len(text) <= _LONGEST_NAME and text.isprintable():
            for home in dict.fromkeys((source.parent, folder)):
                yield Path(os.path.normpath(home / text))
            if all(part.isidentifier() for part in text.split(".")):
                yield from _modules(text.split("."), source, folder)


def _modules(parts: list[str], source: Path, folder: Path) -> Iterator[Path]:
    """Files of the module `parts`, if it lies beside the source or the policy, or in a package around it."""
    for home in dict.fromkeys((source.parent, folder)):
        yield from _chain(home, parts)
    for around in (folder, *folder.parents):
        if around.name == parts[0]:
            yield from _chain(around.parent, parts)


def _chain(home: Path, parts: list[str]) -> Iterator[Path]:
    """The files that an import of `parts` from `home` reads: packages on the way, and the module."""
    for i in range(len(parts) + 1):
        inner = home.joinpath(*parts[:i])
        yield inner / "__init__.py"
        if i:
            yield inner.with_suffix(".py")
