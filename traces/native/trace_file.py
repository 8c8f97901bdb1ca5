"""The native trace: a CSV or Parquet row per job. Reading reports every mistake, writing is atomic."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from itertime.errors import UserError
from itertime.io import check_parquet, replacing, shown, with_guard
from itertime.spec import Models
from traces.job import Job

from .packed_jobs import PackedJobs
from .parsing import TEXTS, read_rows
from .schema import COLUMNS, OWN_PREFIX
from .sorted_jobs import StoredJobs

__all__ = ["read_trace", "store_trace", "write_trace"]

_BLOCK = 10_000
_INTEGERS = ("gpus", "min_gpus", "max_gpus", "global_batch", "seq_len", "priority")


def read_trace(
    path: str | Path, known_models: Collection[str] | None = None, models: Models | None = None
) -> list[Job]:
    """Read a native trace, in the order of its rows.

    CSV may be gzip-compressed, with a byte order mark, with any line ends, and with the guard against
    spreadsheet formulas on text. Columns are `job_id, submit_s`, either `model, global_batch, iterations` or
    `gpus, duration_s`, and the optional fields of `Job`. A column named `x_...` is the user's own: its cells
    are in `Job.extra`, for policies. `known_models` are the models that a job stated in iterations may name
    (None: the shipped ones).

    Raises UserError if the file cannot be opened. Otherwise raises one TableError that lists the first 20
    mistakes as `file:line: column=value: what is wrong; how to fix it`. Parquet rows count from 1.
    """
    jobs_by_line: list[tuple[int, Job]] = []
    read_rows(
        path,
        known_models,
        models or Models(Path(path).parent),
        add=lambda line, job: jobs_by_line.append((line, job)),
        ids=lambda: ((line, job.job_id) for line, job in jobs_by_line),
    )
    return [job for _, job in jobs_by_line]


def store_trace(
    path: str | Path, known_models: Collection[str] | None = None, models: Models | None = None
) -> StoredJobs:
    """Like `read_trace`, but the jobs are kept on disk.

    The file is read once, from beginning to end, and may be a pipe.
    """
    jobs = StoredJobs()
    models = models or Models(Path(path).parent)
    _, sha256 = read_rows(path, known_models, models, add=jobs.add, ids=jobs.ids)
    return jobs.finish(sha256)


def write_trace(jobs: Iterable[Job], path: str | Path) -> None:
    """Write jobs as CSV, gzip-compressed CSV or Parquet, by the ending of `path`: .csv, .csv.gz, .parquet.

    Columns that no job states are left out; own columns of the jobs are the last. Reading the file gives
    equal jobs. Raises UserError for another ending, for Parquet without pyarrow, for an own column whose name
    does not start with x_, or if `path` cannot be written.
    """
    path, jobs = Path(path), list(jobs) if isinstance(jobs, Iterator) else jobs
    write = next((f for ending, f in _WRITERS.items() if path.name.endswith(ending)), None)
    if write is None:
        raise UserError(f"{path}: unknown kind of trace file; let the name end in {', '.join(_WRITERS)}")
    if write is _write_parquet:
        check_parquet(path)
    with replacing(path) as temporary:
        write(jobs, _columns_in_use(jobs), temporary)


def _columns_in_use(jobs: Iterable[Job]) -> list[str]:
    """The columns that a job states, then the own columns of jobs in order of appearance."""
    if isinstance(jobs, PackedJobs):
        fields_in_use = jobs.fields_in_use()
        own_columns = _own_columns(jobs.column("extra")) if "extra" in fields_in_use else []
        return [*(c for c in COLUMNS if c in fields_in_use), *own_columns]
    blank, columns = Job("", 0.0), {"job_id", "submit_s"}
    unused = tuple(c for c in COLUMNS if c not in columns)
    values_of, unstated = _values_of(unused), _values_of(unused)(blank)
    for job in jobs:
        values = values_of(job)
        if values != unstated:
            columns.update(
                c for c, value, default in zip(unused, values, unstated, strict=True) if value != default
            )
            unused = tuple(c for c in unused if c not in columns)
            values_of, unstated = _values_of(unused), _values_of(unused)(blank)
    return [*(c for c in COLUMNS if c in columns), *_own_columns(job.extra for job in jobs)]


def _own_columns(extras: Iterable[Sequence[tuple[str, str]]]) -> list[str]:
    names = list(dict.fromkeys(name for extra in extras for name, _ in extra))
    for name in names:
        if not name.startswith(OWN_PREFIX):
            raise UserError(f"extra: {shown(name)}: the name of an own column must start with {OWN_PREFIX}")
    return names


def _rows(jobs: Iterable[Job], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of some columns of each job; own columns are the last."""
    fields = [name for name in columns if not name.startswith(OWN_PREFIX)]
    own_columns = columns[len(fields) :]
    if not own_columns:
        return jobs.rows(*fields) if isinstance(jobs, PackedJobs) else map(_values_of(fields), jobs)
    rows = _rows(jobs, [*fields, "extra"])
    return ((*values, *map(dict(extra).get, own_columns)) for *values, extra in rows)


def _values_of(columns: Sequence[str]) -> Callable[[Job], tuple[Any, ...]]:
    """What reads the values of some columns of a job."""
    if len(columns) > 1:
        return attrgetter(*columns)
    return lambda job: tuple(getattr(job, column) for column in columns)


def _cell(value: Any) -> Any:
    """Numbers in their shortest form that reads back exactly; text with the guard against formulas."""
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return with_guard(value) if kind is str else value


def _write_csv(jobs: Iterable[Job], columns: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_rows(jobs, columns, file)


def _write_gzip(jobs: Iterable[Job], columns: list[str], path: Path) -> None:
    # No name and no time in the gzip header: equal jobs give equal bytes.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        file = io.TextIOWrapper(packed, encoding="utf-8", newline="")
        _write_rows(jobs, columns, file)
        file.flush()
        file.detach()


def _is_text(column: str) -> bool:
    return column in TEXTS or column.startswith(OWN_PREFIX)


def _write_rows(jobs: Iterable[Job], columns: list[str], file: io.TextIOWrapper) -> None:
    # csv does not quote a lone carriage return, which would then end the row.
    texts = [name for name in columns if _is_text(name)]
    returns = any("\r" in text for row in _rows(jobs, texts) for text in row if text)
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL)
    writer.writerow(columns)
    writer.writerows(map(_cell, row) for row in _rows(jobs, columns))


def _write_parquet(jobs: Iterable[Job], columns: list[str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column_type(name: str) -> Any:
        return pa.string() if _is_text(name) else pa.int64() if name in _INTEGERS else pa.float64()

    schema, rows = pa.schema([(name, column_type(name)) for name in columns]), _rows(jobs, columns)
    batches = []
    while block := list(islice(rows, _BLOCK)):
        values = zip(columns, zip(*block, strict=True), strict=True)
        cells = [pa.array(column, type=schema.field(name).type) for name, column in values]
        batches.append(pa.record_batch(cells, schema=schema))
    pq.write_table(pa.Table.from_batches(batches, schema).combine_chunks(), path)


_WRITERS = {".csv": _write_csv, ".csv.gz": _write_gzip, ".parquet": _write_parquet}
