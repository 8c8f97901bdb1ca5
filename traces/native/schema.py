"""The columns of the native trace: how a cell's text becomes a value, and which values contradict each other.

A broken rule is a `ValueError` or a yielded text of the form "what is wrong; how to fix it". The reader adds
file, line, column and value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.spec import PRECISIONS, list_frameworks, parse_options
from traces.attempts import attempts_text, parse_attempts
from traces.dependencies import parse_dependencies
from traces.job import MAX_GPUS, Job
from traces.phases import parse_phases, phases_text

__all__ = [
    "COLUMNS",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MIN_ITERATIONS",
    "MIN_SECONDS",
    "NAMES",
    "OWN_PREFIX",
    "contradictions",
    "extra_of",
    "number",
    "unreadable",
    "whole",
]

OWN_PREFIX = "x_"
"""The names of a trace's own columns start with it. Policies get their cells, and nothing else reads them."""

MAX_SECONDS = 4e9  # epoch seconds until 2096; above 8e9 a double cannot resolve the microseconds of tables
MIN_SECONDS = 1e-6  # the resolution of tables
_MAX_TEXT = 100_000  # the csv module does not read cells of 131,072 characters or more
MAX_COUNT = 10**12
MIN_ITERATIONS = 1e-12  # below any real work, and large enough that ratios to it stay finite
_LEAST_FRACTION = 1e-6  # of a GPU; parts are counted in millionths
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6  # ratios of weights stay well within doubles and solvers
_LEAST_HOST, _MAX_HOST = 1e-3, 1e9  # cores, and GB of memory, of a job
_MAX_BATCH = 10_000_000  # the largest global batch that itertime plans
_ROUNDING_S = 1e-6  # to which cells of attempts are written


def _text(text: str) -> str:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"is longer than {_MAX_TEXT:,} characters; shorten it")
    return text


def extra_of(cells: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The field `extra` of a job with these cells of its trace's own columns, in order of their names; those
    that are empty are left out. Raises ValueError for a cell that is too long.
    """
    return tuple(sorted((name, _text(text)) for name, text in cells if text and not text.isspace()))


def number(text: str) -> float:
    """Parse a finite number. Raises ValueError for other text."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is not a number; write a plain number such as 3600 or 0.5") from None
    if "_" in text:
        raise ValueError("is not a number; write it without underscores")
    if not math.isfinite(value):
        raise ValueError("must be finite; leave an optional cell empty instead")
    return value


def whole(text: str) -> int:
    """Parse a whole number, which may be written as 8.0. Raises ValueError for other text."""
    try:
        value = int(text)
    except ValueError:
        as_float = number(text)
        if not as_float.is_integer():
            raise ValueError("must be a whole number; round it") from None
        return int(as_float)
    if "_" in text:
        raise ValueError("is not a number; write it without underscores")
    return value


def _time(text: str) -> float:
    value = number(text)
    if value < 0:
        raise ValueError("must not be negative; shift the trace so that its clock starts at 0")
    if value > MAX_SECONDS:
        raise ValueError(f"is above {MAX_SECONDS:g} seconds; if it is in milliseconds, divide by 1000")
    return value


def _run_time(if_none: str, if_short: str) -> Callable[[str], float]:
    """A parser of run times; the remedies for one of 0 or less, and for one that tables do not resolve."""

    def parse(text: str) -> float:
        value = number(text)
        if value <= 0:
            raise ValueError(f"must be greater than 0; {if_none}")
        if value < MIN_SECONDS:
            raise ValueError(f"is below {MIN_SECONDS:g} seconds, which no table resolves; {if_short}")
        return _time(text)

    return parse


def _iterations(if_none: str, if_small: str) -> Callable[[str], float]:
    """A parser of iterations; the remedies for 0 or less, and for less than any real work."""

    def parse(text: str) -> float:
        value = number(text)
        if value <= 0:
            raise ValueError(f"must be greater than 0; {if_none}")
        if value < MIN_ITERATIONS:
            raise ValueError(f"is below {MIN_ITERATIONS:g}, which is no work; {if_small}")
        if value > MAX_COUNT:
            raise ValueError(f"is above {MAX_COUNT:g}; correct it")
        return value

    return parse


def _count(limit: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole(text)
        if value < 1:
            raise ValueError("must be at least 1")
        if value > limit:
            raise ValueError(f"is above {limit:,}; correct it")
        return value

    return parse


def _fraction(text: str) -> float:
    value = number(text)
    if not 0 < value < 1:
        raise ValueError("must be above 0 and below 1; leave the cell empty for whole GPUs")
    if value < _LEAST_FRACTION:
        raise ValueError(f"is below {_LEAST_FRACTION:g}, the smallest part of a GPU; leave the job out")
    return value


def _priority(text: str) -> int:
    value = whole(text)
    if abs(value) > MAX_COUNT:
        raise ValueError(f"is outside -{MAX_COUNT:g} to {MAX_COUNT:g}; scale the priorities down")
    return value


def _weight(text: str) -> float:
    value = number(text)
    if not _MIN_WEIGHT <= value <= _MAX_WEIGHT:
        raise ValueError(
            f"is outside {_MIN_WEIGHT:g} to {_MAX_WEIGHT:g}; weights are relative, 1 as any other job"
        )
    return value


def _host(text: str) -> float:
    value = number(text)
    if not _LEAST_HOST <= value <= _MAX_HOST:
        limits = f"is outside {_LEAST_HOST:g} to {_MAX_HOST:g}"
        raise ValueError(f"{limits}; leave the cell empty if the job states no demand")
    return value


def _one_of(noun: str, names: Callable[[], Sequence[str]]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        name = text.strip()
        if name not in names():
            wrong = str(UnknownName(noun, name[:100], names())).removesuffix("?")
            raise ValueError(f"{wrong}; or leave the cell empty")
        return name

    return parse


def _options(text: str) -> str | None:
    """Options of plans, each that is no default, in one order; None if there are none."""
    try:
        return parse_options(_text(text), "options").text or None
    except UserError as error:
        raise ValueError(str(error).removeprefix("options: ")) from None


def _phases(text: str) -> str:
    return phases_text(parse_phases(_text(text)))


def _partitions(text: str) -> str:
    names = [name.strip() for name in _text(text).split("|")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("names no partition, or one twice; write names with a bar between them: gpu|urgent")
    return "|".join(names)


def _dependencies(text: str) -> str:
    parse_dependencies(_text(text))
    return text.strip()


def _attempts(text: str) -> str:
    return attempts_text(parse_attempts(_text(text)))


COLUMNS: dict[str, Callable[[str], Any]] = {
    "job_id": _text,
    "submit_s": _time,
    "tenant": _text,
    "model": _text,
    "gpus": _count(MAX_GPUS),
    "min_gpus": _count(MAX_GPUS),
    "max_gpus": _count(MAX_GPUS),
    "global_batch": _count(_MAX_BATCH),
    "seq_len": _count(MAX_COUNT),
    "iterations": _iterations("leave out jobs without work", "leave the job out"),
    "stated_iterations": _iterations("leave the cell empty if the user states the true work", "correct it"),
    "duration_s": _run_time("leave out jobs that never ran", "leave the job out"),
    "deadline_s": _time,
    "priority": _priority,
    "weight": _weight,
    "state": _text,
    "estimate_s": _run_time("leave the cell empty if there is no estimate", "leave the cell empty"),
    "user": _text,
    "gpu_type": _text,
    "logged_start_s": _time,
    "partition": _text,
    "qos": _text,
    "framework": _one_of("framework", cache(list_frameworks)),
    "precision": _one_of("precision", lambda: PRECISIONS),
    "plan_options": _options,
    "gpu_fraction": _fraction,
    "service": _text,
    "phases": _phases,
    "cpus": _host,
    "host_memory_gb": _host,
    "begin_s": _time,
    "eligible_s": _time,
    "cancel_s": _time,
    "time_limit_s": _run_time("leave the cell empty if nothing limits the job", "leave the cell empty"),
    "account": _text,
    "partitions": _partitions,
    "nodes": _count(MAX_GPUS),
    "gpus_per_node": _count(MAX_GPUS),
    "depends": _dependencies,
    "name": _text,
    "array_id": _text,
    "array_limit": _count(MAX_COUNT),
    "attempts": _attempts,
    "suspended_s": _time,
    "nice": _priority,
    "reservation": _text,
}
"""Column name -> parser of its non-empty cells, in the order in which columns are written."""


def contradictions(job: Job) -> Iterator[tuple[str, object, str]]:
    """Yield (column, value, "what is wrong; how to fix it") for each contradiction within a job."""
    if job.kind == "duration" and (job.gpus is None or job.duration_s is None):
        yield _no_work(job)
    if job.min_gpus is not None and job.max_gpus is not None and job.min_gpus > job.max_gpus:
        yield "min_gpus", job.min_gpus, f"is above max_gpus={job.max_gpus}; swap or correct them"
    elif job.gpus is not None and job.min_gpus is not None and job.gpus < job.min_gpus:
        yield "gpus", job.gpus, f"is below min_gpus={job.min_gpus}; the request must lie within the bounds"
    elif job.gpus is not None and job.max_gpus is not None and job.gpus > job.max_gpus:
        yield "gpus", job.gpus, f"is above max_gpus={job.max_gpus}; the request must lie within the bounds"
    if job.gpu_fraction is not None and job.gpus != 1:
        yield "gpu_fraction", f"{job.gpu_fraction:g}", "needs gpus=1: a job shares one GPU; or leave it empty"
    if job.gpus is None:
        for name, amount in (("cpus", job.cpus), ("host_memory_gb", job.host_memory_gb)):
            if amount is not None:
                text = "needs gpus, among which it is divided; state gpus, or leave the cell empty"
                yield name, f"{amount:g}", text
    if job.service is not None and (clash := _clash_of_service(job)):
        yield "service", job.service, clash
    if job.phases is not None and (clash := _clash_of_phases(job)):
        yield "phases", job.phases, clash
    if job.deadline_s is not None and job.deadline_s < job.submit_s:
        text = f"is before submit_s={job.submit_s:g}; deadlines are absolute, not relative to the submission"
        yield "deadline_s", f"{job.deadline_s:g}", text
    if job.logged_start_s is not None and job.logged_start_s < job.submit_s:
        text = f"is before submit_s={job.submit_s:g}; a job starts after its submission, on the same clock"
        yield "logged_start_s", f"{job.logged_start_s:g}", text
    yield from _contradictions_of_submission(job)
    if job.stated_iterations is not None and job.iterations is None:
        text = "is stated without iterations, the work that the job does; state both or neither"
        yield "stated_iterations", f"{job.stated_iterations:g}", text


def _contradictions_of_submission(job: Job) -> Iterator[tuple[str, object, str]]:
    """Those of when, where and how often the job may run."""
    for name, time_s in (("eligible_s", job.eligible_s), ("cancel_s", job.cancel_s)):
        if time_s is not None and time_s < job.submit_s:
            text = f"is before submit_s={job.submit_s:g}; it is a time on the same clock, not a wait"
            yield name, f"{time_s:g}", text
    if job.attempts is not None:
        start_s = parse_attempts(job.attempts)[0].start_s
        if start_s < job.submit_s - _ROUNDING_S:
            text = f"begin at {start_s:g}, before submit_s={job.submit_s:g}; write times on the trace's clock"
            yield "attempts", job.attempts, text
    if job.gpus_per_node is not None:
        if job.nodes is None:
            yield "gpus_per_node", job.gpus_per_node, "needs nodes, the number of nodes; state both"
        elif job.gpus is not None and job.nodes * job.gpus_per_node != job.gpus:
            text = f"times nodes={job.nodes} is not gpus={job.gpus}; correct one of them"
            yield "gpus_per_node", job.gpus_per_node, text
    elif job.nodes is not None and job.gpus is not None and job.gpus < job.nodes:
        yield "nodes", job.nodes, f"is above gpus={job.gpus}; a job has GPUs on each of its nodes"
    if job.array_limit is not None and job.array_id is None:
        yield "array_limit", job.array_limit, "needs array_id, the array that it limits; state both"
    if job.service is not None:
        for name in ("begin_s", "cancel_s", "time_limit_s", "depends", "array_limit", "attempts"):
            if getattr(job, name) is not None:
                yield name, getattr(job, name), "is stated of an instance of a service; leave the cell empty"


def _clash_of_service(job: Job) -> str:
    """What an instance of a service cannot state beside it; "" if all is well."""
    if job.kind == "iterations":
        return "trains a model; an instance of a service states gpus and duration_s, and no iterations"
    if job.gpu_fraction is not None:
        return "states gpu_fraction; an instance of a service holds whole GPUs"
    if job.deadline_s is not None:
        return "states deadline_s; an instance of a service leaves when its duration_s is over"
    return ""


def _clash_of_phases(job: Job) -> str:
    """What the phases of a job cannot be, as the job states its work; "" if all is well."""
    if job.service is not None:
        return "are those of an instance of a service, which does no work of its own; leave the cell empty"
    if job.kind == "iterations":
        for phase in parse_phases(job.phases or ""):
            for value in (phase.value, phase.most or 1.0):
                if not (value.is_integer() and value >= 1):
                    remedy = "with iterations each value is a whole number from 1"
                    return f"have the global batch {value:g}; {remedy}"
        return ""
    phases = parse_phases(job.phases or "")
    if any(phase.most is not None or phase.noise < math.inf for phase in phases):
        return "state a choice of batches or a noise; those need model, global_batch and iterations"
    if any(phase.layers is not None for phase in phases):
        return "state layers; those need model, global_batch and iterations"
    return ""


NAMES = ("framework", "precision", "plan_options", "phases", "partitions", "depends", "attempts")
"""The columns of text that is parsed: one of a few names, options, phases, or what the job waited for."""

_NUMBERS = tuple(name for name, parse in COLUMNS.items() if parse is not _text and name not in NAMES)
_numbers_of = attrgetter(*_NUMBERS)


_ORDINARY: dict[str, tuple[type[float], float, float]] = {
    "submit_s": (float, 0.0, MAX_SECONDS),
    "gpus": (int, 1, MAX_GPUS),
    "duration_s": (float, MIN_SECONDS, MAX_SECONDS),
    "priority": (int, -MAX_COUNT, MAX_COUNT),
    "weight": (float, _MIN_WEIGHT, _MAX_WEIGHT),
    "estimate_s": (float, MIN_SECONDS, MAX_SECONDS),
    "logged_start_s": (float, 0.0, MAX_SECONDS),
    "eligible_s": (float, 0.0, MAX_SECONDS),
    "time_limit_s": (float, MIN_SECONDS, MAX_SECONDS),
    "nodes": (int, 1, MAX_GPUS),
    "gpus_per_node": (int, 1, MAX_GPUS),
}
"""Type and bounds of values that their parser takes, for columns that most jobs have: a tenth of its time."""


def unreadable(job: Job) -> tuple[str, str] | None:
    """Why a trace with this job could not be read again, with the value and without; None if it could.

    No remedy is stated, since no user wrote the value.
    """
    for name, value in zip(_NUMBERS, _numbers_of(job), strict=True):
        if value is None:
            continue
        if name in _ORDINARY:
            kind, low, high = _ORDINARY[name]
            if type(value) is kind and low <= value <= high:
                continue
        try:
            COLUMNS[name](repr(value))
        except ValueError as error:
            wrong = str(error).partition(";")[0]
            return f"{name}={value:.15g}: {wrong}", f"{name}: {wrong}"
    for name, value, text in contradictions(job):
        wrong = text.partition(";")[0]
        return f"{name}={value}: {wrong}", f"{name}: {wrong}"
    return None


def _no_work(job: Job) -> tuple[str, str, str]:
    by_iterations = ("model", "global_batch", "iterations")
    if any(getattr(job, name) is not None for name in by_iterations):
        columns: tuple[str, ...] = by_iterations
    else:
        columns = ("gpus", "duration_s")
    column = next(name for name in columns if getattr(job, name) is None)
    return column, "", "is empty; a job needs model, global_batch and iterations, or gpus and duration_s"
