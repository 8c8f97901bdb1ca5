"""Rows whose cells are separated by bars, where names and command lines may hold bars and line breaks.

sacct quotes nothing. Free text has typed cells on both sides, so its bars are those that leave every typed
cell readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise

from traces.logs.source import LogSource

__all__ = ["JOB_ID", "rows_of"]

_FREE = ("JobName", "SubmitLine", "Comment", "AdminComment", "SystemComment", "WorkDir", "Container", "Extra",
         "StdIn", "StdOut", "StdErr", "FailedNode", "Reason", "WCKey")  # fmt: skip
"""Columns of text that a user writes."""

JOB_ID = re.compile(r"\d+(?:_(?:\d+|\[.*\])|\+\d+)?(?:\.\w+)?", re.ASCII)
"""The id of a job, a task, the tasks of a pending array, a component or a step."""

_START = re.compile(r"\d+(?:_(?:\d+|\[[^|]*\])|\+\d+)?(?:\.\w+)?\|", re.ASCII)
_MOST_LINES = 200  # of a row
_MOST_WAYS = 5_000  # to divide the bars of a row among columns of free text
_DATE = re.compile(r"|Unknown|None|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|\d+", re.ASCII)
_TYPED = {
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), _DATE),
    **dict.fromkeys(
        ("ElapsedRaw", "TimelimitRaw", "NNodes", "UID", "GID", "NCPUS"), re.compile(r"|\d+|[A-Z]\w*")
    ),
    **dict.fromkeys(("JobID", "JobIDRaw"), JOB_ID),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), re.compile(r"|[^|= ]+=[^|= ]+(?:,[^|= ]+=[^|= ]+)*")),
    **dict.fromkeys(("Elapsed", "Suspended"), re.compile(r"|[\d:.-]+", re.ASCII)),
    "State": re.compile(r"|[A-Z_]+\+?(?: by \w+)?"),
    "ExitCode": re.compile(r"|\d+:\d+", re.ASCII),
}


def rows_of(source: LogSource, columns: list[str], has_header: bool) -> Iterator[tuple[int, list[str], str]]:
    """The rows of a log as (line, cells, problem); a row with a problem has no cells to read."""
    count = len(columns)
    skip = has_header
    waiting: tuple[int, str] | None = None  # a row that may go on in the next line
    for line, text in source.lines():
        if skip and text and not text.isspace() and not text.startswith("#"):
            skip = False
            continue
        if waiting is not None:
            first_line, begun = waiting
            if (_START.match(text) and text.count("|") >= count - 1) or line - first_line > _MOST_LINES:
                yield first_line, [], _too_few(begun, count)
                waiting = None
            else:
                begun = f"{begun}\n{text}"
                waiting = None if begun.count("|") >= count - 1 else (first_line, begun)
                if waiting is None:
                    yield _row(first_line, begun, columns)
                continue
        if not text or text.isspace() or text.startswith("#"):
            continue
        cells = text.split("|")
        if len(cells) == count:
            yield line, cells, ""
        elif len(cells) == count + 1 and not cells[-1]:
            cells.pop()  # the bar at the end of --parsable
            yield line, cells, ""
        elif len(cells) > count:
            yield _row(line, text, columns)
        elif _START.match(text):
            waiting = line, text
        else:
            yield line, [], _too_few(text, count)
    if waiting is not None:
        yield waiting[0], [], _too_few(waiting[1], count)


def _too_few(text: str, count: int) -> str:
    return f"has {text.count('|') + 1} cells where the header has {count}"


def _row(line: int, text: str, columns: list[str]) -> tuple[int, list[str], str]:
    """A row with bars in its free text."""
    cells, count = text.split("|"), len(columns)
    if len(cells) == count:
        return line, cells, ""
    for pieces in [cells[:-1], cells] if not cells[-1] else [cells]:
        divided = _divided(pieces, columns)
        if divided is not None:
            return line, divided, ""
    return line, [], f"has {len(cells)} cells where the header has {count}"


def _divided(cells: list[str], columns: list[str]) -> list[str] | None:
    """The cells of the columns, with the bars that are too many in free text; None if nothing fits."""
    extra = len(cells) - len(columns)
    free = [place for place, name in enumerate(columns) if name in _FREE]
    if extra <= 0 or not free:
        return list(cells) if extra == 0 else None
    # Ways to give `extra` bars to the columns of free text, as bars among stars.
    for way, bars in enumerate(combinations(range(extra + len(free) - 1), len(free) - 1)):
        if way >= _MOST_WAYS:
            return None
        bounds = (-1, *bars, extra + len(free) - 1)
        bars_of = dict(zip(free, (high - low - 1 for low, high in pairwise(bounds)), strict=True))
        joined, place = list[str](), 0
        for column in range(len(columns)):
            width = 1 + bars_of.get(column, 0)
            joined.append("|".join(cells[place : place + width]))
            place += width
        if all(
            name not in _TYPED or _TYPED[name].fullmatch(cell)
            for name, cell in zip(columns, joined, strict=True)
        ):
            return joined
    return None
