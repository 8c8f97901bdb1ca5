"""Writing the folder of a run during the run, so that memory holds only the jobs that are in the system.
Files are moved to their names after everything has been written.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import numpy as np

from clustersim.cluster import Cluster
from clustersim.records import (
    FINISHED,
    Columns,
    JobRecord,
    PlanRecord,
    Recorder,
    Run,
    Snapshot,
)
from itertime.errors import UserError
from itertime.io import (
    Table,
    check_parquet,
    open_regular,
    replacing,
    sha256,
    temporary_beside,
    without_guard,
)

from .csv_in import parse_rows
from .csv_out import EVENTS, JOBS, PLANS, USAGE, csv_text, header_of
from .destination import REQUESTS, SPOOL, remove, usable
from .format import (
    EVENTS_FILE,
    FORMAT,
    JOBS_CSV,
    JOBS_PARQUET,
    MANIFEST,
    MANIFEST_HASH,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    json_bytes,
    manifest_hash,
)
from .parquet_out import ParquetRows
from .reading import stored_tables
from .spool import GrowingFile, GrowingTable, Spool

__all__ = ["RunWriter", "write_run"]

_ROWS = 100_000  # copied at once
_SHOW_EVERY_S = 0.2  # how often readers of a run in progress see new events, where jobs leave as often


def write_run(directory: str | Path, run: Run, *, parquet: bool = False) -> Run:
    """Write `run` to a folder, whole or not at all; returns it with its manifest completed.

    The folder is created if necessary. It may hold an earlier run, which is replaced, but no files of another
    kind. All files are first written beside their destinations, so a full disk leaves an earlier run intact.
    Then the old manifest is removed and the files are moved, the manifest last. UserError, in one line that
    names the path, if something cannot be written.
    """
    with RunWriter(directory, run.cluster, parquet=parquet) as writer:
        writer.copy(run)
        written = writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
    return replace(run, manifest=written.manifest)


class RunWriter(Recorder):
    """A recorder that writes the records of a run to the files of its folder.

    The folder is created if necessary. It may hold an earlier run, which is replaced when this one ends, but
    no files of another kind. A context manager: leaving it without `finish` leaves the folder as it was.
    `about`: what the temporary file of the manifest states while the run goes on, beside the cluster.
    UserError, in one line that names the path, if something cannot be written.
    """

    def __init__(
        self, folder: str | Path, cluster: Cluster, *, parquet: bool = False,
        about: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        self.folder, self._parquet = Path(folder), parquet
        if parquet:
            check_parquet(self.folder / JOBS_PARQUET)
        self._show_at = 0.0
        self._asked: list[tuple[str, int]] = []
        self._files = ExitStack()
        self._finished = False
        self._job_columns = Columns(JobRecord, coded=("state",))
        self._usage_columns = Columns(Snapshot)
        with self._files:  # undone if this fails
            self._files.enter_context(usable(self.folder))
            hidden_paths = {}  # files are moved from the last to the first
            self._jobs_file = JOBS_PARQUET if parquet else JOBS_CSV
            for name in (MANIFEST, SUMMARY, PLANS_FILE, USAGE_FILE, EVENTS_FILE, self._jobs_file):
                hidden_paths[name] = self._files.enter_context(replacing(self.folder / name))
            self._beside = hidden_paths
            self._events = GrowingTable(self._open(EVENTS_FILE), EVENTS)
            self._usage = GrowingTable(self._open(USAGE_FILE), USAGE, self._usage_columns)
            spool, requests = self._temporary(SPOOL), self._temporary(REQUESTS)
            for path in (spool, requests):
                self._files.callback(path.unlink, missing_ok=True)
            self._requests = GrowingFile(self.folder / REQUESTS, requests)
            early = {"format": FORMAT, "complete": False, **(about or {}), "cluster": cluster.document()}
            hidden_paths[MANIFEST].write_bytes(json_bytes(early))
            self._files.callback(self._requests.close)
            self._spool = Spool(self.folder / self._jobs_file, spool, self._job_columns)
            self._files = self._files.pop_all()
        super().__init__(cluster, self._events.add, self._usage.add)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self._files.__exit__(kind or _Abandoned, error or _Abandoned(), trace)

    # Records

    def request(self, job_id: str, gpus: int) -> None:
        self._asked.append((job_id, gpus))

    def keep_job(self, record: JobRecord, order: int) -> None:
        self._spool.add(record, order)
        if (now := monotonic()) >= self._show_at:
            self._show_at = now + _SHOW_EVERY_S
            self._show()

    def _show(self) -> None:
        """Let readers see what is written, the requests of jobs before their events."""
        rows = io.StringIO(newline="")
        csv.writer(rows, lineterminator="\n").writerows(self._asked)
        self._asked.clear()
        self._requests.write(rows.getvalue().encode())
        self._requests.show()
        self._events.show()

    def copy(self, run: Run) -> None:
        """Add the records of a run that has ended."""
        for order, record in enumerate(run.jobs):
            self._spool.add(record, order)
        for event in run.events:
            self._events.add(event)
        for snapshot in run.snapshots:
            self._usage.add(snapshot)

    @property
    def event_count(self) -> int:
        return len(self._events)

    @property
    def job_table(self) -> Columns:
        """The numeric fields of all job records so far, and their states."""
        self._spool.flush()
        return self._job_columns

    @property
    def finished(self) -> np.ndarray:
        """For each job in the order of submission, whether it finished; after every job was recorded."""
        is_finished = np.zeros(len(self.job_table), bool)
        is_finished[self._spool.orders] = self._job_columns.equal("state", FINISHED)
        return is_finished

    @property
    def usage_table(self) -> Columns:
        """The snapshots so far."""
        self._usage.flush()
        return self._usage_columns

    # The end

    def finish(
        self, policy: str, planner: str, summary: dict[str, Any], manifest: Mapping[str, Any],
        plans: list[PlanRecord],
    ) -> Run:  # fmt: skip
        """Complete the manifest and move every file to its name, the manifest last. The records of the run
        that is returned are read from the folder on first access.
        """
        ours = {"policy": policy, "planner": planner, "cluster": self.cluster.document()}
        completed = self._move({"format": FORMAT, "complete": True, **manifest, **ours}, summary, plans)
        counts = (len(self._job_columns), self.event_count, len(self._usage_columns))
        jobs, events, usage = stored_tables(self.folder, self.cluster, counts)
        return Run(
            policy=policy,
            planner=planner,
            cluster=self.cluster,
            jobs=jobs,
            events=events,
            snapshots=usage,
            summary=summary,
            manifest=completed,
            plans=plans,
        )

    def _move(
        self, manifest: dict[str, Any], summary: dict[str, Any], plans: list[PlanRecord]
    ) -> dict[str, Any]:
        hashes: dict[str, str] = {}
        with self._files:
            self._files = ExitStack()
            result_hash, hashes[self._jobs_file] = self._write_jobs()
            hashes[EVENTS_FILE], hashes[USAGE_FILE] = self._events.finish(), self._usage.finish()
            hashes[PLANS_FILE] = self._write_file(PLANS_FILE, csv_text(PLANS, plans).encode())
            hashes[SUMMARY] = self._write_file(SUMMARY, json_bytes(summary))
            order = (SUMMARY, PLANS_FILE, USAGE_FILE, EVENTS_FILE, self._jobs_file)
            files = {name: hashes[name] for name in order}
            completed = {**manifest, "result_hash": result_hash, "files": files}
            completed[MANIFEST_HASH] = manifest_hash(completed)
            self._write_file(MANIFEST, json_bytes(completed))
            remove(self.folder, MANIFEST, JOBS_CSV if self._parquet else JOBS_PARQUET)
            self._finished = True
        return completed

    def _temporary(self, name: str) -> Path:
        try:
            return temporary_beside(self.folder / name)
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written: {error.strerror or error}") from None

    def _open(self, name: str) -> GrowingFile:
        return GrowingFile(self.folder / name, self._beside[name])

    def _write_file(self, name: str, content: bytes) -> str:
        file = self._open(name)
        file.write(content)
        return file.finish()

    def _write_jobs(self) -> tuple[str, str]:
        """The hash of the jobs as CSV, and of the file that holds them."""
        if self._parquet:
            return self._write_parquet()
        file = self._open(self._jobs_file)
        file.write(f"{header_of(self._spool.columns)}\n".encode())
        rows = self._spool.rows()
        while block := b"".join(islice(rows, _ROWS)):
            file.write(block)
        job_rows = file.finish()
        return job_rows, job_rows

    def _write_parquet(self) -> tuple[str, str]:
        columns, path = self._spool.columns, self._beside[self._jobs_file]
        text, rows = hashlib.sha256(f"{header_of(columns)}\n".encode()), self._spool.rows()
        with ParquetRows(self.folder / self._jobs_file, path, columns) as file:
            while block := b"".join(islice(rows, _ROWS)):
                text.update(block)
                cells = enumerate(csv.reader(io.StringIO(block.decode(), newline="")))
                table = Table(path, [column.name for column in columns], cells)
                file.add(list(parse_rows(table, JOBS, JobRecord, self.cluster, without_guard)))
        with open_regular(path, links=False) as written:
            os.fsync(written.fileno())
            return text.hexdigest(), sha256(path)


class _Abandoned(Exception):
    """The block of a writer ended without `finish`."""
