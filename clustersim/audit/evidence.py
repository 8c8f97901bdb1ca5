"""What an audit is given (`Evidence`) and finds (`Finding`, `Violation`), and how exactly it compares.

The tables of a run folder round times to `RESOLUTION_S`. Two numbers count as equal if they differ by no more
than that rounding can explain. Speeds and the event log's seconds per unit keep every digit, so that only
floating point separates them: they agree to `RELATIVE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from types import MappingProxyType
from typing import Any, NamedTuple

from clustersim.cluster import Cluster
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import EventRecord, JobRecord
from itertime.errors import UserError

__all__ = [
    "MOST_KEPT",
    "RELATIVE",
    "RESOLUTION_S",
    "WORK_EPSILON",
    "Evidence",
    "FactsOf",
    "Finding",
    "JobFacts",
    "Violation",
    "agrees",
    "as_stated",
    "slack_s",
    "stated_number",
]

MOST_KEPT = 1000
"""The violations of a rule that are kept as text; further ones are only counted."""

# Tolerances

RESOLUTION_S = 1e-6
"""The tables of a run state numbers to this."""

RELATIVE = 1e-9
"""The relative error that floating point leaves in a long sum, or in one product computed in two ways."""

WORK_EPSILON = 1e-9
"""Units of work that floating point leaves of a job that has to end after no work at all."""

_LARGEST = 1e15  # no sensible number of a manifest is larger, and its products still do not overflow


def agrees(a: float | None, b: float | None, error: float = 0.0, *, relative: float = RELATIVE) -> bool:
    """Whether two numbers differ by at most `error` or the share `relative`. None agrees with None alone."""
    if a is None or b is None:
        return a is b
    return isclose(a, b, rel_tol=relative, abs_tol=error)


def as_stated(stated: Any, value: Any, roundings: int = 1) -> bool:
    """Whether a cell of a table states `value`. Floats may differ by so many `roundings` of the table: one if
    the value is exact, two if it is a difference of two numbers of the table.
    """
    if stated == value:
        return True
    numbers = isinstance(stated, float) and isinstance(value, float)
    return numbers and agrees(stated, value, roundings * RESOLUTION_S)


def slack_s(now: float, error: float) -> float:
    """How far a time computed again may lie from the recorded `now`, known to within `error`."""
    return RELATIVE * abs(now) + error


# What an audit is given


class JobFacts(NamedTuple):
    """What is known of a job beside the log. None is unknown.

    `work`: units of work, to within `work_error`. `unit_s`: seconds per unit, by number of GPUs.
    `only_known_sizes`: the job can run on no number of GPUs but those of `unit_s`. `parameters`: those of its
    model, which give the size of its checkpoints.
    """

    work: float | None = None
    work_error: float = 0.0
    unit_s: Mapping[int, float] = MappingProxyType({})
    only_known_sizes: bool = False
    parameters: float | None = None


FactsOf = Callable[[JobRecord | None, EventRecord | None, bool], JobFacts]
"""The facts of a job, by its record, the first event of its log (None: there is none), and whether it runs
training plans."""


@dataclass(frozen=True)
class Evidence:
    """What a run left behind. `events` in order of time, `records` in order of submission; both are iterated
    over several times.

    `end_s`: when the run ended at the earliest. If None, nothing is proved about allocations and waits that
    were open at the end. `resolution_s`: the largest error of a difference of two recorded times.
    """

    cluster: Cluster
    overheads: Overheads
    events: Iterable[EventRecord]
    records: Iterable[JobRecord]
    facts_of: FactsOf
    end_s: float | None = None
    resolution_s: float = 0.0
    failures: Failures | None = None


def stated_number(manifest: Mapping[str, Any], name: str) -> float:
    """A number of a manifest. UserError if it is none, negative or absurdly large."""
    value = manifest.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise UserError(f"manifest.json: {name}={value!r:.80}: must be from 0 to {_LARGEST:g}; run again")
    return float(value)


# What an audit finds


class Violation(NamedTuple):
    """A broken rule, in words. `event` (counted from 0), `time_s` and `job_id` name its place in the log, if
    it has one.
    """

    text: str
    event: int | None = None
    time_s: float | None = None
    job_id: str | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on one rule: it is proved if there are no violations.

    `violations`: the first `MOST_KEPT`; `more` counts the others. `unproved`: what the evidence neither
    proves nor refutes.
    """

    rule: str
    text: str
    violations: tuple[Violation, ...]
    unproved: str = ""
    more: int = 0
