"""Reads the folder of a run: whole into memory, lazily, or row by row (format: see `clustersim.rundir`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustersim.cluster import Cluster
from clustersim.records import EventRecord, JobRecord, PlanRecord, Run, Snapshot

from .csv_in import StoredRows
from .csv_out import EVENTS, JOBS, PLANS, USAGE
from .format import (
    EVENTS_FILE,
    MANIFEST,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    cluster_in,
    jobs_file,
    read_json,
    read_manifest,
    refuse_changed,
    text_of,
)

__all__ = ["StreamedRun", "read_run", "read_streamed", "read_unverified", "stored_tables"]


def read_run(directory: str | Path) -> Run:
    """Read what `write_run` wrote. UserError if the run is not complete, or a file was changed since."""
    run = read_unverified(directory)
    refuse_changed(directory, run)
    return run


def read_unverified(directory: str | Path) -> Run:
    """As `read_run`, without comparing the files with the hashes in the manifest.

    UserError, TableError for what cannot be read at all.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    cluster = cluster_in(folder / MANIFEST, manifest)
    return Run(
        policy=text_of(folder / MANIFEST, manifest, "policy"),
        planner=text_of(folder / MANIFEST, manifest, "planner"),
        cluster=cluster,
        jobs=list(StoredRows(jobs_file(folder), JOBS, JobRecord, cluster)),
        events=list(StoredRows(folder / EVENTS_FILE, EVENTS, EventRecord, cluster)),
        snapshots=list(StoredRows(folder / USAGE_FILE, USAGE, Snapshot, cluster)),
        summary=read_json(folder / SUMMARY),
        manifest=manifest,
        plans=list(StoredRows(folder / PLANS_FILE, PLANS, PlanRecord, cluster)),
    )


_TABLES = {"jobs": (JOBS, JobRecord), "events": (EVENTS, EventRecord), "usage": (USAGE, Snapshot)}


def stored_tables(folder: Path, cluster: Cluster, lengths: tuple[int, int, int]) -> list[Sequence[Any]]:
    """Jobs, events and usage of a run that has just been written, with so many rows each."""
    paths = (jobs_file(folder), folder / EVENTS_FILE, folder / USAGE_FILE)
    return [
        _LazyRows(path, table, cluster, length)
        for path, table, length in zip(paths, _TABLES, lengths, strict=True)
    ]


class _LazyRows(Sequence[Any]):
    """The rows of a table in a folder, read when the first of them is needed. It can be pickled."""

    def __init__(self, path: Path, table: str, cluster: Cluster, length: int):
        self._path, self._table, self._cluster, self._length = path, table, cluster, length
        self._rows: list[Any] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: Any) -> Any:
        return self._read()[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def _read(self) -> list[Any]:
        if self._rows is None:
            self._rows = list(StoredRows(self._path, *_TABLES[self._table], self._cluster))
        return self._rows


@dataclass(frozen=True)
class StreamedRun:
    """A run in its folder. Each iteration over a table reads its file again, and raises UserError or
    TableError for rows that cannot be read.
    """

    folder: Path
    policy: str
    cluster: Cluster
    jobs: StoredRows
    events: StoredRows
    snapshots: StoredRows
    plans: StoredRows
    summary: dict[str, Any]
    manifest: dict[str, Any]


def read_streamed(directory: str | Path) -> StreamedRun:
    """As `read_unverified`, without comparing hashes. UserError for what cannot be read."""
    folder = Path(directory)
    manifest = read_manifest(folder)
    cluster = cluster_in(folder / MANIFEST, manifest)
    return StreamedRun(
        folder=folder,
        policy=text_of(folder / MANIFEST, manifest, "policy"),
        cluster=cluster,
        jobs=StoredRows(jobs_file(folder), JOBS, JobRecord, cluster),
        events=StoredRows(folder / EVENTS_FILE, EVENTS, EventRecord, cluster),
        snapshots=StoredRows(folder / USAGE_FILE, USAGE, Snapshot, cluster),
        plans=StoredRows(folder / PLANS_FILE, PLANS, PlanRecord, cluster),
        summary=read_json(folder / SUMMARY),
        manifest=manifest,
    )
