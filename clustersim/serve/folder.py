"""What the page may see of the served folder: known files inside it, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustersim.rundir import EVENTS_FILE, MANIFEST, log_of, read_json
from itertime.errors import UserError

__all__ = ["HOME", "REPORT", "ServedFolder"]

HOME = ".serve"
"""The folder inside the served one for what started comparisons print."""
REPORT = "report.html"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=,+@ -]*|\.[0-9a-f]+\.[0-9a-f]+\.tmp")  # also a grid's cell
_DEEPEST, _MOST_RUNS, _MOST_LOOKED = 3, 500, 20_000
_TRACES = (".csv", ".csv.gz", ".parquet")


class ServedFolder:
    """The folder `root`. Paths from the page are relative to it; UserError for any that leaves it."""

    def __init__(self, root: str | Path):
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise UserError(f"{root}: is not a folder; make it first")

    def inside(self, relative: str) -> Path:
        """A file or folder in `root`, all links followed."""
        parts = relative.split("/")
        if all(map(_PART.fullmatch, parts)):
            path = self.root.joinpath(*parts).resolve()
            if path.is_relative_to(self.root) and path.exists():
                return path
        raise UserError("there is no such file in the served folder")

    def run(self, relative: str) -> Path:
        """The folder of a run, none of whose files lies elsewhere."""
        home = self.inside(relative)
        if not home.is_dir() or log_of(home) is None:
            raise UserError("there is no such run in the served folder")
        if self._leads_out(home):
            raise UserError("the run has files outside the served folder")
        return home

    def report(self, relative: str) -> Path:
        """The report in a folder, which may lie below that of a comparison."""
        path = self.inside(f"{relative}/{REPORT}")
        if not path.is_file():
            raise UserError("there is no such report")
        return path

    def trace(self, name: str) -> Path:
        """A file that `traces` lists."""
        if name not in self.traces():
            raise UserError("there is no such trace in the served folder")
        return self.root / name

    def traces(self) -> list[str]:
        """The names of the CSV and Parquet files in `root` itself."""
        return sorted(
            entry.name
            for entry in os.scandir(self.root)
            if entry.name.endswith(_TRACES)
            and _PART.fullmatch(entry.name)
            and entry.is_file()
            and Path(entry.path).resolve().is_relative_to(self.root)
        )

    def runs(self) -> list[dict[str, Any]]:
        """Every run as `path`, `status` and `policy` (empty before its end), in order of their paths."""
        found: list[dict[str, Any]] = []
        for path in self._folders():
            log = log_of(path)
            if log is not None and len(found) < _MOST_RUNS and not self._leads_out(path):
                done = log.name == EVENTS_FILE
                policy = _policy_of(path / MANIFEST) if done else ""
                status = "complete" if done else "in progress"
                found.append({"path": self._relative(path), "status": status, "policy": policy})
        return found

    def reports(self) -> list[str]:
        """The folders with a report."""
        found = (path for path in self._folders() if (path / REPORT).is_file())
        return [self._relative(path) for path in found if not self._leads_out(path)]

    def _leads_out(self, home: Path) -> bool:
        """Whether a file of the folder is a link to one outside `root`."""
        links = (Path(entry.path) for entry in os.scandir(home) if entry.is_symlink())
        return not all(link.resolve().is_relative_to(self.root) for link in links)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _folders(self) -> Iterator[Path]:
        """The folders at most three levels down, in order; links are not followed."""
        looked = 0
        left = [(self.root, 0)]
        while left:
            folder, depth = left.pop()
            if depth:
                yield folder
            if depth == _DEEPEST:
                continue
            try:
                inside = sorted(
                    (e.name for e in os.scandir(folder) if e.is_dir(follow_symlinks=False)), reverse=True
                )
            except OSError:
                continue  # not ours to read, or gone
            looked += len(inside)
            if looked <= _MOST_LOOKED:
                left += [(folder / name, depth + 1) for name in inside if _PART.fullmatch(name)]


def _policy_of(manifest: Path) -> str:
    try:
        return _policy_in(manifest, manifest.stat().st_mtime_ns)
    except (OSError, UserError):
        return ""


@lru_cache(maxsize=_MOST_RUNS)
def _policy_in(manifest: Path, changed_ns: int) -> str:
    return str(read_json(manifest).get("policy", ""))
