"""Logs of any layout: the user names the columns that state a job's fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import TextLayout, quoted, shown
from traces.attempts import parse_attempts
from traces.native import COLUMNS, number

from .cells import LogColumn, is_number, parser
from .formats.slurm import Tres
from .log import Log, ReadOptions
from .source import LogSource
from .tables import TableOfJobs, read_table, unknown_column

__all__ = ["MEANINGS", "parse_columns", "read_log"]

MEANINGS: tuple[str, ...] = (
    "job_id", "submit_s", "gpus", "duration_s", "start_s", "end_s", "steps", "step_s", "deadline_s", "tenant",
    "user", "state", "priority", "estimate_s", "gpu_type", "logged_start_s", "logged_end_s", "wait_s",
    "partition", "qos", "weight", "cpus", "host_memory_gb", "begin_s", "eligible_s", "cancel_s",
    "time_limit_s", "account", "partitions", "nodes", "gpus_per_node", "depends", "name", "array_id",
    "array_limit", "attempts", "suspended_s", "nice", "reservation",
)  # fmt: skip
"""Names that the user can give to a column."""

_REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
_PAIRS = (("start_s", "end_s"), ("steps", "step_s"))  # of which one gives the run time, if no column does
_LIMITS = {"time_limit_s", "estimate_s"}
_UNKNOWN = ("-1", "-1.0", "-1.00")
_SHARE, _WHOLE_GPU = "gpu_milli", 1000  # of Alibaba's GPU traces of 2023 (Weng et al., USENIX ATC 2023)


def parse_columns(text: str) -> dict[str, str]:
    """Parse `submit_s=timestamp,gpus=num_gpus,...` into a mapping from a job's field to the log's column.

    Raises UserError for other text, an unknown or repeated field, or if the submission, the GPUs or the run
    time is missing.

    >>> parse_columns("submit_s=when,gpus=n,duration_s=t")
    {'submit_s': 'when', 'gpus': 'n', 'duration_s': 't'}
    """
    column_of_field: dict[str, str] = {}
    for part in text.split(","):
        meaning, equals, column = (piece.strip() for piece in part.partition("="))
        if not (meaning and equals and column):
            example = "write NAME=COLUMN, for example submit_s=timestamp, or submit_s=1 for the first column"
            raise UserError(f"--columns {quoted(part)}: {example}")
        if meaning not in MEANINGS:
            raise UnknownName("name in --columns", shown(meaning), MEANINGS)
        if meaning in column_of_field:
            raise UserError(f"--columns: {meaning} is given twice; keep one")
        column_of_field[meaning] = column
    for meaning in ("submit_s", "gpus"):
        if meaning not in column_of_field:
            raise UserError(f"--columns: {meaning} is missing; add {meaning}=COLUMN")
    if "duration_s" not in column_of_field and _pair(column_of_field) is None:
        pairs = " or ".join("both " + " and ".join(f"{name}=COLUMN" for name in pair) for pair in _PAIRS)
        raise UserError(f"--columns: needs duration_s=COLUMN, or {pairs}")
    return column_of_field


def _pair(column_of_field: Mapping[str, str]) -> tuple[str, str] | None:
    """The two fields that give the run time together."""
    return next((pair for pair in _PAIRS if set(pair) <= set(column_of_field)), None)


def read_log(source: LogSource, column_of_field: Mapping[str, str], options: ReadOptions) -> Log:
    """Read a log with the columns `column_of_field` (see `parse_columns`); whole numbers are places, from 1.

    Raises TableError if a column does not exist or no row is usable.
    """
    columns = source.head.columns
    if not source.head.text.strip() and not columns:
        raise TableError(f"{source.path}:1: empty file; the first line names the columns")
    if not columns:
        raise TableError(f"{source.path}:1: holds no table; --columns names the columns of one")
    if all(_is_place(column) for column in column_of_field.values()):
        return _read_by_number(source, column_of_field, options)
    for column in column_of_field.values():
        if column not in columns:
            hint = "; if this is a job and no header, number the columns from 1" if _is_row(columns) else ""
            raise TableError(f"{source.path}:1: {unknown_column(column, columns)}{hint}")
    cells = _cells(column_of_field)
    if _SHARE in columns:
        cells["part_of_gpu"] = LogColumn(_SHARE, _is_share, optional=True)
    return _read(source, TableOfJobs("columns", cells, _assumptions(column_of_field)), options)


def _read(
    source: LogSource, form: TableOfJobs, options: ReadOptions, layout: TextLayout | None = None
) -> Log:
    """Read a table whose jobs may have run to their limits."""
    if not _may_end_at_limit(form.cells):
        return read_table(source, form, options, layout)
    to_the_limit = _ToTheLimit()
    log = read_table(source, replace(form, derive=to_the_limit), options, layout)
    if not to_the_limit.count:
        return log
    column = form.cells["duration_s"].column
    note = f"{to_the_limit.count:,} jobs state no {column}, or -1: they ran until their limit stopped them"
    return replace(log, assumptions=(*log.assumptions, note))


def _read_by_number(source: LogSource, column_of_field: Mapping[str, str], options: ReadOptions) -> Log:
    """Columns by number; the first row is a job unless its cells cannot be one's, as those of a header."""
    columns = source.head.columns
    for meaning, column in column_of_field.items():
        if not 1 <= int(column) <= len(columns):
            problem = f"--columns {meaning}={column}: the log has {len(columns)} columns"
            raise TableError(f"{source.path}:1: {problem}; the first is 1")
    cells = _cells(column_of_field)
    header = not all(
        _parses(meaning, cells[meaning], columns[int(c) - 1]) for meaning, c in column_of_field.items()
    )
    notes = [
        *_assumptions(column_of_field),
        "the first row " + ("names the columns" if header else "is a job"),
    ]
    if header:
        names = {meaning: columns[int(column) - 1] for meaning, column in column_of_field.items()}
        return _read(source, TableOfJobs("columns", _cells(names), notes), options)
    return _read(source, TableOfJobs("columns", cells, notes), options, source.layout(header=False))


def _cells(column_of_field: Mapping[str, str]) -> dict[str, LogColumn]:
    required = _REQUIRED if "duration_s" in column_of_field else (*_REQUIRED, *(_pair(column_of_field) or ()))
    parsers = {"gpus": _gpus, "attempts": parse_attempts}
    cells = {
        meaning: LogColumn(column, parsers.get(meaning), optional=meaning not in required)
        for meaning, column in column_of_field.items()
    }
    if _may_end_at_limit(cells):
        cells["duration_s"] = replace(cells["duration_s"], optional=True, empty=_UNKNOWN)
    return cells


def _gpus(cell: str) -> int:
    """GPUs as a number, or in a list of Slurm's trackable resources."""
    if "gres/" not in cell:
        return int(COLUMNS["gpus"](cell))
    request = Tres().request(cell)
    if request is None:
        raise ValueError("names no gres/gpu: a job without GPUs")
    return request.gpus


def _may_end_at_limit(cells: Mapping[str, LogColumn]) -> bool:
    """Whether a job without a run time may be one that ran to its limit; one of a native trace is not."""
    run_time = cells.get("duration_s")
    return run_time is not None and run_time.column != "duration_s" and bool(_LIMITS & cells.keys())


class _ToTheLimit:
    """Gives jobs of unknown run time that of their limit, which stopped them; `count`: of how many."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, values: dict[str, Any]) -> None:
        if "duration_s" in values:
            return
        limit_s = values.get("time_limit_s", values.get("estimate_s"))
        if limit_s is None:
            raise ValueError("states neither a run time nor a limit")
        values["duration_s"] = values["time_limit_s"] = limit_s
        self.count += 1


def _is_row(columns: Collection[str]) -> bool:
    return any(is_number(column) for column in columns)


def _is_place(column: str) -> bool:
    return column.isascii() and column.isdigit() and len(column) < 10


def _parses(meaning: str, cell: LogColumn, text: str) -> bool:
    """Whether the text of the first row can be a job's; numbers of any size can, whatever their unit."""
    if not text or is_number(text):
        return True
    try:
        parser(meaning, cell, "s")(text)
    except ValueError:
        return False
    return True


def _is_share(cell: str) -> bool:
    """Whether a cell states a share of a GPU, as in Alibaba's logs."""
    try:
        return 0 < number(cell) < _WHOLE_GPU
    except ValueError:
        return False


def _assumptions(column_of_field: Mapping[str, str]) -> list[str]:
    meant = ", ".join(f"{meaning} is {column}" for meaning, column in column_of_field.items())
    length = column_of_field.get("duration_s")
    if length is None:
        by_times = _pair(column_of_field) == _PAIRS[0]
        length = "{end_s} - {start_s}" if by_times else "{steps} x {step_s}"
        length = length.format_map(column_of_field)
    notes = [
        f"columns as the user named them: {meant}",
        f"{length} is the run time on {column_of_field['gpus']} GPUs, without queueing and without restarts",
        "every job is taken to want all of its logged run time, however it ended",
    ]
    if "job_id" not in column_of_field:
        notes.append("jobs are named by the line of their row")
    if "tenant" not in column_of_field:
        notes.append("the log names no tenants: all jobs belong to the tenant 'default'")
    return notes
