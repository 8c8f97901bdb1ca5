"""Writing the folder of a run while the run goes on, so that memory holds the jobs in the system, not those
that have left it. Nothing is in its place before everything is written.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from itertime.atomic import replacing
from traces.files import Table
from traces.formulas import without_guard

from .cluster import Cluster
from .columns import Columns
from .plan_records import PlanRecord
from .records import JobRecord, Recorder, Snapshot
from .rundir import (
    EVENTS_FILE,
    FORMAT,
    JOBS_CSV,
    JOBS_PARQUET,
    MANIFEST,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    Run,
    json_bytes,
    manifest_hash,
    stored_tables,
)  # fmt: skip
from .rundir_growing import GrowingFile, GrowingTable, Spool
from .rundir_place import SPOOL, remove, usable
from .rundir_rows import parse_rows
from .rundir_tables import (
    EVENTS,
    JOBS,
    PLANS,
    USAGE,
    csv_text,
    header_of,
)  # fmt: skip

__all__ = ["RunWriter"]

_ROWS = 100_000  # copied at once


class RunWriter(Recorder):
    """Records that go into the files of a run's folder as they come.

    The folder is made if need be; it may hold an earlier run, which is replaced when this one ends, but
    no files of another kind. A context manager: leaving it without `finish` leaves the folder as it was.
    UserError, in one line that names the path, if something cannot be written.
    """

    def __init__(self, folder: str | Path, cluster: Cluster, *, parquet: bool = False):
        super().__init__(cluster)
        self.folder, self._parquet = Path(folder), parquet
        self._files = ExitStack()
        self._finished = False
        self._job_columns = Columns(JobRecord, coded=("state",))
        self._usage_columns = Columns(Snapshot)
        with self._files:  # undone if this fails
            self._files.enter_context(usable(self.folder))
            beside = {}  # files are moved into place from the last to the first
            self._jobs_file = JOBS_PARQUET if parquet else JOBS_CSV
            for name in (MANIFEST, SUMMARY, PLANS_FILE, USAGE_FILE, EVENTS_FILE, self._jobs_file):
                beside[name] = self._files.enter_context(replacing(self.folder / name))
            self._beside = beside
            self._events = GrowingTable(self._growing(EVENTS_FILE), EVENTS)
            self._usage = GrowingTable(self._growing(USAGE_FILE), USAGE, self._usage_columns)
            spool = self.folder / f".{SPOOL}.{os.getpid()}.tmp"
            self._files.callback(lambda: spool.unlink(missing_ok=True))
            self._spool = Spool(self.folder / self._jobs_file, spool, self._job_columns)
            self._files = self._files.pop_all()
        self.keep_event, self.keep_snapshot = self._events.add, self._usage.add

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self._files.__exit__(kind or _Abandoned, error or _Abandoned(), trace)

    # Records

    def keep_job(self, record: JobRecord, order: int) -> None:
        self._spool.add(record, order)

    def keep_all(self, run: Run) -> None:
        """Take over the records of a run that has ended."""
        for order, record in enumerate(run.jobs):
            self.keep_job(record, order)
        for event in run.events:
            self.keep_event(event)
        for snapshot in run.snapshots:
            self.keep_snapshot(snapshot)

    @property
    def event_count(self) -> int:
        return len(self._events)

    @property
    def job_columns(self) -> Columns:
        """The numbers of all job records so far."""
        self._spool.flush()
        return self._job_columns

    @property
    def usage_columns(self) -> Columns:
        """The snapshots so far."""
        self._usage.flush()
        return self._usage_columns

    # The end

    def finish(
        self, policy: str, planner: str, summary: dict[str, Any], manifest: Mapping[str, Any],
        plans: list[PlanRecord],
    ) -> Run:  # fmt: skip
        """Put everything into its place, `manifest` (completed) last; returns the run, whose records are read
        from the folder when somebody looks at them.
        """
        ours = {"policy": policy, "planner": planner, "cluster": self.cluster.document()}
        completed = self._move({"format": FORMAT, "complete": True, **manifest, **ours}, summary, plans)
        counts = (len(self._job_columns), self.event_count, len(self._usage_columns))
        jobs, events, usage = stored_tables(self.folder, self.cluster, counts)
        return Run(policy, planner, self.cluster, jobs, events, usage, summary, completed, plans)

    def _move(
        self, manifest: dict[str, Any], summary: dict[str, Any], plans: list[PlanRecord]
    ) -> dict[str, Any]:
        hashes: dict[str, str] = {}
        with self._files:
            self._files = ExitStack()
            result_hash, hashes[self._jobs_file] = self._write_jobs()
            hashes[EVENTS_FILE], hashes[USAGE_FILE] = self._events.finish(), self._usage.finish()
            hashes[PLANS_FILE] = self._whole(PLANS_FILE, csv_text(PLANS, plans).encode())
            hashes[SUMMARY] = self._whole(SUMMARY, json_bytes(summary))
            order = (SUMMARY, PLANS_FILE, USAGE_FILE, EVENTS_FILE, self._jobs_file)
            completed = {
                **manifest, "result_hash": result_hash, "files": {name: hashes[name] for name in order},
            }  # fmt: skip
            completed["manifest_sha256"] = manifest_hash(completed)
            self._whole(MANIFEST, json_bytes(completed))
            remove(self.folder, MANIFEST, JOBS_CSV if self._parquet else JOBS_PARQUET)
            self._finished = True
        return completed

    def _growing(self, name: str) -> GrowingFile:
        return GrowingFile(self.folder / name, self._beside[name])

    def _whole(self, name: str, content: bytes) -> str:
        file = self._growing(name)
        file.write(content)
        return file.finish()

    def _write_jobs(self) -> tuple[str, str]:
        """The hash of the jobs as CSV, and of the file that holds them."""
        if self._parquet:
            return self._write_parquet()
        file = self._growing(self._jobs_file)
        file.write(f"{header_of(JOBS)}\n".encode())
        rows = self._spool.rows()
        while block := b"".join(islice(rows, _ROWS)):
            file.write(block)
        found = file.finish()
        return found, found

    def _write_parquet(self) -> tuple[str, str]:
        from .rundir_parquet import ParquetRows

        text, path = hashlib.sha256(f"{header_of(JOBS)}\n".encode()), self._beside[self._jobs_file]
        rows = self._spool.rows()
        with ParquetRows(self.folder / self._jobs_file, path) as file:
            while block := b"".join(islice(rows, _ROWS)):
                text.update(block)
                cells = enumerate(csv.reader(io.StringIO(block.decode(), newline="")))
                table = Table(path, [column.name for column in JOBS], cells)
                file.add(list(parse_rows(table, JOBS, JobRecord, self.cluster, without_guard)))
        with path.open("rb") as written:
            os.fsync(written.fileno())
            return text.hexdigest(), hashlib.file_digest(written, "sha256").hexdigest()


class _Abandoned(Exception):
    """The run was left without being finished."""
