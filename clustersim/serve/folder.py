"""What the page may see of the served folder: known files inside it, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustersim.report.frame import look_of
from clustersim.rundir import EVENTS_FILE, is_growing, log_of, read_json, stated_of
from itertime.errors import UserError

__all__ = ["HOME", "REPORT", "ServedFolder"]

HOME = ".serve"
"""The folder inside the served one for what started comparisons print."""
REPORT = "report.html"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=,+@ -]*")
_MAKING = re.compile(r"\.([0-9a-f]{24})\.[0-9a-f]+\.tmp")  # the folder of a cell of a grid, until it is whole
_DEEPEST, _MOST_RUNS, _MOST_LOOKED = 3, 500, 20_000
_KEY = re.compile(r"[0-9a-f]{24}")
_LONGEST = 200  # letters of the name of a cell
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
            with suppress(OSError, RuntimeError):  # a name that is too long, a circle of links
                path = self.root.joinpath(*parts).resolve()
                if path.is_relative_to(self.root) and path.exists():
                    return path
        raise UserError("there is no such file in the served folder")

    def run(self, relative: str) -> Path:
        """The folder of a run, none of whose files lies elsewhere."""
        home = self._cell(relative) or self.inside(relative)
        if not home.is_dir() or log_of(home) is None:
            raise UserError("there is no such run in the served folder")
        if self._leads_out(home):
            raise UserError("the run has files outside the served folder")
        return home

    def _cell(self, relative: str) -> Path | None:
        """The folder of a cell that is being made, which has a temporary name."""
        grid, _, key = relative.rpartition("/")
        if not grid.endswith("/cells") or not _KEY.fullmatch(key) or (self.inside(grid) / key).exists():
            return None
        making = (path for path in self.inside(grid).glob(f".{key}.*.tmp") if _MAKING.fullmatch(path.name))
        return next((path for path in making if path.is_dir() and not path.is_symlink()), None)

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
            and self._is_file_inside(Path(entry.path))
        )

    def _is_file_inside(self, path: Path) -> bool:
        with suppress(OSError, RuntimeError):  # a circle of links
            return path.is_file() and path.resolve().is_relative_to(self.root)
        return False

    def runs(self) -> list[dict[str, Any]]:
        """Every run in order of its path: `path`, `status` (in progress, complete, or stopped if its process
        ended before), `policy` (empty if it states none), its `look` as of reports, and `cell`, the values of
        a cell of a grid in words.
        """
        documents: list[dict[str, Any]] = []
        for path in self._folders():
            log = log_of(path)
            if log is not None and len(documents) < _MOST_RUNS and not self._leads_out(path):
                done = log.name == EVENTS_FILE
                policy = _policy_of(path, log.stat().st_mtime_ns) if done else _policy_in(path)
                making = _MAKING.fullmatch(path.name)
                run_path = path.with_name(making[1]) if making else path
                cell = self._cell_of(run_path) if path.parent.name == "cells" else ""
                status = "complete" if done else "in progress" if is_growing(log) else "stopped"
                document = {"path": self._relative(run_path), "status": status}
                documents.append({**document, "policy": policy, "look": look_of(policy), "cell": cell})
        return documents

    def _cell_of(self, run: Path) -> str:
        """A cell of a grid in words; empty if its grid does not state it in a file of its own."""
        grid = run.parents[1]
        return "" if self._leads_out(grid) else _cells_of(grid).get(run.name, "")

    def reports(self) -> list[str]:
        """The folders with a report."""
        paths = (path for path in self._folders() if (path / REPORT).is_file())
        return [self._relative(path) for path in paths if not self._leads_out(path)]

    def _leads_out(self, home: Path) -> bool:
        """Whether a file of the folder is a link to one outside `root`."""
        links = (Path(entry.path) for entry in os.scandir(home) if entry.is_symlink())
        try:
            return not all(link.resolve().is_relative_to(self.root) for link in links)
        except (OSError, RuntimeError):  # a circle of links
            return True

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _folders(self) -> Iterator[Path]:
        """The folders at most three levels down, in order; links are not followed."""
        looked = 0
        open_folders = [(self.root, 0)]
        while open_folders:
            folder, depth = open_folders.pop()
            if depth:
                yield folder
            if depth == _DEEPEST:
                continue
            try:
                entries = sorted(
                    (e.name for e in os.scandir(folder) if e.is_dir(follow_symlinks=False)), reverse=True
                )
            except OSError:
                continue  # not ours to read, or gone
            looked += len(entries)
            if looked <= _MOST_LOOKED:
                subfolders = (n for n in entries if _PART.fullmatch(n) or _MAKING.fullmatch(n))
                open_folders += [(folder / name, depth + 1) for name in subfolders]


@lru_cache(maxsize=_MOST_RUNS)
def _policy_of(folder: Path, changed_ns: int) -> str:
    return _policy_in(folder)


def _policy_in(folder: Path) -> str:
    """The policy that a run states; empty if it states none."""
    return str(stated_of(folder).get("policy", ""))[:_LONGEST]


def _cells_of(grid: Path) -> Mapping[str, str]:
    """The cells of a grid by their keys, in words: the values of the axes that vary, and the seed."""
    path = grid / "grid.json"
    try:
        return _cells_in(path, path.stat().st_mtime_ns)
    except (OSError, UserError):
        return {}


@lru_cache(maxsize=16)
def _cells_in(path: Path, changed_ns: int) -> Mapping[str, str]:
    cells = read_json(path).get("cells")
    entries = [
        cell
        for cell in (cells if isinstance(cells, list) else [])
        if isinstance(cell, dict) and isinstance(cell.get("axes"), dict)
    ]
    values: dict[str, set[str]] = {}
    for name in dict.fromkeys(name for cell in entries for name in cell["axes"]):
        values[name] = {str(cell["axes"].get(name)) for cell in entries}
    varied = {name for name, texts in values.items() if len(texts) > 1}
    several_seeds = len({str(cell.get("seed")) for cell in entries}) > 1
    cell_names = {}
    for cell in entries:
        words = [f"{name} {value}" for name, value in cell["axes"].items() if name in varied]
        words += [f"seed {cell.get('seed')}"] if several_seeds or not words else []
        cell_names[str(cell.get("cell"))] = ", ".join(words)[:_LONGEST]
    return cell_names
