"""Logs of any layout: the user names the columns that state a job's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import quoted, separator_hint, shown
from traces.native import COLUMNS, number

from .log import Fields, Log, Moments, moment, span
from .log import read_log as _read

__all__ = ["MEANINGS", "parse_columns", "read_log"]

MEANINGS: Mapping[str, Callable[[str], Any]] = {
    "job_id": COLUMNS["job_id"],
    "submit_s": moment,
    "gpus": COLUMNS["gpus"],
    "duration_s": span,
    "start_s": moment,
    "end_s": moment,
    "deadline_s": moment,
    "tenant": COLUMNS["tenant"],
    "state": COLUMNS["state"],
}
"""Name that the user can give to a column -> parser of its cells; moments in one column are of one kind."""

_MOST_NAMED = 50  # columns of a log that an error lists
_OPTIONAL = ("deadline_s", "tenant", "state", "part_of_gpu")
_SHARE, _WHOLE_GPU = "gpu_milli", 1000  # of Alibaba's GPU traces of 2023 (Weng et al., USENIX ATC 2023)


def parse_columns(text: str) -> dict[str, str]:
    """Parse `submit_s=timestamp,gpus=num_gpus,...` into a mapping from a job's field to the log's column.

    Raises UserError for other text, an unknown or repeated field, or if the submission, the GPUs or the run
    time is missing.

    >>> parse_columns("submit_s=when,gpus=n,duration_s=t")
    {'submit_s': 'when', 'gpus': 'n', 'duration_s': 't'}
    """
    named: dict[str, str] = {}
    for part in text.split(","):
        meaning, equals, column = (piece.strip() for piece in part.partition("="))
        if not (meaning and equals and column):
            raise UserError(f"--columns {quoted(part)}: write NAME=COLUMN, for example submit_s=timestamp")
        if meaning not in MEANINGS:
            raise UnknownName("name in --columns", meaning, MEANINGS)
        if meaning in named:
            raise UserError(f"--columns: {meaning} is given twice; keep one")
        named[meaning] = column
    for meaning in ("submit_s", "gpus"):
        if meaning not in named:
            raise UserError(f"--columns: {meaning} is missing; add {meaning}=COLUMN")
    spans = {"start_s", "end_s"} & set(named)
    if ("duration_s" in named) == bool(spans) or len(spans) == 1:
        raise UserError("--columns: needs either duration_s=COLUMN or both start_s=COLUMN and end_s=COLUMN")
    return named


def read_log(path: str | Path, named: Mapping[str, str]) -> Log:
    """Read a log with the columns `named` (see `parse_columns`). Raises TableError if no row is usable."""

    def fields_of(columns: list[str]) -> Fields:
        for column in named.values():
            if column not in columns:
                raise TableError(f"{path}:1: {_unknown(column, columns)}")
        fields = {meaning: (column, _parser(MEANINGS[meaning])) for meaning, column in named.items()}
        return fields | ({"part_of_gpu": (_SHARE, _is_share)} if _SHARE in columns else {})

    return _read(path, "columns", fields_of, _assumptions(named), _OPTIONAL)


def _parser(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return Moments() if parse is moment else parse


def _is_share(cell: str) -> bool:
    """Whether a cell states a share of a GPU, as in Alibaba's logs."""
    try:
        return 0 < number(cell) < _WHOLE_GPU
    except ValueError:
        return False


def _unknown(column: str, columns: list[str]) -> str:
    known = [shown(name) for name in columns]
    hint = str(UnknownName("column", column, known)).partition("; known: ")[0]
    rest = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    separated = separator_hint(columns)
    listed = f"{', '.join(known[:_MOST_NAMED])}{rest}"
    return f"{hint}; its columns are {listed}" + (f"; {separated}" if separated else "")


def _assumptions(named: Mapping[str, str]) -> list[str]:
    meant = ", ".join(f"{meaning} is {column}" for meaning, column in named.items())
    length = f"{named['end_s']} - {named['start_s']}" if "end_s" in named else named["duration_s"]
    notes = [
        f"columns as the user named them: {meant}",
        f"{length} is the run time on {named['gpus']} GPUs, without queueing and without restarts",
        "dates without an offset are UTC",
        "every job is taken to want all of its logged run time, however it ended",
    ]
    if "job_id" not in named:
        notes.append("jobs are named by the line of their row")
    if "tenant" not in named:
        notes.append("the log names no tenants: all jobs belong to the tenant 'default'")
    return notes
