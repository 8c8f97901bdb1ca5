"""What a result depends on besides its settings: hashes of code, policies and files, and the versions that a
manifest states.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clustersim.cluster import Cluster
from clustersim.speed import Speed
from itertime.errors import UserError
from itertime.io import MAX_BYTES, names_file, sha256, shown
from itertime.spec import SHIPPED_PROFILES, System, is_system_file, profile_of, system_reference

from .policies import find_policy, hash_of_files

__all__ = [
    "PARTS",
    "code_hash",
    "hash_of_parts",
    "is_of_this_code",
    "malformed_versions",
    "other_libraries",
    "policy_hash",
    "recipe_hash",
    "systems_hash",
    "versions",
]

# Our own code

SIMULATOR = (
    "cluster", "overheads", "failures", "placement", "records", "sites", "speed", "bounds", "jobs", "rundir",
    "analysis", "scheduler", "engine", "runs", "energy.py", "errors.py", "gctuning.py", "jit.py",
)  # fmt: skip
"""The parts of `clustersim` that a result depends on: all layers up to `runs` but `report` and `export`."""

PARTS: Mapping[str, tuple[str, ...]] = {"itertime": (".",), "traces": (".",), "clustersim": SIMULATOR}
"""The folders and files of each package that a result depends on."""


@cache
def code_hash() -> str:
    """Hash of all our files that a result depends on; equal wherever the same program is installed."""
    digests = []
    for package, parts in PARTS.items():
        file = import_module(package).__file__
        assert file is not None
        digests.append(hash_of_parts(Path(file).parent, parts))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def hash_of_parts(folder: Path, parts: Iterable[str]) -> str:
    """Hash of the names and contents of some files of a folder: whole sub-folders, or single files."""
    files: list[Path] = []
    for part in parts:
        path = folder / part
        assert path.exists(), f"{path} is not there, so it cannot be part of a hash"
        files += path.rglob("*") if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in sorted(files):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(f"{file.relative_to(folder).as_posix()} {sha256(file)}\n".encode())
    return total.hexdigest()


# Policies and files


def policy_hash(name: str) -> str:
    """Hash of the file of a policy and the files beside it that it depends on, or of the whole package that
    contains it. OSError or UnknownName for a policy that does not exist.
    """
    if ".py:" in name:
        return hash_of_files(name.rpartition(":")[0])  # not imported: that runs it
    return _package_hash(find_policy(name).__module__)


@cache
def _package_hash(name: str) -> str:
    # A package that is spread over several folders has no file of its own: then the module alone.
    path = import_module(name.partition(".")[0]).__file__ or import_module(name).__file__
    assert path is not None
    file = Path(path)
    return hash_of_parts(file.parent, (".",)) if file.name == "__init__.py" else sha256(file)


def recipe_hash(recipe: Mapping[str, Any]) -> str | None:
    """Hash of the user's files among the sizes, rules and system of a generated trace; None if it has none.
    Files that are shipped with the program are part of `code_hash`. OSError, ValueError if a file cannot be
    read.
    """
    names = [recipe.get(part) for part in ("sizes", "rules")]
    files = [name for name in names if isinstance(name, str) and names_file(name)]
    paths = [*map(Path, files), *_files_of_system(recipe.get("system"))]
    digests = [sha256(path, MAX_BYTES) for path in paths]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if digests else None


def _files_of_system(name: object) -> tuple[Path, ...]:
    """The user's files that state a system: its own, and those that it extends."""
    if not isinstance(name, str):
        return ()
    return _read_files(name) if is_system_file(name) else _shipped_files(name)


def _read_files(name: str) -> tuple[Path, ...]:
    try:
        return system_reference(name).user_files
    except UserError as error:
        raise ValueError(str(error)) from error


_shipped_files = cache(_read_files)  # what is shipped does not change while a process runs


def systems_hash(cluster: Cluster, speed: Speed) -> str:
    """Hash of the systems of the nodes and their profiles, as `speed` has read them, maybe from files."""
    texts = []
    for gpu_type in cluster.gpu_types:
        system = speed.system_of(gpu_type)
        if system is None:
            texts.append("none")
        else:
            shipped = system.profile in SHIPPED_PROFILES
            texts.append(_text_of_shipped(system) if shipped else _text_of(system))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _text_of(system: System) -> str:
    """Everything that a system and its profile say."""
    return f"{system!r} {profile_of(system).digest}"


_text_of_shipped = lru_cache(maxsize=64)(_text_of)
"""The same for systems with shipped profiles, kept for later runs."""


# Versions

_VERSION = re.compile(r"\d[\w.+!-]*", re.ASCII)
_VERSIONS = {"clustersim": _VERSION, "code": re.compile("[0-9a-f]{64}")}
"""The form of the versions by which a run identifies the program that made it."""


LIBRARIES = ("numpy", "scipy", "simpy")
"""What computes numbers besides our own code; scipy solves the programs of some policies."""


_version = cache(version)  # reads the metadata of an installed package


def versions() -> dict[str, str]:
    """The versions of the program and of what computes numbers besides, which do not change in a process."""
    versions = {
        "clustersim": _version("clustersim"),
        "code": code_hash(),
        "python": platform.python_version(),
    }
    for name in LIBRARIES:
        versions[name] = _version(name)
    return versions


def other_libraries(manifest: Mapping[str, Any]) -> str:
    """How Python and the libraries that made a run differ from those here, as `numpy 1.26.4 (here 2.4.6)`;
    empty if they do not. Last digits may depend on them: Python 3.12 sums floats in another way than 3.11.
    """
    entry = manifest.get("versions")
    of_run: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    installed = versions()
    different = [name for name in ("python", *LIBRARIES) if of_run.get(name) != installed[name]]
    return ", ".join(f"{name} {shown(of_run.get(name))} (here {installed[name]})" for name in different)


def is_of_this_code(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest names the program that is installed here as the one that made the run."""
    entry = manifest.get("versions")
    return isinstance(entry, dict) and entry.get("code") == code_hash()


def malformed_versions(manifest: Mapping[str, Any]) -> str:
    """What is wrong with the versions in a manifest; empty if a program could have written them."""
    entry = manifest.get("versions")
    if not isinstance(entry, dict):
        return f"versions is {shown(entry)}, not what made the run"
    for name, form in _VERSIONS.items():
        if not isinstance(entry.get(name), str) or not form.fullmatch(entry[name]):
            return f"versions.{name} is {shown(entry.get(name))}, which no program writes"
    installed = versions()
    if is_of_this_code(manifest) and entry["clustersim"] != installed["clustersim"]:
        return f"versions.clustersim is {shown(entry['clustersim'])}; this code has {installed['clustersim']}"
    for name in ("python", *LIBRARIES):
        if name in entry and not (isinstance(entry[name], str) and _VERSION.fullmatch(entry[name])):
            return f"versions.{name} is {shown(entry[name])}, which no program writes"
    return ""
