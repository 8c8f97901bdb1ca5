"""Reading the folder of a run of any length: its tables are gone through row by row, not held."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cluster import Cluster
from .plan_records import PlanRecord
from .records import EventRecord, JobRecord, Snapshot
from .rundir import (
    EVENTS_FILE,
    MANIFEST,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    cluster_in,
    jobs_file,
    read_json,
    text_of,
)
from .rundir_rows import StoredRows
from .rundir_tables import EVENTS, JOBS, PLANS, USAGE

__all__ = ["StreamedRun", "read_streamed"]


@dataclass(frozen=True)
class StreamedRun:
    """A run as in its folder. Its tables may be gone through several times, and are then read anew; what
    cannot be read of them (UserError, TableError) shows only then.
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
    """As `read_unverified`: files are believed. UserError for what cannot be read."""
    folder = Path(directory)
    manifest = read_json(folder / MANIFEST)
    cluster = cluster_in(folder / MANIFEST, manifest)
    return StreamedRun(
        folder,
        text_of(folder / MANIFEST, manifest, "policy"),
        cluster,
        StoredRows(jobs_file(folder), JOBS, JobRecord, cluster),
        StoredRows(folder / EVENTS_FILE, EVENTS, EventRecord, cluster),
        StoredRows(folder / USAGE_FILE, USAGE, Snapshot, cluster),
        StoredRows(folder / PLANS_FILE, PLANS, PlanRecord, cluster),
        read_json(folder / SUMMARY),
        manifest,
    )
