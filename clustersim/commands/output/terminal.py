"""Text on a terminal: untrusted text, progress bars, and tables that fit any width."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING

from itertime.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["plain", "print_table", "progress_of"]

_STEPS = 200  # of a progress bar

_PIPE_WIDTH = 160
"""A pipe has no width; tables in a pipe are folded to this one."""
_GAP, _EDGES = 3, 2  # characters between columns, and at both sides of a table

Rows = Sequence[Sequence[str]]


def plain(text: str) -> str:
    """Untrusted text for a terminal, on one line and without control characters."""
    return printable(text, kept="")


@contextmanager
def progress_of(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr: call the result with the number done so far. Shows nothing if stderr is not a
    terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(text, total=total)
        stride = max(1, total // _STEPS)

        def advance(done: int) -> None:
            if done % stride == 0 or done == total:
                bar.update(job, completed=done)

        yield advance


def print_table(heads: Sequence[str], rows: Rows, keys: int = 1, least: Sequence[int] = ()) -> None:
    """Print rows under their heads. The first `keys` columns are left-aligned, and blank where they repeat.

    No cell is cut off: on a narrow terminal the heads are folded first, then the cells at their parentheses.
    Then the columns `least` are left out one by one, the first of them first, and named below the table. A
    table that is still too wide becomes a paragraph per row, with all columns.
    """
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False, highlight=False)
    for absent in range(len(least) + 1):
        shown = [i for i in range(len(heads)) if i not in least[:absent]]
        kept_heads, kept = [heads[i] for i in shown], [[row[i] for i in shown] for row in rows]
        for cells in (_without_repeats(kept, keys), _folded(_without_repeats(kept, keys))):
            widths = _widths(kept_heads, cells, console.width)
            if widths:
                _print(console, kept_heads, cells, keys, widths)
                _say_absent([heads[i] for i in sorted(least[:absent])], console.width)
                return
    for row in rows:
        named = ", ".join(f"{head} {cell}" for head, cell in zip(heads[:keys], row[:keys], strict=True))
        values = "; ".join(f"{head}: {cell}" for head, cell in zip(heads[keys:], row[keys:], strict=True))
        for line in wrap(f"{named}: {values}", console.width, subsequent_indent="    "):
            print(line)


def _say_absent(heads: Sequence[str], width: int) -> None:
    if heads:
        for line in wrap(f"Left out in {width} columns of text: {'; '.join(heads)}.", width):
            print(line)


def _without_repeats(rows: Rows, keys: int) -> list[list[str]]:
    """The rows, with leading cells blank as far as they repeat the row before."""
    shown, before = [], tuple[str, ...]()
    for row in rows:
        key = tuple(row[:keys])
        shown.append([*("" if key[: i + 1] == before[: i + 1] else row[i] for i in range(keys)), *row[keys:]])
        before = key
    return shown


def _folded(rows: Rows) -> list[list[str]]:
    return [[cell.replace(" (", "\n(").replace(" to ", "\nto ") for cell in row] for row in rows]


def _widths(heads: Sequence[str], rows: Rows, room: int) -> list[int]:
    """Widths of columns that hold every line of the cells and every word of the heads. Empty if `room` is too
    small. Spare width goes to the folded heads, first to those that need least.
    """
    words = [max(map(len, head.split())) for head in heads]
    lines = [
        max((len(line) for row in rows for line in row[i].split("\n")), default=0) for i in range(len(heads))
    ]
    widths = [max(pair) for pair in zip(words, lines, strict=True)]
    spare = room - sum(widths) - _GAP * (len(widths) - 1) - _EDGES
    if spare < 0:
        return []
    for i in sorted(range(len(heads)), key=lambda i: len(heads[i]) - widths[i]):
        more = min(spare, max(0, len(heads[i]) - widths[i]))
        widths[i] += more
        spare -= more
    return widths


def _print(console: Console, heads: Sequence[str], rows: Rows, keys: int, widths: Sequence[int]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(head, justify="left" if i < keys else "right", width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)
