"""The folder of one run: what `write_run` leaves behind, and `read_run` trusts only after checking it.

| file | holds |
|---|---|
| `jobs.csv` or `jobs.parquet` | the fields of `JobRecord`, a row per submitted job, in order of submission |
| `events.csv` | the event log: the fields of `EventRecord`; places as `0-3x8;7x4`, nodes x GPUs on each |
| `usage.csv` | the use of the cluster over time: the fields of `Snapshot` |
| `plans.csv` | the training plans in use and where their iterations' time goes: the fields of `PlanRecord` |
| `summary.json` | the metrics (see `docs/metrics.md`) |
| `manifest.json` | what was run, with what, the hash of the result; written last: it marks a complete run |

Times are seconds on the trace's clock. In CSV a number is the shortest decimal text within 1e-6 of it (a
speed, `unit_s`, the shortest that reads back as the same number), an empty cell means None, truth is `true`
or `false`. Text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break,
or with apostrophes before one of these) is written with one more apostrophe in front, which reading takes
away again. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from itertime.errors import UserError
from traces.files import sha256, shown

from .cluster import Cluster
from .clusterfile import cluster_of
from .columns import by_field
from .hashes import digest
from .plan_records import PlanRecord
from .records import JOB_COLUMNS, EventRecord, JobRecord, Snapshot
from .rundir_rows import StoredRows
from .rundir_tables import EVENTS, JOBS, PLANS, USAGE, header_of, lines_of

__all__ = ["Recorded", "Run", "changes", "read_run", "read_unverified", "refuse_changed", "write_run"]

FORMAT = "clustersim-run-1"
COMPLETE, STOPPED, INTERRUPTED = "complete", "stopped", "interrupted"
"""How a run ended: by itself, by an error of its policy, by a user."""
JOBS_CSV, JOBS_PARQUET, EVENTS_FILE, USAGE_FILE = "jobs.csv", "jobs.parquet", "events.csv", "usage.csv"
PLANS_FILE, SUMMARY, MANIFEST = "plans.csv", "summary.json", "manifest.json"
OURS = (JOBS_CSV, JOBS_PARQUET, EVENTS_FILE, USAGE_FILE, PLANS_FILE, SUMMARY, MANIFEST)
_OWN_HASH = "manifest_sha256"
_BLOCK = 10_000
_LARGEST_JSON = 20_000_000  # bytes; a calendar of the largest size that is read takes half of it


@dataclass(frozen=True)
class Run:
    """One policy on one trace: who ran, where, and everything that was recorded.

    `jobs` in order of submission, `events` and `snapshots` in order of time. `manifest` is plain JSON data:
    how the run came about (versions, command, seed, trace, profile, overheads, timings). `plans`: what LLM
    jobs ran, each plan once.
    """

    policy: str
    planner: str
    cluster: Cluster
    jobs: Sequence[JobRecord]
    events: Sequence[EventRecord]
    snapshots: Sequence[Snapshot]
    summary: dict[str, Any]
    manifest: dict[str, Any]
    plans: list[PlanRecord] = field(default_factory=list)


class Recorded(Protocol):
    """A run as it was made or read, or as it is read when somebody needs it: `Run`,
    `StreamedRun`."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def jobs(self) -> Iterable[JobRecord]: ...
    @property
    def events(self) -> Iterable[EventRecord]: ...
    @property
    def snapshots(self) -> Iterable[Snapshot]: ...
    @property
    def plans(self) -> Iterable[PlanRecord]: ...
    @property
    def summary(self) -> Mapping[str, Any]: ...
    @property
    def manifest(self) -> Mapping[str, Any]: ...


def write_run(directory: str | Path, run: Run, *, parquet: bool = False) -> Run:
    """Write `run` to a folder, whole or not at all; returns it with its manifest completed.

    The folder is made if need be; it may hold an earlier run, which is replaced, but no files of another
    kind. All files are written beside their places first, so a full disk leaves an earlier run as it was;
    then the old manifest is removed, the files are moved, the manifest last. UserError, in one line that
    names the path, if something cannot be written.
    """
    from .rundir_writer import RunWriter

    with RunWriter(directory, run.cluster, parquet=parquet) as writer:
        writer.keep_all(run)
        written = writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
    return replace(run, manifest=written.manifest)


def read_run(directory: str | Path) -> Run:
    """Read what `write_run` wrote. UserError if it is not a complete run, or was changed since."""
    run = read_unverified(directory)
    refuse_changed(directory, run)
    return run


def refuse_changed(directory: str | Path, run: Recorded) -> None:
    """UserError if the folder of `run` is not what its manifest was written for."""
    changed = changes(directory, run)
    if changed:
        raise UserError(f"{changed[0]}; run again")


def read_unverified(directory: str | Path) -> Run:
    """As `read_run`, but believes files that are not those of the manifest: for who checks them.

    UserError, TableError for what cannot be read at all.
    """
    folder = Path(directory)
    manifest = read_json(folder / MANIFEST)
    cluster = cluster_in(folder / MANIFEST, manifest)
    return Run(
        policy=text_of(folder / MANIFEST, manifest, "policy"),
        planner=text_of(folder / MANIFEST, manifest, "planner"),
        cluster=cluster,
        jobs=_read_rows(jobs_file(folder), JOBS, JobRecord, cluster),
        events=_read_rows(folder / EVENTS_FILE, EVENTS, EventRecord, cluster),
        snapshots=_read_rows(folder / USAGE_FILE, USAGE, Snapshot, cluster),
        summary=read_json(folder / SUMMARY),
        manifest=manifest,
        plans=_read_rows(folder / PLANS_FILE, PLANS, PlanRecord, cluster),
    )


def changes(directory: str | Path, run: Recorded) -> list[str]:
    """What in the folder of `run` is not what its manifest was written for, one text a file."""
    folder = Path(directory)
    if run.manifest.get(_OWN_HASH, own := manifest_hash(run.manifest)) != own:
        return [f"{folder / MANIFEST}: is not what its {_OWN_HASH} was made of: it was changed"]
    jobs = jobs_file(folder)
    found = _hash_of(jobs) if jobs.name == JOBS_CSV else csv_hash(run.jobs)
    if found != run.manifest.get("result_hash"):
        return [f"{jobs}: does not match the result_hash in {MANIFEST}: it was changed"]
    return _changed(folder, run.manifest, (jobs.name, EVENTS_FILE, USAGE_FILE, PLANS_FILE, SUMMARY))


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """Of all that a manifest states but this, which says whether somebody changed it by hand."""
    rest = {name: value for name, value in manifest.items() if name != _OWN_HASH}
    return digest(json.loads(json.dumps(rest, allow_nan=False)))


def jobs_file(folder: Path) -> Path:
    return folder / (JOBS_PARQUET if (folder / JOBS_PARQUET).exists() else JOBS_CSV)


def _changed(folder: Path, manifest: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    hashes, texts = manifest.get("files"), []
    for name in names:
        if not isinstance(hashes, dict) or _hash_of(folder / name) != hashes.get(name):
            texts.append(f"{folder / name}: is not what {MANIFEST} was written for")
    return texts


def _hash_of(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def csv_hash(jobs: Iterable[JobRecord]) -> str:
    """The hash of jobs.csv, whichever way they are stored."""
    found, rest = hashlib.sha256(f"{header_of(JOBS)}\n".encode()), iter(jobs)
    while block := list(islice(rest, _BLOCK)):
        found.update("".join(f"{line}\n" for line in lines_of(JOBS, by_field(block, JOB_COLUMNS))).encode())
    return found.hexdigest()


def json_bytes(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


# Reading


class _Stored(Sequence[Any]):
    """The rows of a table in a folder, read when somebody first looks at one."""

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
            self._rows = _read_rows(self._path, *_TABLES[self._table], self._cluster)
        return self._rows


_TABLES = {"jobs": (JOBS, JobRecord), "events": (EVENTS, EventRecord), "usage": (USAGE, Snapshot)}


def stored_tables(folder: Path, cluster: Cluster, lengths: tuple[int, int, int]) -> list[Sequence[Any]]:
    """Jobs, events and usage of a run that was just written."""
    paths = (jobs_file(folder), folder / EVENTS_FILE, folder / USAGE_FILE)
    return [
        _Stored(path, table, cluster, length)
        for path, table, length in zip(paths, _TABLES, lengths, strict=True)
    ]


def _read_rows(path: Path, columns: Any, record: Any, cluster: Cluster) -> list[Any]:
    return list(StoredRows(path, columns, record, cluster))


def read_json(path: Path) -> dict[str, Any]:
    if path.name == MANIFEST and not path.exists():
        raise UserError(f"{path.parent}: is not a complete run: it has no {MANIFEST}; give a run's folder")
    if path.exists() and not path.is_file():  # devices and pipes have no end
        raise UserError(f"{path}: cannot be read: is not a file")
    if path.exists() and (size := path.stat().st_size) > _LARGEST_JSON:
        raise UserError(f"{path}: has {size:,} bytes; no run writes more than {_LARGEST_JSON:,}")
    try:
        document = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON that can be read: {error}; run the simulation again") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: holds {shown(document)}, not a JSON object; run the simulation again")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def text_of(path: Path, manifest: Mapping[str, Any], field: str) -> str:
    value = manifest.get(field)
    if not isinstance(value, str):
        raise UserError(f"{path}: {field}={shown(value)}: must be text; run the simulation again")
    return value


def cluster_in(path: Path, manifest: Mapping[str, Any]) -> Cluster:
    stated = manifest.get("cluster")
    try:
        return cluster_of(stated if isinstance(stated, dict) else {})
    except UserError as error:
        raise UserError(f"{path}: cluster={shown(stated)}: {error}; run the simulation again") from None
