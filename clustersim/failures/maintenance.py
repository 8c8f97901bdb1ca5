"""Planned changes of nodes: maintenance, nodes that are reclaimed with notice, added or removed.

    - {at_s: 86400, maintenance: 0-15, for_s: 7200}
    - {at_s: 604800, maintenance: 0-15, for_s: 7200, every_s: 604800, times: 4}
    - {at_s: 90000, reclaim: 32-47, for_s: 3600, notice_s: 120}
    - {at_s: 172800, add: 64-127}
    - {at_s: 259200, remove: "0-3,9"}

Nodes are given by their numbers in the cluster; ranges include their last node. The shape of a cluster counts
all the nodes that it ever has: nodes whose first entry is `add` are absent before. Maintenance and changes of
capacity are announced: policies may plan by them. `announced: false` states those that nothing tells in
advance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from itertime.errors import UnknownName, UserError
from itertime.io import names_file, quoted, read_mapping

__all__ = [
    "Closure",
    "Maintenance",
    "PlannedChange",
    "nodes_named",
    "read_calendar",
    "seconds_of",
    "starts_of",
]

_WHAT = ("maintenance", "add", "remove", "reclaim")
_FOR_A_WHILE = ("maintenance", "reclaim")
_KEYS = (*_WHAT, "at_s", "for_s", "notice_s", "every_s", "times", "announced")
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
_MOST_S, _MOST_CHANGES, _MOST_ENTRIES = 1e12, 1_000_000, 100_000


class PlannedChange(NamedTuple):
    """At `time_s` a reason to keep `node` out of service begins (`delta` +1) or ends (-1). `notice_s`: how
    long before jobs learn of it; infinite for a change that is known all along. `announced`: whether policies
    learn of it in advance; those of a reclaim come with their notice.
    """

    time_s: float
    node: int
    delta: int
    kind: str
    notice_s: float = inf
    announced: bool = True


class Closure(NamedTuple):
    """From `start_s` to `end_s` (infinite: for good) the `nodes` are out of service, as announced."""

    start_s: float
    end_s: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Maintenance:
    """Every planned change, in order of time; at equal times, ends come before beginnings. `absent`: the
    nodes that are not in the cluster at first.
    """

    changes: tuple[PlannedChange, ...] = ()
    absent: frozenset[int] = frozenset()

    @property
    def reclaims(self) -> bool:
        """Whether nodes are reclaimed with notice."""
        return any(change.notice_s < inf for change in self.changes)

    def closures(self, first_node: int, nodes: int) -> list[Closure]:
        """What is announced of the `nodes` nodes from `first_node` on, in order of time. The closures count
        the nodes from that one on, and those of one node do not overlap.
        """
        span = range(first_node, first_node + nodes)
        reasons = Counter(node for node in self.absent if node in span)
        opened_s = dict.fromkeys(reasons, -inf)
        nodes_by_span: dict[tuple[float, float], list[int]] = {}
        for time_s, node, delta, kind, _, announced in self.changes:
            if node not in span or not announced or kind == "reclaim":
                continue
            if delta > 0 and not reasons[node]:
                opened_s[node] = time_s
            reasons[node] = max(0, reasons[node] + delta)
            if not reasons[node] and node in opened_s:
                nodes_by_span.setdefault((opened_s.pop(node), time_s), []).append(node - first_node)
        for node, start_s in opened_s.items():
            nodes_by_span.setdefault((start_s, inf), []).append(node - first_node)
        return [Closure(*times_s, tuple(nodes_by_span[times_s])) for times_s in sorted(nodes_by_span)]

    @classmethod
    def of(cls, entries: object, nodes: int) -> Maintenance:
        """From entries as in the module's docstring. UserError names the entry, the field and the value:
        unknown nodes, impossible times, and nodes that are added while present or removed while absent.
        """
        changes: list[PlannedChange] = []
        present: dict[int, list[tuple[float, str, str, bool]]] = {}
        for where, entry in _listed(entries):
            action, at_s, step_nodes = _entry(where, entry, nodes)
            for_s = seconds_of(where, entry, "for_s") if action in _FOR_A_WHILE else 0.0
            notice_s = seconds_of(where, entry, "notice_s") if action == "reclaim" else inf
            announced = entry.get("announced", True)
            starts = starts_of(where, entry, at_s, for_s)
            if len(changes) + len(starts) * len(step_nodes) > _MOST_CHANGES:
                raise UserError(f"{where}: more than {_MOST_CHANGES:,} changes of single nodes; plan fewer")
            for start_s in starts:
                for node in step_nodes:
                    if action in _FOR_A_WHILE:
                        changes.append(PlannedChange(start_s, node, 1, action, notice_s, announced))
                        changes.append(PlannedChange(start_s + for_s, node, -1, action, inf, announced))
                    else:
                        present.setdefault(node, []).append((start_s, action, where, announced))
        absent = set()
        for node, steps in present.items():
            steps.sort(key=lambda step: step[0])
            if steps[0][1] == "add":
                absent.add(node)
            _check_steps(node, steps)
            changes += [
                PlannedChange(at_s, node, -1 if action == "add" else 1, "capacity", inf, announced)
                for at_s, action, _, announced in steps
            ]
        changes.sort(key=lambda change: (change.time_s, change.delta, change.node))
        return cls(tuple(changes), frozenset(absent))


def read_calendar(path: str) -> list[Any]:
    """The entries of a YAML or JSON file that holds them under `calendar`. UserError names the file."""
    if not names_file(path):
        raise UserError(f"calendar={quoted(path)}: must be a list of entries, or a file FILE.yaml")
    document = read_mapping(path)
    entries = document.get("calendar")
    if set(document) != {"calendar"} or not isinstance(entries, list):
        raise UserError(f"{path}: must hold one key, calendar, with the list of entries")
    return entries


def _listed(entries: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(entries, list | tuple):
        raise UserError(f"calendar={quoted(entries)}: must be a list of entries")
    if len(entries) > _MOST_ENTRIES:
        raise UserError(
            f"calendar: has {len(entries):,} entries, more than {_MOST_ENTRIES:,}, and each goes into "
            "manifest.json; plan fewer, by nodes: 0-7, and every_s and times"
        )
    for i, entry in enumerate(entries):
        where = f"calendar: entry {i + 1}"
        if not isinstance(entry, Mapping):
            raise UserError(f"{where}={quoted(entry)}: must state at_s and one of {', '.join(_WHAT)}")
        yield where, entry


def _entry(where: str, entry: Mapping[str, Any], nodes: int) -> tuple[str, float, list[int]]:
    for key in entry:
        if key not in _KEYS:
            raise UserError(f"{where}: {UnknownName('field', str(key), _KEYS)}")
    actions = [action for action in _WHAT if action in entry]
    if len(actions) != 1:
        raise UserError(f"{where}: states {len(actions)} of {', '.join(_WHAT)}; state one")
    action = actions[0]
    needless = [key for key in ("for_s", "every_s", "times") if key in entry and action not in _FOR_A_WHILE]
    if needless:
        raise UserError(f"{where}: {needless[0]}={quoted(entry[needless[0]])}: belongs to maintenance")
    if "notice_s" in entry and action != "reclaim":
        raise UserError(f"{where}: notice_s={quoted(entry['notice_s'])}: belongs to reclaim")
    announced = entry.get("announced", True)
    if not isinstance(announced, bool) or ("announced" in entry and action == "reclaim"):
        remedy = "a reclaim states notice_s" if action == "reclaim" else "must be true or false"
        raise UserError(f"{where}: announced={quoted(announced)}: {remedy}")
    return action, seconds_of(where, entry, "at_s"), nodes_named(f"{where}: {action}", entry[action], nodes)


def seconds_of(where: str, entry: Mapping[str, Any], key: str) -> float:
    """A time or a duration of an entry. UserError, which begins with `where`, for anything else."""
    value = entry.get(key)
    low = 0.0 if key in ("at_s", "notice_s") else 1e-3
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= _MOST_S:
        raise UserError(f"{where}: {key}={quoted(value)}: must be seconds, from {low:g} to {_MOST_S:g}")
    return float(value)


def starts_of(where: str, entry: Mapping[str, Any], at_s: float, for_s: float) -> list[float]:
    """The times at which an entry begins, which `every_s` and `times` may repeat. UserError as above."""
    if "every_s" not in entry and "times" not in entry:
        return [at_s]
    every_s, times = seconds_of(where, entry, "every_s"), entry.get("times")
    if type(times) is not int or not 1 <= times <= 100_000:
        raise UserError(f"{where}: times={quoted(times)}: must be a whole number from 1 to 100000")
    if every_s < for_s:
        raise UserError(f"{where}: every_s={every_s:g}: is below for_s={for_s:g}; they would overlap")
    return [at_s + i * every_s for i in range(times)]


def nodes_named(where: str, value: object, count: int) -> list[int]:
    """The nodes of a text such as `0-3,9`, of a list of such parts, or of a single number. UserError, which
    begins with `where`, for anything else and for nodes that a cluster of `count` does not have.
    """
    parts = [str(value)] if type(value) is int else value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        parts = ["?"]
    nodes: dict[int, None] = {}
    for part in parts:
        match = _RANGE.fullmatch(str(part).strip())
        if match is None:
            raise UserError(f"{where}={quoted(value)}: must name nodes, as in 3, 0-15 or 0-3,9")
        first_node, last_node = int(match[1]), int(match[2] or match[1])
        if last_node < first_node:
            raise UserError(
                f"{where}={quoted(value)}: {match[0]} runs backwards; the lower number comes first"
            )
        if last_node >= count:
            cluster_text = f"the cluster has the nodes 0 to {count - 1}"
            raise UserError(f"{where}={quoted(value)}: {cluster_text}; correct it")
        nodes.update(dict.fromkeys(range(first_node, last_node + 1)))
    return list(nodes)


def _check_steps(node: int, steps: list[tuple[float, str, str, bool]]) -> None:
    """A node must be added and removed alternately, at most once at the same time."""
    for (before_s, action_before, *_), (at_s, action, where, _) in pairwise(steps):
        if before_s == at_s:
            raise UserError(f"{where}: {action}: node {node} is changed twice at t={at_s:g} s; keep one")
        if action == action_before:
            state = "is already in the cluster" if action == "add" else "is no longer in the cluster"
            raise UserError(f"{where}: {action}: node {node} {state} at t={at_s:g} s")
