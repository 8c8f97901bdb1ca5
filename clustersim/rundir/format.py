"""The format of a run folder (see `clustersim.rundir`): names of files, JSON and hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from clustersim.cluster import Cluster, cluster_of
from clustersim.records import JOB_COLUMNS, JobRecord, Recorded, by_field
from itertime.errors import UserError
from itertime.io import digest, open_regular, quoted, sha256, shown

from .csv_out import JOBS, columns_stated, header_of, lines_of, required

__all__ = [
    "EVENTS_FILE",
    "FORMAT",
    "JOBS_CSV",
    "JOBS_PARQUET",
    "MANIFEST",
    "MANIFEST_HASH",
    "OURS",
    "PLANS_FILE",
    "SUMMARY",
    "USAGE_FILE",
    "changes",
    "cluster_in",
    "csv_hash",
    "jobs_file",
    "json_bytes",
    "manifest_hash",
    "read_json",
    "read_manifest",
    "refuse_changed",
    "text_of",
]

FORMAT = "clustersim-run-1"
JOBS_CSV, JOBS_PARQUET, EVENTS_FILE, USAGE_FILE = "jobs.csv", "jobs.parquet", "events.csv", "usage.csv"
PLANS_FILE, SUMMARY, MANIFEST = "plans.csv", "summary.json", "manifest.json"
OURS = (JOBS_CSV, JOBS_PARQUET, EVENTS_FILE, USAGE_FILE, PLANS_FILE, SUMMARY, MANIFEST)
MANIFEST_HASH = "manifest_sha256"
"""Where a manifest states the hash of all its other fields."""
_BLOCK = 10_000  # job records that are hashed at once
_MOST_DIGITS, _MOST_DEPTH = 100, 100  # of integers; of lists and objects inside each other
_LARGEST_JSON = 20_000_000  # bytes; the longest calendar that a run accepts takes half of it


def jobs_file(folder: Path) -> Path:
    return folder / (JOBS_PARQUET if (folder / JOBS_PARQUET).exists() else JOBS_CSV)


# JSON


def json_bytes(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def read_json(
    path: Path, *, largest: float = _LARGEST_JSON, remedy: str = "run the simulation again"
) -> dict[str, Any]:
    """The JSON object in a file of at most `largest` bytes. UserError, with `remedy`, if there is none."""
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > largest:
                raise UserError(f"{path}: has {size:,} bytes; no run writes more than {largest:,}")
            text = file.read() or b""
        document = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_integer)
        _refuse_unwritable(document)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON that can be read: {error}; {remedy}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: holds {shown(document)}, not a JSON object; {remedy}")
    return document


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{shown(text)} is not a finite number")
    return number


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{shown(text)} is too large a number")
    return int(text)


def _refuse_unwritable(document: Any) -> None:
    """ValueError for what could not be written as JSON again: text with half a character, deep nesting."""
    parts, depth = [document], 0
    while parts:
        below: list[Any] = []
        for part in parts:
            if isinstance(part, dict):
                below += part.keys()
                below += part.values()
            elif isinstance(part, list):
                below += part
            elif isinstance(part, str) and not part.isascii():
                part.encode()
        parts, depth = below, depth + 1
        if depth > _MOST_DEPTH:
            raise ValueError("it is nested too deeply")


# The manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a run folder states. UserError if there is none: the run is not complete."""
    path = folder / MANIFEST
    if not os.path.exists(path):  # Path.exists raises for a name that is too long
        raise UserError(f"{folder}: is not a complete run: it has no {MANIFEST}; give a run's folder")
    manifest = read_json(path)
    if (file_format := manifest.get("format")) != FORMAT:
        problem = f"format={quoted(file_format)}: this program reads {FORMAT}"
        raise UserError(f"{path}: {problem}; run the simulation again, or use the version that made it")
    return manifest


def text_of(path: Path, manifest: Mapping[str, Any], field: str) -> str:
    value = manifest.get(field)
    if not isinstance(value, str):
        raise UserError(f"{path}: {field}={shown(value)}: must be text; run the simulation again")
    return value


def cluster_in(path: Path, manifest: Mapping[str, Any]) -> Cluster:
    cluster = manifest.get("cluster")
    try:
        return cluster_of(cluster if isinstance(cluster, dict) else {})
    except UserError as error:
        raise UserError(f"{path}: cluster={shown(cluster)}: {error}; run the simulation again") from None


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """The hash of all fields of a manifest but this hash itself, which reveals changes made by hand."""
    hashed_entries = {name: value for name, value in manifest.items() if name != MANIFEST_HASH}
    return digest(json.loads(json.dumps(hashed_entries, allow_nan=False)))


# Whether the files are those that the run wrote


def refuse_changed(directory: str | Path, run: Recorded) -> None:
    """UserError if a file in the folder of `run` is not the one that its manifest was written for."""
    changed = changes(directory, run)
    if changed:
        raise UserError(f"{changed[0]}; run again")


def changes(directory: str | Path, run: Recorded) -> list[str]:
    """The files in the folder of `run` that its manifest was not written for, one text each."""
    folder = Path(directory)
    if run.manifest.get(MANIFEST_HASH, own_hash := manifest_hash(run.manifest)) != own_hash:
        return [f"{folder / MANIFEST}: is not what its {MANIFEST_HASH} was made of: it was changed"]
    jobs = jobs_file(folder)
    jobs_hash = _hash_of(jobs) if jobs.name == JOBS_CSV else csv_hash(run.jobs)
    if jobs_hash != run.manifest.get("result_hash"):
        return [f"{jobs}: does not match the result_hash in {MANIFEST}: it was changed"]
    return _changed(folder, run.manifest, (jobs.name, EVENTS_FILE, USAGE_FILE, PLANS_FILE, SUMMARY))


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
    """The hash of jobs.csv; the same for jobs that are stored as Parquet."""
    column_count, remaining_jobs = (
        len(required(JOBS)),
        iter(jobs),
    )  # optional columns, which only the last record may need
    hashes = {
        count: hashlib.sha256(f"{header_of(JOBS[:count])}\n".encode())
        for count in range(column_count, len(JOBS) + 1)
    }
    while block := list(islice(remaining_jobs, _BLOCK)):
        fields = by_field(block, JOB_COLUMNS)
        column_count = max(column_count, columns_stated(fields))
        lines = lines_of(JOBS, fields)
        for count in range(column_count, len(JOBS) + 1):
            absent = "," * (len(JOBS) - count)
            hashes[count].update("".join(f"{line.removesuffix(absent)}\n" for line in lines).encode())
    return hashes[column_count].hexdigest()
