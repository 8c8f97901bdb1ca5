"""The folder of a run: files written as the run goes on, read back whole or row by row.

| name | what |
|---|---|
| `guarded_text` | Text as a CSV cell |
| `placement_text` | `0-3x8;7x4` |
| `EVENTS_FILE` |  |
| `JOBS_CSV` |  |
| `MANIFEST` |  |
| `MANIFEST_HASH` | Where a manifest states the hash of all its other fields |
| `PLANS_FILE` |  |
| `SUMMARY` |  |
| `USAGE_FILE` |  |
| `changes` | The files in the folder of `run` that its manifest was not written for, one text each |
| `csv_hash` | The hash of jobs.csv |
| `jobs_file` |  |
| `read_json` | The JSON object in a file of at most `largest` bytes |
| `refuse_changed` | Raise UserError if a file of a run differs from the one that its manifest names |
| `StreamedRun` | A run in its folder |
| `read_run` | Read what `write_run` wrote |
| `read_streamed` | As `read_unverified`, without comparing hashes |
| `read_unverified` | As `read_run`, without comparing the files with the hashes in the manifest |
| `RunWriter` | A recorder that writes the records of a run to the files of its folder |
| `write_run` | Write `run` to a folder, whole or not at all |
"""

from .csv_out import guarded_text, placement_text
from .format import (
    EVENTS_FILE,
    JOBS_CSV,
    MANIFEST,
    MANIFEST_HASH,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    changes,
    csv_hash,
    jobs_file,
    read_json,
    refuse_changed,
)
from .reading import StreamedRun, read_run, read_streamed, read_unverified
from .writing import RunWriter, write_run

__all__ = [
    "EVENTS_FILE",
    "JOBS_CSV",
    "MANIFEST",
    "MANIFEST_HASH",
    "PLANS_FILE",
    "SUMMARY",
    "USAGE_FILE",
    "RunWriter",
    "StreamedRun",
    "changes",
    "csv_hash",
    "guarded_text",
    "jobs_file",
    "placement_text",
    "read_json",
    "read_run",
    "read_streamed",
    "read_unverified",
    "refuse_changed",
    "write_run",
]
