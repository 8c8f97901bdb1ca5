"""Reading the folder of a run of any length: row by row, never a whole table in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cluster import Cluster
from .plan_records import PlanRecord
from .records import EventRecord, JobRecord, Snapshot
from .rundir_format import (
    EVENTS_FILE,
    MANIFEST,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    cluster_in,
    jobs_file,
    read_json,
    read_manifest,
    text_of,
)
from .rundir_rows import StoredRows
from .rundir_tables import EVENTS, JOBS, PLANS, USAGE

__all__ = ["StreamedRun", "read_streamed"]


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
