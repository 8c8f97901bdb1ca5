"""What a reader of a log format offers: how a log of that format is recognised, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from .log import Log, ReadOptions
from .source import Head, LogSource

__all__ = ["LogFormat", "has_columns"]


@dataclass(frozen=True)
class LogFormat:
    """A format of job logs.

    `title` says in a line whose logs these are. `matches(head)` recognises a log by its beginning.
    `read(source, options)` gives its rows, each as a job or dropped; it raises TableError for a log without a
    usable row.
    """

    name: str
    title: str
    matches: Callable[[Head], bool]
    read: Callable[[LogSource, ReadOptions], Log]


def has_columns(columns: Collection[str], without: Collection[str] = ()) -> Callable[[Head], bool]:
    """A `matches` that wants all of `columns` and none of `without` in the header."""

    def matches(head: Head) -> bool:
        return set(columns) <= set(head.columns) and not set(without) & set(head.columns)

    return matches
