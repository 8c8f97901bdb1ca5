"""The rows of a native trace as jobs; every mistake is reported with its line."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import (
    Table,
    check_repeated,
    names_file,
    open_table,
    quoted,
    separator_hint,
    shown,
    without_guard,
)
from itertime.spec import Models, at_depth
from traces.dependencies import cycle_of, words_of_cycle
from traces.job import Job, job_of
from traces.phases import parse_phases

from .misfits import misfit
from .schema import COLUMNS, NAMES, OWN_PREFIX, contradictions, extra_of

__all__ = ["TEXTS", "read_rows"]

MAX_ERRORS_SHOWN = 20
_MOST_NAMED = 5  # unknown columns that an error lists
TEXTS = (
    "job_id", "tenant", "model", "state", "user", "gpu_type", "partition", "qos", "service",
    "account", "name", "array_id", "reservation", *NAMES,
)  # fmt: skip
_FREE = tuple(name for name in TEXTS if name not in NAMES)
_BY_ITERATIONS, _BY_DURATION = ("model", "global_batch", "iterations"), ("gpus", "duration_s")
_FIELDS = [field.name for field in fields(Job)]
_EXTRA = _FIELDS.index("extra")
_Misfit = tuple[str, object, str] | None
_UNSTATED: list[Any] = [None, None, *(field.default for field in fields(Job)[2:])]


def read_rows(
    path: str | Path,
    known_models: Collection[str] | None,
    models: Models,
    add: Callable[[int, Job], None],
    ids: Callable[[], Iterable[tuple[int, str]]],
) -> tuple[int, str]:
    """Pass each row of a trace to `add`, as its line and job. Returns their number and the file's SHA-256.

    Mistakes are raised after the last row (see `read_trace`), so the added jobs are valid only if this
    function returns. Memory holds 8 bytes of each row. `ids` yields line and id of all added jobs, in any
    order; it is called only if two ids may be equal.
    """
    with open_table(path, pipes=True) as table:
        _check_header(table)
        problems, hashes = _Problems(table.path), array("q")
        dependents: list[tuple[int, str, str | None, str]] = []
        for line, job in _jobs(table, problems, _Models(known_models, models)):
            hashes.append(hash(job.job_id))
            add(line, job)
            if job.depends is not None:
                dependents.append((line, job.job_id, job.array_id, job.depends))
        if cycle := cycle_of(dependent[1:] for dependent in dependents):
            line, _, _, depends = next(d for d in dependents if cycle[0] in d[1:3])
            problems.add_late(line, "depends", depends, words_of_cycle(cycle))
        for line, job_id, first_line in _repeats(hashes, ids):
            text = f"is also the id of line {first_line}; ids must be unique"
            problems.add_late(line, "job_id", job_id, text)
        problems.raise_if_any()
        if not hashes:
            raise TableError(f"{path}:1: holds no jobs; each row after the header is one job")
        return len(hashes), table.sha256()


def _repeats(
    hashes: array[int], ids: Callable[[], Iterable[tuple[int, str]]]
) -> Iterator[tuple[int, str, int]]:
    """(line, id, first line of that id) of every row that repeats an earlier id, in order of lines."""
    ordered = np.sort(np.frombuffer(hashes, dtype=np.int64))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not suspects:
        return
    lines: dict[str, list[int]] = {}
    for line, job_id in ids():
        if hash(job_id) in suspects:
            lines.setdefault(job_id, []).append(line)
    repeated = [
        (line, job_id, min(lines_of_id))
        for job_id, lines_of_id in lines.items()
        for line in sorted(lines_of_id)[1:]
    ]
    yield from sorted(repeated)


class _Problems:
    """The mistakes in one file: all are counted, the first ones kept."""

    def __init__(self, path: Path):
        self.path, self.count = path, 0
        self._found: list[tuple[int, str]] = []
        self._late: list[tuple[int, str]] = []

    def add(self, line: int, column: str, value: object, text: str) -> None:
        self.add_row(line, f"{column}={shown(value)}: {text}")

    def add_row(self, line: int, text: str) -> None:
        """Add a mistake that concerns the whole row. Lines must not decrease from call to call."""
        self._keep(self._found, line, text)

    def add_late(self, line: int, column: str, value: object, text: str) -> None:
        """Add a mistake found after the last row. Lines must not decrease from call to call."""
        self._keep(self._late, line, f"{column}={shown(value)}: {text}")

    def _keep(self, problems: list[tuple[int, str]], line: int, text: str) -> None:
        self.count += 1
        if len(problems) < MAX_ERRORS_SHOWN:
            problems.append((line, text))

    def raise_if_any(self) -> None:
        if not self.count:
            return
        shown_problems = sorted([*self._late, *self._found], key=lambda problem: problem[0])[
            :MAX_ERRORS_SHOWN
        ]
        texts = [f"{self.path}:{line}: {text}" for line, text in shown_problems]
        if self.count > len(shown_problems):
            texts.append(f"{self.path}: {self.count - len(shown_problems)} more errors are not shown")
        raise TableError("\n".join(texts))


class _Models:
    """What is wrong with a model's name, or with what a job states for its plans, looked up once per name
    and per statement, and only if a job needs a model.

    Only the first name that resembles no model gets the whole list of models.
    """

    def __init__(self, names: Collection[str] | None, models: Models):
        self._known, self._models = names, models
        self._answers, self._listed = dict[str, str | None](), False
        self._misfits = dict[object, _Misfit]()

    def problem(self, name: str) -> str | None:
        if name not in self._answers:
            self._answers[name] = self._find(name)
        answer = self._answers[name]
        if answer and "known: " in answer:
            listed, self._listed = self._listed, True
            if listed:
                return f"unknown model {quoted(name)}; the first such error lists those known"
            return f"{answer}; a throughput table (--table) or a folder (--model-path) may state others"
        return answer

    def misfit(self, job: Job) -> _Misfit:
        """What the job's model, which is known, cannot have; None also for one in a throughput table."""
        if job.model is None:
            return None
        if job.phases is not None and "@" in job.phases and (wrong := self._wrong_depth(job)):
            return wrong
        if job.plan_options is None and job.seq_len is None:
            return None
        key = job.model, job.global_batch, job.seq_len, job.plan_options
        if key not in self._misfits:
            model = self._models.find(job.model)
            self._misfits[key] = misfit(job, model) if model else None
        return self._misfits[key]

    def _wrong_depth(self, job: Job) -> _Misfit:
        """A phase of the job with layers that its model has not."""
        assert job.model is not None
        for phase in parse_phases(job.phases or ""):
            try:
                self._models.find(at_depth(job.model, phase.layers))
            except UserError as error:
                return "phases", job.phases, f"need layers of {job.model}, which {error}"
        return None

    def _find(self, name: str) -> str | None:
        if self._known is None:
            self._known = self._models.names()
        if name not in self._known and not names_file(name):
            return str(UnknownName("model", name, self._known))
        try:
            self._models.find(name)
        except UserError as error:
            return str(error)
        return None


def _check_header(table: Table) -> None:
    where, columns = f"{table.path}:1", table.columns
    if not columns:
        example = "job_id,submit_s,gpus,duration_s"
        raise TableError(f"{where}: empty file; the first line names the columns, for example {example}")
    check_repeated(columns, where)
    unknown = [name for name in columns if name not in COLUMNS and not name.startswith(OWN_PREFIX)]
    missing = _missing(columns)
    if not unknown and not missing:
        return
    if not any(name in COLUMNS or "job_id" in name for name in columns):
        raise TableError(
            f"{where}: has no column of a trace, which has job_id, submit_s and more (docs/traces.md); "
            f"the log of a scheduler becomes a trace by `clustersim trace import {table.path} -o jobs.csv`"
        )
    hints = [str(UnknownName("column", shown(name), COLUMNS)) for name in unknown[:_MOST_NAMED]]
    hints = [hint.partition("; known: ")[0] for hint in hints]
    if len(unknown) > _MOST_NAMED:
        hints.append(f"and {len(unknown) - _MOST_NAMED} more")
    if unknown:
        hints.append(f"a trace has {', '.join(COLUMNS)}; a column of your own must start with x_")
    if missing:
        hints.append(missing)
    hint = _other_format(columns)
    raise TableError(f"{where}: " + "; ".join(hints) + (f"; {hint}" if hint else ""))


def _missing(columns: list[str]) -> str:
    required = [name for name in ("job_id", "submit_s") if name not in columns]
    if required:
        return f"missing column {' and '.join(required)}"
    if any(all(name in columns for name in group) for group in (_BY_ITERATIONS, _BY_DURATION)):
        return ""
    return "missing columns: a trace needs model, global_batch and iterations, or gpus and duration_s"


def _other_format(columns: list[str]) -> str:
    if hint := separator_hint(columns):
        return hint
    if "job_id" not in columns or "submit_s" not in columns:
        return "a job log becomes a trace by `clustersim trace import`"
    return ""


def _jobs(table: Table, problems: _Problems, models: _Models) -> Iterator[tuple[int, Job]]:
    width = len(table.columns)
    readers = [
        (i, _FIELDS.index(name), without_guard if name in _FREE and table.is_csv else COLUMNS[name])
        for i, name in enumerate(table.columns)
        if name in COLUMNS
    ]
    own_columns = [(i, name) for i, name in enumerate(table.columns) if name.startswith(OWN_PREFIX)]
    text_of_cell = without_guard if table.is_csv else str
    for line, row in table.rows:
        if len(row) != width:
            text = f"has {len(row)} cells where the header has {width}; look for a stray comma"
            problems.add_row(line, text)
            continue
        extra: tuple[tuple[str, str], ...] = ()
        if own_columns:
            try:
                extra = extra_of((name, text_of_cell(row[i])) for i, name in own_columns)
            except ValueError as error:
                problems.add_row(line, f"{OWN_PREFIX}...: {error}")
        job = _job(line, row, readers, extra, problems)
        if job is None:
            continue
        for column, value, text in contradictions(job):
            problems.add(line, column, value, text)
        if job.model is not None and job.kind == "iterations":
            if unknown := models.problem(job.model):
                problems.add(line, "model", job.model, unknown)
            elif wrong := models.misfit(job):
                problems.add(line, *wrong)
        yield line, job


def _job(
    line: int,
    row: list[str],
    readers: list[tuple[int, int, Callable[[str], Any]]],
    extra: tuple[tuple[str, str], ...],
    problems: _Problems,
) -> Job | None:
    values = _UNSTATED.copy()
    problem_count = problems.count
    for i, place, parse in readers:
        cell = row[i]
        if not cell or cell.isspace():
            continue
        try:
            values[place] = parse(cell)
        except ValueError as error:
            problems.add(line, _FIELDS[place], cell, str(error))
    if problems.count == problem_count:
        for value, name in zip(values, ("job_id", "submit_s"), strict=False):
            if value is None and problems.count == problem_count:
                problems.add(line, name, "", "is empty; every job needs one")
    values[_EXTRA] = extra
    return job_of(values) if problems.count == problem_count else None
