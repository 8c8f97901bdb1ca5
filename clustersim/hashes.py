"""Hashes of what a result depends on besides its settings: code, policies, files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from itertime.datafile import MAX_BYTES
from traces.files import sha256
from traces.rules import FILE_ENDINGS

from .registry import find_policy

if TYPE_CHECKING:
    from .cluster import Cluster
    from .speed import Speed

__all__ = ["code_hash", "digest", "policy_hash", "recipe_hash", "systems_hash"]

SHOW_ALONE = (
    "commands", "grid", "templates", "report", "plot", "timeline", "statistics", "steady_state", "checking",
    "explanation", "testing", "allocations", "gpu_time", "replaying",
)  # fmt: skip
"""First words of the parts of `clustersim` that look at results and take no part in making them."""


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def policy_hash(name: str) -> str:
    """Of the file of a policy, or of the whole package that it is part of. OSError, UnknownName if there is
    none.
    """
    if ".py:" in name:
        return sha256(name.rpartition(":")[0])  # not imported: that runs it
    return _package_hash(find_policy(name).__module__)


@cache
def _package_hash(name: str) -> str:
    # A package in several places has no file of its own: then the module alone.
    found = import_module(name.partition(".")[0]).__file__ or import_module(name).__file__
    assert found is not None
    file = Path(found)
    return _hash_of(file.parent.rglob("*"), file.parent) if file.name == "__init__.py" else sha256(file)


def recipe_hash(recipe: Mapping[str, Any]) -> str | None:
    """Of the files of their own that the sizes, rules and system of a generated trace are; None if there are
    none: those that are shipped are part of the program. OSError, ValueError if one cannot be read.
    """
    names = [recipe.get(part) for part in ("sizes", "rules", "system")]
    files = [name for name in names if isinstance(name, str) and name.endswith(FILE_ENDINGS)]
    digests = [sha256(name, MAX_BYTES) for name in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if files else None


def systems_hash(cluster: Cluster, speed: Speed) -> str:
    """Of the systems of the nodes and their profiles, which may come from files, as `speed` has read them."""
    planners = [speed.planner_of(gpu_type) for gpu_type in cluster.gpu_types]
    texts = ["none" if found is None else f"{found.system!r} {found.profile.digest}" for found in planners]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@cache
def code_hash() -> str:
    """Of all files of ours that a result depends on; equal wherever the same program is installed."""
    digests = []
    for name in ("itertime", "traces", "clustersim"):
        file = import_module(name).__file__
        assert file is not None
        folder = Path(file).parent
        files = list(folder.rglob("*"))
        if name == "clustersim":
            files = [f for f in files if not f.relative_to(folder).as_posix().startswith(SHOW_ALONE)]
        digests.append(_hash_of(files, folder))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _hash_of(files: Iterable[Path], folder: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(f"{file.relative_to(folder).as_posix()} {sha256(file)}\n".encode())
    return total.hexdigest()
