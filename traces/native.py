"""The native trace: a CSV or Parquet row per job, read with every mistake named, written atomically."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from itertime.atomic import replacing
from itertime.errors import TableError, UnknownName, UserError
from traces.columns import COLUMNS, contradictions
from traces.files import Table, open_table, shown
from traces.formulas import with_guard, without_guard
from traces.job import Job

__all__ = ["read_trace", "write_trace"]

MAX_ERRORS_SHOWN = 20
_INTEGERS = ("gpus", "min_gpus", "max_gpus", "global_batch", "seq_len", "priority")
_TEXTS = ("job_id", "tenant", "model", "state")
_BY_ITERATIONS, _BY_DURATION = ("model", "global_batch", "iterations"), ("gpus", "duration_s")


def read_trace(path: str | Path, known_models: Collection[str] | None = None) -> list[Job]:
    """Read a native trace, in the order of its rows.

    CSV may be gzip-compressed, with a byte order mark, with any line ends, and with the guard of
    `traces.formulas` on text. Columns are `job_id, submit_s`,
    either `model, global_batch, iterations` or `gpus, duration_s`, and the optional ones of `Job`; one
    whose name starts with `x_` is the user's own and is not read. `known_models` are the names that a job
    stated in iterations may train (None: those that `itertime` ships). Raises UserError if the file cannot
    be opened, else one TableError that lists the first 20 mistakes as `file:line: column=value: what is
    wrong; how to fix it`; for Parquet, `line` is the row from 1.
    """
    with open_table(path) as table:
        _check_header(table)
        problems = _Problems(table.path)
        jobs = list(_jobs(table, problems, _Models(known_models)))
        problems.raise_if_any()
    if not jobs:
        raise TableError(f"{path}:1: holds no jobs; each row after the header is one job")
    return jobs


def write_trace(jobs: Iterable[Job], path: str | Path) -> None:
    """Write jobs as CSV, gzip-compressed CSV or Parquet, by the ending of `path`: .csv, .csv.gz, .parquet.

    Columns that no job states are left out. Reading the file gives equal jobs. Raises UserError for another
    ending or where `path` cannot be written.
    """
    path, jobs = Path(path), list(jobs)
    write = next((f for ending, f in _WRITERS.items() if path.name.endswith(ending)), None)
    if write is None:
        raise UserError(f"{path}: unknown kind of trace file; let the name end in {', '.join(_WRITERS)}")
    with replacing(path) as temporary:
        write(jobs, _columns_in_use(jobs), temporary)


class _Problems:
    """The mistakes found in one file: all counted, the first ones kept."""

    def __init__(self, path: Path):
        self.path, self.count, self._shown = path, 0, list[str]()

    def add(self, line: int, column: str, value: object, text: str) -> None:
        self.count += 1
        if self.count <= MAX_ERRORS_SHOWN:
            self._shown.append(f"{self.path}:{line}: {column}={shown(value)}: {text}")

    def add_row(self, line: int, text: str) -> None:
        self.count += 1
        if self.count <= MAX_ERRORS_SHOWN:
            self._shown.append(f"{self.path}:{line}: {text}")

    def raise_if_any(self) -> None:
        if self.count > MAX_ERRORS_SHOWN:
            self._shown.append(f"{self.path}: {self.count - MAX_ERRORS_SHOWN} more errors are not shown")
        if self.count:
            raise TableError("\n".join(self._shown))


class _Models:
    """What is wrong with a model's name, looked up once per name and only if a job needs one.

    Only the first name that resembles no model gets the whole list of models.
    """

    def __init__(self, known: Collection[str] | None):
        self._known, self._answers, self._listed = known, dict[str, str | None](), False

    def problem(self, name: str) -> str | None:
        if name not in self._answers:
            if self._known is None:
                from itertime.model import list_models

                self._known = list_models()
            known = name in self._known
            self._answers[name] = None if known else str(UnknownName("model", name, self._known))
        answer = self._answers[name]
        if answer and "known: " in answer:
            listed, self._listed = self._listed, True
            return f"unknown model {name!r}; the first such error lists those known" if listed else answer
        return answer


def _check_header(table: Table) -> None:
    where, columns = f"{table.path}:1", table.columns
    if not columns:
        example = "job_id,submit_s,gpus,duration_s"
        raise TableError(f"{where}: empty file; the first line names the columns, such as {example}")
    for name in columns:
        if columns.count(name) > 1:
            raise TableError(f"{where}: column {shown(name)} appears twice; keep one")
    unknown = [name for name in columns if name not in COLUMNS and not name.startswith("x_")]
    missing = _missing(columns)
    if not unknown and not missing:
        return
    hints = [str(UnknownName("column", shown(name), COLUMNS)) for name in unknown]
    if unknown:
        hints.append("a column of your own must start with x_")
    if missing:
        hints.append(missing)
    hint = _other_format(columns)
    raise TableError(f"{where}: " + "; ".join(hints) + (f"; {hint}" if hint else ""))


def _missing(columns: list[str]) -> str:
    needed = [name for name in ("job_id", "submit_s") if name not in columns]
    if needed:
        return f"missing column {' and '.join(needed)}"
    if any(all(name in columns for name in group) for group in (_BY_ITERATIONS, _BY_DURATION)):
        return ""
    return "missing columns: a trace needs model, global_batch and iterations, or gpus and duration_s"


def _other_format(columns: list[str]) -> str:
    if len(columns) == 1 and any(sign in columns[0] for sign in ";\t|"):
        return "columns must be separated by commas"
    if "num_gpu" in columns:
        return "this looks like a job log; convert it with `clustersim trace import`"
    return ""


def _jobs(table: Table, problems: _Problems, models: _Models) -> Iterator[Job]:
    readers = [(name, _reader(name, table)) for name in table.columns]
    first_line: dict[str, int] = {}
    for line, row in table.rows:
        if len(row) != len(readers):
            text = f"has {len(row)} cells where the header has {len(readers)}; look for a stray comma"
            problems.add_row(line, text)
            continue
        job = _job(line, row, readers, problems)
        if job is None:
            continue
        if job.job_id in first_line:
            text = f"is the job of line {first_line[job.job_id]} again; ids must be unique"
            problems.add(line, "job_id", job.job_id, text)
        first_line.setdefault(job.job_id, line)
        for column, value, text in contradictions(job):
            problems.add(line, column, value, text)
        if job.kind == "iterations" and job.model is not None and (unknown := models.problem(job.model)):
            problems.add(line, "model", job.model, unknown)
        yield job


def _reader(column: str, table: Table) -> Any:
    """What makes a value of a cell; None for a column that is not read."""
    return without_guard if column in _TEXTS and table.is_csv else COLUMNS.get(column)


def _job(line: int, row: list[str], readers: list[tuple[str, Any]], problems: _Problems) -> Job | None:
    values: dict[str, Any] = {}
    before = problems.count
    for (name, parse), cell in zip(readers, row, strict=True):
        if parse is None or not cell or cell.isspace():
            continue
        try:
            values[name] = parse(cell)
        except ValueError as error:
            problems.add(line, name, cell, str(error))
    for name in ("job_id", "submit_s"):
        if name not in values and problems.count == before:
            problems.add(line, name, "", "is empty; every job needs one")
    return Job(**values) if problems.count == before else None


def _columns_in_use(jobs: list[Job]) -> list[str]:
    blank = Job("", 0.0)
    needed = ("job_id", "submit_s")
    return [c for c in COLUMNS if c in needed or any(getattr(job, c) != getattr(blank, c) for job in jobs)]


def _cell(value: Any) -> Any:
    """Numbers in their shortest form that reads back as the same number; text that is no formula."""
    if isinstance(value, str):
        return with_guard(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return value


def _write_csv(jobs: list[Job], columns: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_rows(jobs, columns, file)


def _write_gzip(jobs: list[Job], columns: list[str], path: Path) -> None:
    # No name and no time in the gzip header: equal jobs give equal bytes.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        file = io.TextIOWrapper(packed, encoding="utf-8", newline="")
        _write_rows(jobs, columns, file)
        file.flush()
        file.detach()


def _write_rows(jobs: list[Job], columns: list[str], file: io.TextIOWrapper) -> None:
    # csv does not quote a lone carriage return, which would then end the row.
    returns = any("\r" in (getattr(job, name) or "") for job in jobs for name in _TEXTS)
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL)
    writer.writerow(columns)
    writer.writerows([_cell(getattr(job, column)) for column in columns] for job in jobs)


def _write_parquet(jobs: list[Job], columns: list[str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column_type(name: str) -> Any:
        return pa.string() if name in _TEXTS else pa.int64() if name in _INTEGERS else pa.float64()

    arrays = [pa.array([getattr(job, c) for job in jobs], type=column_type(c)) for c in columns]
    pq.write_table(pa.table(arrays, names=columns), path)


_WRITERS = {".csv": _write_csv, ".csv.gz": _write_gzip, ".parquet": _write_parquet}
