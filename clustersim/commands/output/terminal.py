"""Text on a terminal: untrusted text, progress bars, sentences, and tables that fit any width."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

from itertime.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "WIDE",
    "plain",
    "print_table",
    "progress_of",
    "progress_of_runs",
    "say",
    "say_item",
    "width_of_stdout",
]

WIDE = 100_000
"""The width of `--wide`: a table has all its columns, and a sentence is one line."""

_STEPS = 200  # of a progress bar

_PIPE_WIDTH = 80
"""A pipe has no width; text in a pipe is as wide as on a small terminal, unless COLUMNS says otherwise."""
_GAP, _EDGES = 3, 2  # characters between columns, and at both sides of a table
_LEAST_KEY = 4  # characters of a folded key column
_LONG_KEY = 26  # characters of a key that is folded before columns are left out

Rows = Sequence[Sequence[str]]


def plain(text: str) -> str:
    """Untrusted text for a terminal, on one line and without control characters."""
    return printable(text, kept="")


def width_of_stdout() -> int:
    """The characters of a line: those of the terminal; in a pipe COLUMNS, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return get_terminal_size((_PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else _PIPE_WIDTH


def say(text: str, width: int | None = None, indent: int = 2, err: bool = False) -> None:
    """Print a sentence, folded at blanks to the width of the output. Later lines are indented.

    `err`: on stderr, as what is about the way to the result.
    """
    plain_text = plain(text)
    lines = wrap(
        plain_text,
        width or width_of_stdout(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines), file=sys.stderr if err else sys.stdout)


def say_item(text: str) -> None:
    """Print a sentence as an item of a list, folded as by `say`."""
    say(f"  - {text}", indent=4)


@contextmanager
def progress_of(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr: call the result with the number done so far. Shows nothing if stderr is not a
    terminal.
    """
    with progress_of_runs({text: total}) as advance:
        yield lambda done: advance(0, done)


@contextmanager
def progress_of_runs(totals: Mapping[str, int]) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr for each text with its total: call the result with the number of the bar and
    the number done so far. Shows nothing if stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda bar, done: None
        return
    with _bars() as bars:
        tasks = [bars.add_task(plain(text), total=total) for text, total in totals.items()]
        ends = list(totals.values())

        def advance(bar: int, done: int) -> None:
            if done % max(1, ends[bar] // _STEPS) == 0 or done >= ends[bar]:
                bars.update(tasks[bar], completed=done)

        yield advance


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    parts = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    return Progress(*parts, console=Console(stderr=True), transient=True)


def print_table(
    heads: Sequence[str],
    rows: Rows,
    keys: int = 1,
    least_columns: Sequence[int] = (),
    *,
    width: int | None = None,
    remedy: str = "COLUMNS=200 before the command shows them",
    all_columns: bool = False,
) -> None:
    """Print rows under their heads. The first `keys` columns are left-aligned, and blank where they repeat.

    On a narrow terminal the heads are folded first, then long keys and the cells at parentheses. Then columns
    `least_columns` are left out one by one, the first of them first, then the others from the right; at least
    one stays beside the keys. They are named below the table, with `remedy`, which says how to see them. No
    cell is cut off: where the keys alone are too wide, they are folded too. With `all_columns` none is left
    out, and the keys are folded at once.
    """
    width = width or width_of_stdout()
    order = [*least_columns, *(i for i in reversed(range(keys, len(heads))) if i not in least_columns)]
    most_absent = 0 if all_columns else min(len(order), max(0, len(heads) - keys - 1))
    for absent in range(most_absent + 1):
        shown_columns = [i for i in range(len(heads)) if i not in order[:absent]]
        kept_heads, kept_rows = (
            [heads[i] for i in shown_columns],
            [[row[i] for i in shown_columns] for row in rows],
        )
        for cells in (_without_repeats(kept_rows, keys), _folded(_without_repeats(kept_rows, keys), keys)):
            widths = _widths(kept_heads, cells, width) or _widths(kept_heads, cells, width, keys)
            if not widths and absent == most_absent:
                widths = _squeezed(kept_heads, cells, width, keys)
            if widths:
                _print(width, kept_heads, cells, keys, widths)
                _say_absent([heads[i] for i in sorted(order[:absent])], width, remedy)
                return


def _say_absent(heads: Sequence[str], width: int, remedy: str) -> None:
    if heads:
        say(f"Left out at {width} columns: {'; '.join(heads)}. {remedy}.", width)


def _without_repeats(rows: Rows, keys: int) -> list[list[str]]:
    """The rows, with leading cells blank as far as they repeat the row before."""
    lines, key_before = [], tuple[str, ...]()
    for row in rows:
        key = tuple(row[:keys])
        lines.append(
            [*("" if key[: i + 1] == key_before[: i + 1] else row[i] for i in range(keys)), *row[keys:]]
        )
        key_before = key
    return lines


def _folded(rows: Rows, keys: int) -> list[list[str]]:
    return [
        [*row[:keys], *(cell.replace(" (", "\n(").replace(" to ", "\nto ") for cell in row[keys:])]
        for row in rows
    ]


def _needed(heads: Sequence[str], rows: Rows, folded_keys: int = 0) -> list[int]:
    """The widths of columns that hold every line of the cells and every word of the heads. Of the columns
    before `folded_keys`, long cells are folded.
    """
    words = [max(map(len, head.split()), default=0) for head in heads]
    lines = [
        max((len(line) for row in rows for line in row[i].split("\n")), default=0) for i in range(len(heads))
    ]
    limits = [_LONG_KEY if i < folded_keys else inf for i in range(len(heads))]
    return [int(max(word, min(line, limit))) for word, line, limit in zip(words, lines, limits, strict=True)]


def _spare(widths: Sequence[int], room: int) -> int:
    return room - sum(widths) - _GAP * (len(widths) - 1) - _EDGES


def _widths(heads: Sequence[str], rows: Rows, room: int, folded_keys: int = 0) -> list[int]:
    """Widths of columns that hold the cells, of which long ones of keys may be folded. Empty if `room` is too
    small. Spare width goes to the folded heads, first to those that need least.
    """
    widths = _needed(heads, rows, folded_keys)
    spare = _spare(widths, room)
    if spare < 0:
        return []
    for i in sorted(range(len(heads)), key=lambda i: len(heads[i]) - widths[i]):
        extra = min(spare, max(0, len(heads[i]) - widths[i]))
        widths[i] += extra
        spare -= extra
    return widths


def _squeezed(heads: Sequence[str], rows: Rows, room: int, keys: int) -> list[int]:
    """Widths for the smallest table, of which the widest columns are folded until all fit: first the keys,
    then the others.
    """
    widths = _needed(heads, rows)
    for columns in (range(keys), range(len(widths))):
        while _spare(widths, room) < 0 and max(widths[i] for i in columns) > _LEAST_KEY:
            widest = max(columns, key=lambda i: widths[i])
            widths[widest] -= 1
    return widths


def _print(width: int, heads: Sequence[str], rows: Rows, keys: int, widths: Sequence[int]) -> None:
    from rich import box
    from rich.table import Table

    console = _console(width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, (head, column) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(head, justify="left" if i < keys else "right", width=column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().split("\n")), end="")


def _console(width: int) -> Console:
    from rich.console import Console

    return Console(width=width, markup=False, highlight=False)
