"""Lengths of training samples: how many tokens the samples of a data set have, as shares by length.

Three forms of a table are read, told apart by their columns:

| columns | a row |
|---|---|
| `tokens,sequences` | a histogram: so many sequences have this length |
| `tokens,share` | the same as shares, which sum to 1 |
| `first,last,mean,share` | a class of lengths, `first` to `last`, with its mean length and its share |

Lines that begin with # are comments. Shipped tables are classes, which `experiments.evidence.build_lengths`
computes. Within a class the shares of the lengths rise or fall linearly, so that the mean is the one stated.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from itertime.errors import TableError, UnknownName, UserError, shown
from itertime.io import Table, TextLayout, check_repeated, open_table, separator_hint

LENGTHS = Path(__file__).parents[1] / "lengths"

MOST_TOKENS = 10**9
MOST_LENGTHS = 100_000  # different lengths of a table
MOST_SEQUENCES = 10**15
SUM_TOLERANCE = 1e-6  # of shares, which are written with a limited number of digits


@dataclass(frozen=True)
class Lengths:
    """A distribution of sample lengths: `shares[i]` of the samples have `tokens[i]` tokens.

    The lengths rise from at least 1, the shares are positive and sum to 1. `source` says where they come
    from: the data set, or the file. Raises UserError if a rule is broken.

    >>> lengths = Lengths("two", "an example", (128, 512), (0.75, 0.25))
    >>> lengths.mean, lengths.mean_square, lengths.longest, lengths.quantile(0.5)
    (224.0, 77824.0, 512, 128)
    """

    name: str
    source: str
    tokens: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.shares):
            raise UserError(f"lengths {shown(self.name)}: need one share for each of at least one length")
        if self.tokens[0] < 1 or any(a >= b for a, b in zip(self.tokens, self.tokens[1:], strict=False)):
            raise UserError(f"lengths {shown(self.name)}: tokens must rise from at least 1")
        total = math.fsum(self.shares)
        if not all(share > 0 for share in self.shares) or not abs(total - 1) <= SUM_TOLERANCE:
            raise UserError(
                f"lengths {shown(self.name)}: shares must be positive and sum to 1, not {total:g}"
            )

    def __hash__(self) -> int:
        """Of the name and the ends alone: distributions are keys of caches, and have hundreds of lengths."""
        return hash((self.name, self.source, self.tokens[0], self.tokens[-1], len(self.tokens)))

    @cached_property
    def mean(self) -> float:
        """Tokens of a sample, on average."""
        return math.fsum(t * share for t, share in zip(self.tokens, self.shares, strict=True))

    @cached_property
    def mean_square(self) -> float:
        """Mean of the squared tokens of a sample."""
        return math.fsum(t * t * share for t, share in zip(self.tokens, self.shares, strict=True))

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.tokens[-1]

    def quantile(self, q: float) -> int:
        """The least length that a share `q` of the samples does not exceed; `q` from 0 to 1."""
        if not 0 <= q <= 1:
            raise ValueError(f"q={q} must be from 0 to 1")
        below = 0.0
        for tokens, share in zip(self.tokens, self.shares, strict=True):
            below += share
            if below >= q - 1e-12:
                return tokens
        return self.longest

    def check(self, seq_len: int) -> None:
        """UserError if a sample is longer than the sequences of a model."""
        if self.longest > seq_len:
            raise UserError(
                f"{self.source}: tokens={self.longest}: longer than seq_len={seq_len} of the model; "
                f"cut or leave out longer samples, or raise seq_len"
            )


def list_lengths() -> list[str]:
    """Names of the distributions that ship with the package, in alphabetical order."""
    return sorted(path.stem for path in LENGTHS.glob("*.csv"))


def load_lengths(name: str, seq_len: int | None = None) -> Lengths:
    """The shipped distribution `name`, or that of a file if `name` is the path of a CSV or Parquet file.

    With `seq_len`, no length may be above it. Raises UnknownName for a name that is not shipped, UserError
    for a file that cannot be opened, TableError with file and line for one that is no such table.
    """
    if not is_path(name):
        return _shipped(name, seq_len)
    try:
        status = os.stat(name)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from None
    return _of_file(name, seq_len, status.st_mtime_ns, status.st_size)


@cache
def _shipped(name: str, seq_len: int | None) -> Lengths:
    if name not in list_lengths():
        raise UnknownName("length distribution", name, list_lengths())
    return _read(LENGTHS / f"{name}.csv", name, f"lengths/{name}.csv of itertime", seq_len)


@lru_cache(maxsize=64)
def _of_file(name: str, seq_len: int | None, mtime_ns: int, size: int) -> Lengths:
    """The table in a file, read again where the file has changed."""
    return _read(Path(name), Path(name).stem, name, seq_len)


def is_path(name: str) -> bool:
    """Whether a text is the path of a table of lengths, rather than a shipped name."""
    return "/" in name or name.lower().endswith((".csv", ".csv.gz", ".parquet"))


class _Class(NamedTuple):
    """One row of a table: its line, the lengths of the class, their mean, and their weight."""

    line: int
    first: int
    last: int
    mean: float
    weight: float


def _read(path: Path, name: str, source: str, seq_len: int | None) -> Lengths:
    with open_table(path, layout=TextLayout(comments="#")) as table:
        form = _form_of(table)
        weights: dict[int, float] = {}
        end = 0
        for row in form.rows(table):
            where = f"{path}:{row.line}"
            if row.first <= end:
                problem = "appears twice" if row.first == end else f"follows {end}"
                raise TableError(
                    f"{where}: {form.key}={row.first}: {problem}; lengths must rise from row to row"
                )
            if seq_len is not None and row.last > seq_len:
                raise TableError(
                    f"{where}: {form.last_key}={row.last}: longer than seq_len={seq_len} of the model; "
                    f"cut or leave out longer samples, or raise seq_len"
                )
            end = row.last
            if len(weights) + row.last - row.first >= MOST_LENGTHS:
                raise TableError(f"{where}: more than {MOST_LENGTHS:,} lengths; merge neighbouring ones")
            weights.update(_spread(row, where))
        if not end:
            raise TableError(f"{path}:1: has no rows below the header; add a row for each length")
    total = math.fsum(weights.values())
    if form.weight == "sequences" and not total:
        raise TableError(
            f"{path}:1: all values of sequences are 0; give the sequences of at least one length"
        )
    if form.weight == "share" and not abs(total - 1) <= SUM_TOLERANCE:
        raise TableError(f"{path}:1: the values of share sum to {total:.9g}; they must sum to 1")
    shares = {tokens: weight / total for tokens, weight in weights.items() if weight > 0}
    return Lengths(name, source, tuple(shares), tuple(shares.values()))


class _Form(NamedTuple):
    """One form of table: the column of a row's (first) length, of its last, of its weight, and its reader."""

    key: str
    last_key: str
    weight: str
    rows: Callable[[Table], Iterator[_Class]]


def _form_of(table: Table) -> _Form:
    columns = table.columns
    check_repeated(columns, f"{table.path}:1", {key for form in _FORMS for key in form})
    if {"sequences", "share"} <= set(columns):
        raise TableError(f"{table.path}:1: columns sequences and share: both weigh the rows; keep one")
    for form_columns, form in _FORMS.items():
        if set(form_columns) <= set(columns):
            return form
    if not columns:
        raise TableError(f"{table.path}:1: is empty; expected the header tokens,sequences")
    hint = separator_hint(columns) or "needs the columns tokens,sequences"
    raise TableError(f"{table.path}:1: columns {shown(','.join(columns))}: {hint}")


def _points(weight: str) -> Callable[[Table], Iterator[_Class]]:
    """The reader of rows of one length each, with their `weight`, "sequences" or "share"."""

    def rows(table: Table) -> Iterator[_Class]:
        for line, cells in _cells(table):
            where = f"{table.path}:{line}"
            tokens = _whole(where, "tokens", cells["tokens"], 1, MOST_TOKENS)
            if weight == "sequences":
                count: float = _whole(where, weight, cells[weight], 0, MOST_SEQUENCES)
            else:
                count = _number(where, weight, cells[weight], 0, 1)
            yield _Class(line, tokens, tokens, tokens, count)

    return rows


def _classes(table: Table) -> Iterator[_Class]:
    for line, cells in _cells(table):
        where = f"{table.path}:{line}"
        first = _whole(where, "first", cells["first"], 1, MOST_TOKENS)
        last = _whole(where, "last", cells["last"], first, MOST_TOKENS)
        mean = _number(where, "mean", cells["mean"], first, last)
        yield _Class(line, first, last, mean, _number(where, "share", cells["share"], 0, 1))


_FORMS = {
    ("tokens", "sequences"): _Form("tokens", "tokens", "sequences", _points("sequences")),
    ("tokens", "share"): _Form("tokens", "tokens", "share", _points("share")),
    ("first", "last", "mean", "share"): _Form("first", "last", "share", _classes),
}


def _spread(row: _Class, where: str) -> dict[int, float]:
    """Weight of each length of a class: linear in the length, with the mean that is stated."""
    count = row.last - row.first + 1
    middle = (row.first + row.last) / 2
    if abs(row.mean - middle) > (count + 1) / 6:  # beyond it a weight would be negative
        raise TableError(
            f"{where}: mean={row.mean:g}: must be within {(count + 1) / 6:g} of the middle of "
            f"{row.first} to {row.last}; split the class"
        )
    slope = (row.mean - middle) * 12 / (count**2 - 1) if count > 1 else 0.0
    weight = row.weight / count
    return {t: max(0.0, weight * (1 + slope * (t - middle))) for t in range(row.first, row.last + 1)}


def _cells(table: Table) -> Iterator[tuple[int, dict[str, str]]]:
    for line, cells in table.rows:
        if len(cells) != len(table.columns):
            raise TableError(
                f"{table.path}:{line}: has {len(cells)} cells, the header has {len(table.columns)}; "
                f"give every column one value"
            )
        yield line, {name: cell.strip() for name, cell in zip(table.columns, cells, strict=True)}


def _whole(where: str, key: str, text: str, minimum: int, maximum: int) -> int:
    rule = f"must be a whole number from {minimum:,} to {maximum:,}"
    if not re.fullmatch(r"\+?[0-9]{1,19}", text) or not minimum <= int(text) <= maximum:
        raise TableError(f"{where}: {key}={shown(text)}: {rule}; correct the cell or leave out the row")
    return int(text)


def _number(where: str, key: str, text: str, minimum: float, maximum: float) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not minimum <= value <= maximum:  # NaN is not either
        rule = f"must be a number from {minimum:g} to {maximum:g}"
        raise TableError(f"{where}: {key}={shown(text)}: {rule}; correct the cell or leave out the row")
    return value
