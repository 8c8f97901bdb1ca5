"""The folder of a run: written as the run goes on, read back whole or row by row.

| file | holds |
|---|---|
| `jobs.csv` or `jobs.parquet` | the fields of `JobRecord`, a row per submitted job, in order of submission |
| `events.csv` | the event log: the fields of `EventRecord`; placements as `0-3x8;7x4`, nodes x GPUs on each |
| `usage.csv` | the use of the cluster over time: the fields of `Snapshot` |
| `plans.csv` | the training plans in use and where their iterations' time goes: the fields of `PlanRecord` |
| `summary.json` | the metrics (see `docs/metrics.md`) |
| `manifest.json` | settings, versions and hashes of the run; written last: it marks a complete run |

Times are seconds on the trace's clock. In CSV a number is the shortest decimal text within 1e-6 of it (a
speed, `unit_s`, the shortest that reads back as the same number), an empty cell means None, truth is `true`
or `false`. Text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break,
or with apostrophes before one of these) gets one more apostrophe in front, which reading removes. Nothing is
ever unpickled.

| name | what |
|---|---|
| `RunWriter` | a recorder that writes records to the folder during the run |
| `write_run` | write a finished run, whole or not at all |
| `read_run` | read a run after comparing its files with the hashes in the manifest |
| `read_unverified` | the same without comparing hashes |
| `read_streamed`, `StreamedRun` | a run of any length; each iteration over a table reads its file again |
| `Following` | the events of a run while it writes them, from any place of the log |
| `log_of`, `stated_of` | the log in a folder, and its manifest, of a run in progress or a finished one |
| `is_growing` | whether the process that writes such a log runs still |
| `claimed` | a folder of runs, made and kept from other commands while a block runs |
| `changes`, `refuse_changed` | which files differ from those of the run; UserError if one does |
| `csv_hash` | SHA-256 of jobs.csv, also for jobs that are stored as Parquet |
| `read_json` | the JSON object in a file of limited size |
| `jobs_file` | the path of the jobs in a folder, CSV or Parquet |
| `JOBS_CSV`, `EVENTS_FILE`, `USAGE_FILE`, `PLANS_FILE`, `SUMMARY`, `MANIFEST` | the names of the files |
| `MANIFEST_HASH` | the field of the manifest with the hash of all its other fields |
| `placement_text`, `guarded_text` | a placement, a text as a CSV cell |
"""

from .csv_out import guarded_text, placement_text
from .destination import claimed
from .following import Following, is_growing, log_of, stated_of
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
    "Following",
    "RunWriter",
    "StreamedRun",
    "changes",
    "claimed",
    "csv_hash",
    "guarded_text",
    "is_growing",
    "jobs_file",
    "log_of",
    "placement_text",
    "read_json",
    "read_run",
    "read_streamed",
    "read_unverified",
    "refuse_changed",
    "stated_of",
    "write_run",
]
