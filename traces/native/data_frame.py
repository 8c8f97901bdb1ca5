"""A data frame as jobs: the columns of the native trace, one job a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from itertime.errors import TableError, UnknownName, UserError
from itertime.io import check_repeated, has_parquet, shown
from traces.job import Job

from .schema import COLUMNS, OWN_PREFIX, contradictions, extra_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["is_data_frame", "jobs_of_frame"]

INTERCHANGE, ARROW = "__dataframe__", "__arrow_c_stream__"


def is_data_frame(value: object) -> bool:
    """Whether a value is a data frame or a table, of any library with one of the two protocols for them."""
    return hasattr(value, INTERCHANGE) or hasattr(value, ARROW)


def jobs_of_frame(frame: Any) -> list[Job]:
    """The jobs of a data frame with the columns of a native trace, in the order of its rows.

    `frame`: of pandas, or of a library with the Arrow stream interface or the data frame interchange
    protocol (polars, pyarrow, ...). A missing value (None, NaN, NaT) is "not stated". Columns of names that
    start with x_ are for policies, as in a file. TableError names the row, counted from 0, the column and the
    value of a mistake. UserError for another library's frame without pyarrow, which reads it.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame) and hasattr(frame, ARROW):
        if not has_parquet():
            remedy = "give a frame of pandas, or install the extra: pip install 'clustersim[parquet]'"
            raise UserError(f"data frame: {type(frame).__name__}: is read by pyarrow; {remedy}")
        import pyarrow

        try:
            frame = pyarrow.table(frame).to_pandas()
        except pyarrow.ArrowInvalid:
            type_name = type(frame).__name__
            raise TableError(
                f"data frame: {type_name}: is one column; give a column for each field"
            ) from None
    elif not isinstance(frame, pd.DataFrame):
        frame = pd.api.interchange.from_dataframe(frame)
    names = [str(name) for name in frame.columns]
    for name in names:
        if name not in COLUMNS and not name.startswith(OWN_PREFIX):
            raise TableError(f"data frame: {UnknownName('column', shown(name), COLUMNS)}")
    check_repeated(names, "data frame")
    if missing := [name for name in ("job_id", "submit_s") if name not in names]:
        raise TableError(f"data frame: missing column {' and '.join(missing)}")
    for i, name in enumerate(names):
        _check_kind(name, frame.iloc[:, i])
    return list(_jobs(frame, names))


def _jobs(frame: pd.DataFrame, names: list[str]) -> Iterator[Job]:
    columns = [frame.iloc[:, i] for i in range(len(names))]
    has_value = [column.notna() for column in columns]
    for row, (cells, row_has_value) in enumerate(
        zip(zip(*columns, strict=True), zip(*has_value, strict=True), strict=True)
    ):
        values: dict[str, Any] = {}
        own_cells = []
        for name, cell, is_known in zip(names, cells, row_has_value, strict=True):
            if is_known and name in COLUMNS:
                values[name] = _parsed(row, name, str(cell))
            elif is_known:
                own_cells.append((name, str(cell)))
        for name in ("job_id", "submit_s"):
            if name not in values:
                raise TableError(f"data frame, row {row}: {name}: is empty; every job needs one")
        job = Job(**values, extra=extra_of(own_cells))
        for column, value, text in contradictions(job):
            raise TableError(f"data frame, row {row}: {column}={shown(value)}: {text}")
        yield job


def _check_kind(name: str, column: pd.Series[Any]) -> None:
    """TableError, with the remedy, for dates and spans of time: all times of a trace are seconds."""
    kind = column.dtype.kind
    if kind == "M":
        remedy = f"({name} - {name}.min()).dt.total_seconds()"
        raise TableError(f"data frame: {name}: has dates; write seconds: {remedy}")
    if kind == "m":
        raise TableError(f"data frame: {name}: has spans of time; write seconds: {name}.dt.total_seconds()")


def _parsed(row: int, column: str, text: str) -> Any:
    try:
        return COLUMNS[column](text)
    except ValueError as error:
        raise TableError(f"data frame, row {row}: {column}={shown(text)}: {error}") from None
